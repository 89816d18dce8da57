//! What the loops of a reactor know of each other: mailboxes, loads, the cap they share.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadline_base::{MemoryBudget, MemoryPressure, Millis};

use crate::accept::adaptive::Adaptive;
use crate::accept::balance::{self, Load};
use crate::admission::{Admission, EVICTIONS_MAX, Handoff, Kind, Load as Pressure, Verdict};
use crate::fairness::{ClientKey, Holdings};
use crate::memory::Ledger;
use crate::options::{Balance, ServerOptions};
use crate::worker::job::{Message, Moving};
use crate::worker::mailbox::Mailbox;

/// Clients that owe room, each as often as it does: as many connections may be over the cap.
const OWED_MAX: usize = 2 * EVICTIONS_MAX;

/// The loops of a reactor, seen from each other and from the main loop.
pub(crate) struct LoopGroup {
    loops: Box<[LoopHandle]>,
    /// Connections of the whole server, without those that are only refused.
    connections: AtomicUsize,
    /// Connections to be refused that are on their way to a loop.
    refusals: AtomicUsize,
    admission: Admission,
    /// Connections by client; `None`: clients are not looked at.
    holdings: Option<Holdings>,
    /// Clients that had no connection to be closed for another client's new one, since workers had theirs: the
    /// next ones that workers give back are closed.
    owing: Mutex<Vec<ClientKey>>,
    /// There are some, about.
    is_room_owed: AtomicBool,
    memory: Arc<MemoryBudget>,
    /// What clients hold at each loop, while memory is short.
    ledger: Ledger,
    /// `--balance adaptive`, if there is more than one loop.
    adaptive: Option<Adaptive>,
    /// Threads that may still pass connections on: no loop ends before they have all stopped.
    senders: AtomicUsize,
}

/// A new connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct New {
    /// The loop that would take it.
    pub(super) preferred: usize,
    pub(super) client: ClientKey,
    pub(super) is_last_descriptor: bool,
    pub(super) is_draining: bool,
    /// There is no memory for it.
    pub(super) is_memory_full: bool,
    pub(super) now: Millis,
}

/// One loop, seen from outside.
pub(super) struct LoopHandle {
    pub(super) mailbox: Arc<Mailbox<Message>>,
    pub(super) load: Load,
}

impl LoopGroup {
    pub(crate) fn new(
        options: &ServerOptions,
        senders: usize,
        memory: &Arc<MemoryBudget>,
    ) -> io::Result<Arc<Self>> {
        let handle = |_| {
            Ok(LoopHandle {
                mailbox: Arc::new(Mailbox::new()?),
                load: Load::default(),
            })
        };
        let is_adaptive = options.balance == Balance::Adaptive && options.loops > 1;
        Ok(Arc::new(Self {
            loops: (0..options.loops).map(handle).collect::<io::Result<_>>()?,
            connections: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            admission: Admission::new(options.connections_max),
            holdings: options.fairness.then(Holdings::default),
            owing: Mutex::default(),
            is_room_owed: AtomicBool::new(false),
            memory: Arc::clone(memory),
            ledger: Ledger::new(options.loops),
            adaptive: is_adaptive.then(|| Adaptive::new(options.loops)),
            senders: AtomicUsize::new(senders),
        }))
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn loops(&self) -> &[LoopHandle] {
        &self.loops
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn adaptive(&self) -> Option<&Adaptive> {
        self.adaptive.as_ref()
    }

    /// The loop for a new connection that `own` has accepted from a listener that all share: `own`,
    /// unless it has noticeably more connections than another. Wake-ups alone do not spread them:
    /// the kernel wakes the loop that went to sleep last, so under little load one gets them all.
    pub(super) fn share(&self, own: usize) -> usize {
        if let Some(other) = self.adaptive().and_then(|it| it.place_elsewhere(own)) {
            return other;
        }
        let connections = |index: usize| {
            let load = &self.loops[index].load;
            load.connections.load(Ordering::Relaxed)
        };
        let fewest = (0..self.loops.len()).min_by_key(|index| connections(*index));
        match fewest {
            Some(fewest) if connections(own) > share_limit(connections(fewest)) => fewest,
            _ => own,
        }
    }

    /// Whether there is no memory for another connection.
    pub(super) fn is_memory_full(&self) -> bool {
        self.memory.pressure() == MemoryPressure::Full
    }

    /// Decides on a new connection and counts it in, unless it is refused. Says which loop takes it:
    /// the preferred one, or the one with the oldest idle connection if that has to be closed. `Drop`: no
    /// other loop does.
    pub(super) fn place(&self, new: New) -> (usize, Verdict) {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed);
        if let Some(holdings) = &self.holdings {
            holdings.enter(new.client);
        }
        let mut pressure = Pressure {
            connections,
            refusals: self.refusals.load(Ordering::Relaxed),
            is_last_descriptor: new.is_last_descriptor,
            is_draining: new.is_draining,
            is_memory_full: new.is_memory_full,
            ..Pressure::default()
        };
        let verdict = self.admission.decide(Kind::Connection, &pressure);
        if verdict == Verdict::Admit {
            return (new.preferred, verdict);
        }
        let oldest = self.oldest_idle();
        pressure.has_idle = oldest.is_some();
        let share = |holdings: &Holdings| holdings.share(new.client, new.now);
        pressure.share = self.holdings.as_ref().map(share).unwrap_or_default();
        match (self.admission.decide(Kind::Connection, &pressure), oldest) {
            (Verdict::EvictIdle, Some(index)) => (index, Verdict::EvictIdle),
            (verdict @ Verdict::EvictOf { .. }, _) => (new.preferred, verdict),
            (verdict, _) => {
                self.leave(new.client);
                (new.preferred, verdict)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn enter(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection out.
    pub(super) fn leave(&self, client: ClientKey) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(holdings) = &self.holdings {
            holdings.leave(client);
        }
        if self.is_room_owed() {
            drop(self.lock_owing()); // is room still owed?
        }
    }

    fn is_over_cap(&self) -> bool {
        let connections = self.connections.load(Ordering::Relaxed);
        self.admission.is_over_cap(connections)
    }

    /// The next connection of this client that a worker gives back is to be closed, for one that is let in over
    /// the cap; `false`: none is over the cap.
    pub(super) fn owe_room(&self, client: ClientKey) -> bool {
        let mut owing = self.lock_owing();
        let is_over_cap = self.is_over_cap();
        if is_over_cap {
            if owing.len() == OWED_MAX {
                owing.remove(0); // that client has none any more, perhaps
            }
            owing.push(client);
            self.is_room_owed.store(true, Ordering::Relaxed);
        }
        is_over_cap
    }

    /// Whether some client owes room, about.
    #[inline]
    pub(super) fn is_room_owed(&self) -> bool {
        self.is_room_owed.load(Ordering::Relaxed)
    }

    /// Whether this client owes room; once less from now on.
    pub(super) fn take_owed(&self, client: ClientKey) -> bool {
        let mut owing = self.lock_owing();
        let at = owing.iter().position(|it| *it == client);
        if let Some(at) = at {
            owing.remove(at);
        }
        self.is_room_owed
            .store(!owing.is_empty(), Ordering::Relaxed);
        at.is_some()
    }

    /// Who owes room: nobody while no connection is over the cap. That is looked at with the lock held: what is
    /// owed for a connection that is let in meanwhile stays.
    fn lock_owing(&self) -> MutexGuard<'_, Vec<ClientKey>> {
        // Nothing in here panics while it holds the lock.
        let mut owing = self.owing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over_cap() {
            owing.clear();
            self.is_room_owed.store(false, Ordering::Relaxed);
        }
        owing
    }

    /// The loop whose oldest idle connection is idle the longest. `None`: no loop has one that makes room. With
    /// `--fairness off` none does.
    pub(super) fn oldest_idle(&self) -> Option<usize> {
        let may_go = self.holdings.is_some();
        let loads = self.loops.iter().map(|handle| &handle.load);
        may_go.then(|| balance::oldest_idle(loads))?
    }

    /// Sends a new connection to a loop.
    pub(super) fn send(&self, index: usize, handoff: Handoff) {
        let connections = &self.loops[index].load.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        if handoff.verdict == Verdict::Refuse {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        self.post(index, Message::Handoff(handoff));
    }

    /// A loop has taken a new connection out of its mail.
    pub(super) fn received(&self, handoff: &Handoff) {
        if handoff.verdict == Verdict::Refuse {
            self.refusals.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sends a connection from one loop to another.
    pub(super) fn send_moving(&self, index: usize, moving: Moving) {
        let connections = &self.loops[index].load.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        self.post(index, Message::Moving(Box::new(moving)));
    }

    /// Asks a loop to send the connection of this name to another one.
    pub(super) fn order_move(&self, index: usize, name: u64, to: usize) {
        self.post(index, Message::Move { name, to });
    }

    /// Whether a loop can take one connection more.
    pub(super) fn has_room(&self, index: usize, capacity_per_loop: Option<usize>) -> bool {
        let connections = &self.loops[index].load.connections;
        capacity_per_loop.is_none_or(|capacity| connections.load(Ordering::Relaxed) < capacity)
    }

    /// Has the other loops take a turn, in which they see how short memory is.
    pub(super) fn nudge_others(&self, index: usize) {
        let handles = self.loops.iter().enumerate();
        for (_, handle) in handles.filter(|(other, _)| *other != index) {
            handle.mailbox.nudge();
        }
    }

    /// Asks a loop for a descriptor.
    pub(super) fn ask_for_room(&self, index: usize) {
        self.post(index, Message::MakeRoom);
    }

    /// A connection that was counted for one client turns out to be another's: a new configuration
    /// may have come between, or a trusted proxy has sent another request.
    pub(super) fn count_as(&self, counted: ClientKey, client: ClientKey) {
        if let Some(holdings) = self.holdings.as_ref().filter(|_| counted != client) {
            holdings.enter(client);
            holdings.leave(counted);
        }
    }

    /// Asks the loop behind `index` to close a connection of this client, for one that `asking` has let
    /// in; `false`: that is the same.
    pub(super) fn ask_for_room_of(&self, client: ClientKey, index: usize, asking: usize) -> bool {
        let next = (index + 1) % self.loops.len();
        if next == asking {
            return false;
        }
        self.post(next, Message::MakeRoomOf { client, asking });
        true
    }

    fn post(&self, index: usize, message: Message) {
        let handle = &self.loops[index];
        handle.load.under_way.fetch_add(1, Ordering::Relaxed);
        handle.mailbox.post(message);
    }

    /// A thread will pass on no more connections.
    pub(super) fn stops_sending(&self) {
        if self.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            for handle in &self.loops {
                handle.mailbox.nudge();
            }
        }
    }

    /// Whether new connections may still come by mail.
    pub(super) fn is_sending(&self) -> bool {
        self.senders.load(Ordering::SeqCst) > 0
    }
}

/// Connections that a loop may have before it hands new connections to one that has `fewest`: handing
/// over costs a wake-up, so not for a difference that does not matter.
fn share_limit(fewest: usize) -> usize {
    fewest + fewest / 8 + 2
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use loadline_sys::Accepted;

    use super::*;
    use crate::admission::REFUSALS_MAX;

    fn at(preferred: usize) -> New {
        New {
            preferred,
            ..New::default()
        }
    }

    fn group(loops: usize, connections_max: usize, senders: usize) -> Arc<LoopGroup> {
        let options = ServerOptions {
            loops,
            connections_max,
            ..ServerOptions::default()
        };
        LoopGroup::new(&options, senders, &MemoryBudget::new(None)).unwrap()
    }

    #[test]
    fn at_the_cap_the_loop_with_the_oldest_idle_connection_takes_over() {
        let group = group(3, 2, 0);
        assert_eq!(group.place(at(1)), (1, Verdict::Admit));
        assert_eq!(group.place(at(0)), (0, Verdict::Admit));
        assert_eq!(group.place(at(1)), (1, Verdict::Refuse));
        group.loops[0].load.set_oldest_idle(Some(Millis(9)));
        group.loops[2].load.set_oldest_idle(Some(Millis(5)));
        assert_eq!(group.place(at(1)), (2, Verdict::EvictIdle));
        // The refused one was not counted; the one that makes room will count its victim out.
        group.leave(ClientKey::NOBODY);
        group.leave(ClientKey::NOBODY);
        assert_eq!(group.place(at(1)), (1, Verdict::Admit));
    }

    #[test]
    fn without_fairness_no_idle_connection_makes_room() {
        let options = ServerOptions {
            loops: 2,
            connections_max: 1,
            fairness: false,
            ..ServerOptions::default()
        };
        let group = LoopGroup::new(&options, 0, &MemoryBudget::new(None)).unwrap();
        assert_eq!(group.place(at(0)), (0, Verdict::Admit));
        group.loops[1].load.set_oldest_idle(Some(Millis(5)));
        assert_eq!(group.place(at(0)), (0, Verdict::Refuse));
        group.leave(ClientKey::NOBODY);
        let new = New {
            is_last_descriptor: true,
            ..at(0)
        };
        assert_eq!(group.place(new), (0, Verdict::Refuse));
    }

    /// A busy loop had any number of them in its mail.
    #[test]
    fn refused_connections_on_their_way_to_a_loop_are_bounded() {
        let group = group(1, 1, 0);
        assert_eq!(group.place(at(0)), (0, Verdict::Admit));
        for _ in 0..REFUSALS_MAX {
            let (index, verdict) = group.place(at(0));
            assert_eq!(verdict, Verdict::Refuse);
            let (_, server) = UnixStream::pair().unwrap();
            let handoff = Handoff {
                accepted: Accepted {
                    socket: server.into(),
                    peer: None,
                    listener: 0,
                },
                verdict,
                client: ClientKey::NOBODY,
                tries: 0,
                came_after_us: None,
                is_memory_full: false,
            };
            group.send(index, handoff);
        }
        assert_eq!(group.place(at(0)), (0, Verdict::Drop));
        let mut mail = Vec::new();
        group.loops[0].mailbox.take(&mut mail);
        for message in mail {
            if let Message::Handoff(handoff) = message {
                group.received(&handoff);
            }
        }
        assert_eq!(group.place(at(0)), (0, Verdict::Refuse));
    }

    #[test]
    fn a_loop_with_noticeably_more_connections_hands_newcomers_over() {
        let group = group(3, 1000, 0);
        let set = |index: usize, count| {
            let connections = &group.loops[index].load.connections;
            connections.store(count, Ordering::Relaxed);
        };
        for (own, others, taker) in [
            (0, [0, 0], 0),
            (2, [0, 5], 0),
            (3, [5, 0], 2),
            (92, [80, 80], 0),
        ] {
            set(0, own);
            set(1, others[0]);
            set(2, others[1]);
            assert_eq!(group.share(0), taker, "{own} and {others:?}");
        }
        set(0, 93);
        assert_eq!(group.share(0), 1);
    }

    #[test]
    fn a_loop_at_its_capacity_has_no_room_for_connections_of_another() {
        let group = group(2, 10, 2);
        let connections = &group.loops[1].load.connections;
        connections.store(3, Ordering::Relaxed);
        assert!(!group.has_room(1, Some(3)));
        assert!(group.has_room(1, Some(4)) && group.has_room(1, None));
    }

    #[test]
    fn room_is_owed_only_while_connections_are_over_the_cap() {
        let group = group(1, 2, 0);
        let client = ClientKey::of([192, 0, 2, 1].into());
        (0..2).for_each(|_| group.enter());
        assert!(!group.owe_room(client), "none is over the cap");
        (0..2).for_each(|_| group.enter());
        assert!(group.owe_room(client) && group.owe_room(client));
        assert!(!group.take_owed(ClientKey::of([192, 0, 2, 2].into())));
        assert!(group.take_owed(client) && group.is_room_owed());
        group.leave(ClientKey::NOBODY);
        assert!(group.is_room_owed(), "one is over the cap");
        group.leave(ClientKey::NOBODY);
        assert!(!group.is_room_owed() && !group.take_owed(client));
        // Another loop counted one out just before room was owed.
        group.enter();
        assert!(group.owe_room(client));
        group.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(!group.take_owed(client) && !group.is_room_owed());
    }

    /// What they owed was never settled, and the next client owed nothing.
    #[test]
    fn clients_that_have_left_owe_no_room_in_place_of_others() {
        let group = group(1, 2, 0);
        let client = |number: u8| ClientKey::of([192, 0, 2, number].into());
        (0..3).for_each(|_| group.enter());
        assert!((0..OWED_MAX).all(|_| group.owe_room(client(1))));
        assert!(group.owe_room(client(2)));
        assert_eq!(group.lock_owing().len(), OWED_MAX);
        assert!(group.take_owed(client(2)) && group.take_owed(client(1)));
    }

    #[test]
    fn the_last_to_stop_sending_wakes_everybody() {
        let group = group(2, 10, 2);
        group.stops_sending();
        assert!(group.is_sending());
        let mut mailboxes = group.loops.iter().map(|handle| &handle.mailbox);
        assert!(mailboxes.clone().all(|it| it.fall_asleep()));
        group.stops_sending();
        assert!(!group.is_sending());
        assert!(!mailboxes.any(|it| it.fall_asleep()));
    }
}
