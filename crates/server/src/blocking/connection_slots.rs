//! Connections on threads of their own, of which some may have to make room for others.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_base::slab::Slab;
use loadline_base::{MemoryBudget, MemoryPressure, Millis, Token};
use loadline_proto::CloseReason;
use loadline_sys::{Accepted, socket};

use crate::admission::{Admission, EVICTIONS_MAX, Kind, Load, Verdict};
use crate::connection_thread::{Hold, READ_BUFFER_BYTES, Resting};
use crate::fairness::{ClientKey, Holdings, Occupation};
use crate::memory::{Holding, Shortage, Sums, thread_bytes};
use crate::options::Architecture;
use crate::telemetry::counters::Role;

/// Connections are looked through for memory once in this time: that takes some 10 us for a thousand.
const LOOK_MS: u64 = 10;

/// A connection that the accepting thread may evict.
pub(crate) struct Slot {
    pub(crate) accepted: Accepted,
    /// The number of the client with whose connections it is counted: a trusted proxy's with those of its
    /// request's client, while that is in progress; nobody's if it is being refused.
    counted: AtomicU64,
    /// Where it is counted; `None`: nowhere.
    holdings: Option<Arc<Holdings>>,
    is_refused: bool,
    /// What it waits for, in the order in which connections give up, or one of those below. The thread
    /// that changes it from there, by one atomic step, decides: the connection goes on, or it ends.
    state: AtomicU64,
    /// What its end frees, as of when it last waited.
    bytes: AtomicU64,
}

/// Beside the time: it is idle.
const IDLE: u64 = 1 << 60;
/// It waits for an app.
const SERVED: u64 = 1 << 61;
/// It does not wait.
const BUSY: u64 = 1 << 62;
/// It is evicted, for one of these reasons: nothing comes after it.
const EVICTED: u64 = BUSY + 1;
const REASONS: [CloseReason; 3] = [
    CloseReason::Evicted,
    CloseReason::OverShare,
    CloseReason::Memory,
];

fn state_of(occupation: Occupation) -> u64 {
    match occupation {
        Occupation::Slow(since) => since.0,
        Occupation::Idle(since) => IDLE | since.0,
        Occupation::Served => SERVED,
    }
}

fn occupation_of(state: u64) -> Occupation {
    match state {
        ..IDLE => Occupation::Slow(Millis(state)),
        IDLE..SERVED => Occupation::Idle(Millis(state - IDLE)),
        SERVED.. => Occupation::Served,
    }
}

impl Slot {
    fn counted(&self) -> ClientKey {
        ClientKey::from_number(self.counted.load(Ordering::Relaxed))
    }

    /// From now on it is counted with the connections of this client. Two threads may do so at once:
    /// whoever takes a client out finds it counted in.
    fn count_for(&self, client: ClientKey) {
        if let Some(holdings) = &self.holdings {
            holdings.enter(client);
            let before = self.counted.swap(client.number(), Ordering::AcqRel);
            holdings.leave(ClientKey::from_number(before));
        }
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    fn is_evicted(&self) -> bool {
        self.state() >= EVICTED
    }

    /// `false`: something else has happened to it meanwhile.
    fn evict(&self, state: u64, reason: CloseReason) -> bool {
        let number = REASONS.iter().position(|it| *it == reason).unwrap_or(0);
        let (evicted, order) = (EVICTED + number as u64, Ordering::AcqRel);
        let result = (self.state).compare_exchange(state, evicted, order, Ordering::Relaxed);
        let is_evicted = result.is_ok();
        if is_evicted && state < BUSY {
            socket::cut(self.accepted.socket.as_fd()); // wakes its thread
        }
        is_evicted
    }
}

impl Hold for Slot {
    const GIVES_BACK: bool = false;

    fn rest(&self, resting: &Resting) -> bool {
        self.bytes.store(resting.bytes, Ordering::Relaxed);
        if let Some(client) = resting.proxied_client
            && client != self.counted()
        {
            self.count_for(client);
        }
        let (state, order) = (state_of(resting.occupation), Ordering::AcqRel);
        let result = (self.state).compare_exchange(BUSY, state, order, Ordering::Relaxed);
        if result.is_err() && resting.proxied_client.is_some() {
            self.count_for(ClientKey::NOBODY); // it was evicted, and perhaps counted since
        }
        result.is_ok()
    }

    fn resume(&self) -> bool {
        self.state.fetch_max(BUSY, Ordering::AcqRel) < EVICTED
    }

    fn has_lost(&self) -> Option<CloseReason> {
        let number = self.state().checked_sub(EVICTED)?;
        REASONS.get(usize::try_from(number).ok()?).copied()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.accepted.socket.as_fd())
    }
}

/// A new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) client: ClientKey,
    pub(crate) is_last_descriptor: bool,
    pub(crate) is_memory_full: bool,
    /// The server is going down: what has connected by now is served.
    pub(crate) is_draining: bool,
    pub(crate) now: Millis,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    /// `Admit`, `Refuse` or `Drop`.
    pub(crate) verdict: Verdict,
    /// Another connection makes room for it.
    pub(crate) has_made_room: bool,
    /// It would be served if its client had fewer others.
    pub(crate) is_over_share: bool,
}

/// All of them.
pub(crate) struct Slots {
    occupied: Slab<Arc<Slot>>,
    /// Those of evicted connections whose threads have not ended yet.
    leaving: usize,
    /// Those of connections that are being refused, and are not leaving.
    refusals: usize,
    /// Connections by client, without those two; `None`: clients are not looked at, and none makes room.
    holdings: Option<Arc<Holdings>>,
    /// When they may be looked through for memory again, unless it is shorter than it was at the last look.
    look_after: Millis,
    looked_at: MemoryPressure,
}

impl Slots {
    pub(crate) fn new(fairness: bool) -> Self {
        Self {
            occupied: Slab::new(),
            leaving: 0,
            refusals: 0,
            holdings: fairness.then(Arc::default),
            look_after: Millis(0),
            looked_at: MemoryPressure::None,
        }
    }

    /// Decides on a new connection, has another one make room for it if need be, and counts it in with
    /// its client's if it is served.
    pub(crate) fn decide(&mut self, admission: Admission, new: New) -> Decision {
        self.enter(new.client);
        let mut load = Load {
            connections: self.occupied.len() - self.leaving - self.refusals,
            refusals: self.refusals,
            is_last_descriptor: new.is_last_descriptor,
            is_memory_full: new.is_memory_full,
            is_draining: new.is_draining,
            ..Load::default()
        };
        let mut decision = Decision {
            verdict: admission.decide(Kind::Connection, &load),
            has_made_room: false,
            is_over_share: false,
        };
        if decision.verdict == Verdict::Admit {
            return decision;
        }
        load.has_idle = self.holdings.is_some(); // as far as is known
        let share = |holdings: &Arc<Holdings>| holdings.share(new.client, new.now);
        load.share = self.holdings.as_ref().map(share).unwrap_or_default();
        let verdict = admission.decide(Kind::Connection, &load);
        decision.has_made_room = match verdict {
            Verdict::EvictIdle => self.evict_idle(),
            Verdict::EvictOf { client, only_idle } => self.evict_of(client, only_idle),
            _ => false,
        };
        if decision.has_made_room {
            decision.verdict = Verdict::Admit;
            return decision;
        }
        self.leave(new.client);
        decision.verdict = Admission::refusal(self.refusals);
        decision.is_over_share = matches!(verdict, Verdict::EvictOf { only_idle, .. } if only_idle);
        decision
    }

    /// A connection that was decided on: it is served for this client, or refused.
    pub(crate) fn insert(
        &mut self,
        accepted: Accepted,
        client: ClientKey,
        is_refused: bool,
    ) -> (Token, Arc<Slot>) {
        let slot = Arc::new(Slot {
            accepted,
            counted: AtomicU64::new(client.number()),
            holdings: self.holdings.clone().filter(|_| !is_refused),
            is_refused,
            state: AtomicU64::new(BUSY),
            bytes: AtomicU64::new(0),
        });
        self.refusals += usize::from(is_refused);
        (self.occupied.insert(Arc::clone(&slot)), slot)
    }

    /// A thread is done with its slot.
    pub(crate) fn remove(&mut self, token: Token) {
        let Some(slot) = self.occupied.remove(token) else {
            return;
        };
        match slot.is_evicted() {
            true => self.leaving -= 1,
            false => {
                self.refusals -= usize::from(slot.is_refused);
                slot.count_for(ClientKey::NOBODY);
            }
        }
    }

    /// Memory is short: evicts those whose end frees it. `false`: too little can be freed for anything
    /// that would need more.
    pub(crate) fn relieve(&mut self, memory: &MemoryBudget, now: Millis) -> bool {
        let of_thread = thread_bytes(
            Role::Thread,
            Architecture::ThreadPerConnection,
            READ_BUFFER_BYTES,
        );
        let bytes = |slot: &Slot| slot.bytes.load(Ordering::Relaxed) + of_thread;
        let leaving = self.all().filter(|slot| slot.is_evicted());
        let mut freed: u64 = leaving.map(|slot| bytes(slot)).sum();
        let excess_bytes = memory.excess_bytes(MemoryPressure::Idle);
        let pressure = memory.pressure();
        let is_due = now >= self.look_after || pressure > self.looked_at;
        if freed < excess_bytes && is_due {
            let shortage = Shortage {
                pressure,
                excess_bytes: excess_bytes - freed,
                now,
            };
            let holding = self.all().filter(|slot| !slot.is_evicted()).map(|slot| {
                let state = slot.state();
                Holding {
                    client: match slot.holdings {
                        Some(_) => slot.counted(),
                        None => ClientKey::NOBODY,
                    },
                    occupation: occupation_of(state),
                    bytes: bytes(slot),
                    connection: (slot, state),
                }
            });
            // All are here: nothing is elsewhere.
            let relief = shortage.choose(holding.collect(), &Sums::default());
            let is_enough = relief.is_enough;
            let chosen: Vec<_> = (relief.chosen.into_iter())
                .map(|(slot, state)| (Arc::clone(slot), state))
                .collect();
            for (slot, state) in chosen {
                if self.evict(&slot, state, CloseReason::Memory) {
                    freed += bytes(&slot);
                }
            }
            self.look_after = Millis(now.0 + LOOK_MS);
            self.looked_at = match is_enough {
                true => MemoryPressure::Idle, // what is short after this has become so again
                false => pressure,
            };
        }
        freed >= memory.excess_bytes(MemoryPressure::Full)
    }

    /// Evicts the connection that is idle the longest; `false`: none is.
    fn evict_idle(&mut self) -> bool {
        self.evict_first(|_, state| (IDLE..SERVED).contains(&state))
    }

    /// Evicts a connection of this client, an idle one or any; `false`: it has none.
    fn evict_of(&mut self, client: ClientKey, only_idle: bool) -> bool {
        // One that does not wait ends when it next does: its thread is one too many until then.
        let last = match only_idle {
            true => SERVED - 1,
            false if self.leaving < EVICTIONS_MAX => BUSY,
            false => SERVED,
        };
        let first = if only_idle { IDLE } else { 0 };
        self.evict_first(|slot, state| slot.counted() == client && (first..=last).contains(&state))
    }

    /// Evicts the first one to give up of those that may.
    ///
    /// Looks at each slot, some ns: little beside starting the thread of the new connection.
    fn evict_first(&mut self, may_go: impl Fn(&Slot, u64) -> bool) -> bool {
        let mut least = 0;
        loop {
            let candidates = self.all().map(|slot| (slot.state(), slot));
            let candidates =
                candidates.filter(|(state, slot)| *state >= least && may_go(slot, *state));
            let Some((state, slot)) = candidates.min_by_key(|(state, _)| *state) else {
                return false;
            };
            let slot = Arc::clone(slot);
            let reason = match occupation_of(state) {
                Occupation::Idle(_) => CloseReason::Evicted,
                Occupation::Slow(_) | Occupation::Served => CloseReason::OverShare,
            };
            if self.evict(&slot, state, reason) {
                return true;
            }
            if slot.state() == state {
                least = state + 1; // it has got a request just now
            }
        }
    }

    fn evict(&mut self, slot: &Slot, state: u64, reason: CloseReason) -> bool {
        let is_idle = matches!(occupation_of(state), Occupation::Idle(_));
        let has_request = is_idle && socket::has_input(slot.accepted.socket.as_fd());
        let is_evicted = !has_request && slot.evict(state, reason);
        if is_evicted {
            self.leaving += 1;
            self.refusals -= usize::from(slot.is_refused);
            slot.count_for(ClientKey::NOBODY);
        }
        is_evicted
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let slots = &self.occupied;
        (0..slots.slot_count()).filter_map(|index| slots.get(slots.token_at(index)?))
    }

    fn enter(&self, client: ClientKey) {
        if let Some(holdings) = &self.holdings {
            holdings.enter(client);
        }
    }

    fn leave(&self, client: ClientKey) {
        if let Some(holdings) = &self.holdings {
            holdings.leave(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A connection that holds this much until its client has done something.
    fn holding(slots: &mut Slots, client: u8, bytes: u64) -> Arc<Slot> {
        let client = ClientKey::of([192, 0, 2, client].into());
        let (socket, _peer) = UnixStream::pair().unwrap();
        let accepted = Accepted {
            socket: socket.into(),
            peer: None,
            listener: 0,
        };
        let (_, slot) = slots.insert(accepted, client, false);
        let now = Millis(5);
        assert!(slot.rest(&Resting {
            now,
            deadline: None,
            occupation: Occupation::Slow(now),
            proxied_client: None,
            bytes,
        }));
        slot
    }

    /// A look that had found nothing to evict put the next one off for 10 ms: whoever held more then was closed.
    #[test]
    fn memory_that_runs_shorter_is_looked_at_at_once() {
        const PART: u64 = 1 << 20;
        let now = Millis(5);
        let memory = MemoryBudget::new(Some(32 * PART));
        let mut slots = Slots::new(true);
        let holders = [0; 8].map(|_| holding(&mut slots, 1, PART));
        let quiet = holding(&mut slots, 2, 10_000);
        let evicted = || holders.iter().filter(|slot| slot.is_evicted()).count();
        memory.reserve(28 * PART);
        slots.relieve(&memory, now);
        assert_eq!(evicted(), 0, "nobody is idle");
        memory.reserve(2 * PART);
        slots.relieve(&memory, now);
        assert_eq!(evicted(), 2);
        memory.reserve(PART);
        assert!(slots.relieve(&memory, now));
        assert_eq!(evicted(), 3, "those that were evicted are still there");
        assert!(!quiet.is_evicted());
    }

    /// One that is refused, and then evicted for memory, is counted once: the next one is served.
    #[test]
    fn a_connection_that_is_refused_may_be_evicted_for_memory() {
        let now = Millis(5);
        let new = New {
            client: ClientKey::NOBODY,
            is_last_descriptor: false,
            is_memory_full: false,
            is_draining: false,
            now,
        };
        let memory = MemoryBudget::new(Some(64 << 20));
        let mut slots = Slots::new(true);
        let (socket, _peer) = UnixStream::pair().unwrap();
        let accepted = Accepted {
            socket: socket.into(),
            peer: None,
            listener: 0,
        };
        let (token, slot) = slots.insert(accepted, ClientKey::NOBODY, true);
        assert!(slot.rest(&Resting {
            now,
            deadline: None,
            occupation: Occupation::Slow(now),
            proxied_client: None,
            bytes: 10_000,
        }));
        memory.reserve(64 << 20);
        slots.relieve(&memory, now);
        assert_eq!(slot.has_lost(), Some(CloseReason::Memory));
        let verdict = slots.decide(Admission::new(1), new).verdict;
        assert_eq!(verdict, Verdict::Admit);
        slots.remove(token);
        assert_eq!((slots.leaving, slots.refusals), (0, 0));
    }
}
