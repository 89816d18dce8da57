//! Connections on threads of their own, of which the idle ones may have to make room.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_base::slab::Slab;
use loadline_base::{Millis, Token};
use loadline_sys::{Accepted, socket};

use crate::connection_thread::Hold;

/// A connection that the accepting thread may evict while it is idle.
pub(crate) struct Slot {
    pub(crate) accepted: Accepted,
    /// Since when it has been idle, in ms, or has held memory (`HOLDING`); or one of the two below. The
    /// thread that changes it from there, by one atomic step, decides: the thread goes on, or the
    /// connection ends.
    idle_since: AtomicU64,
}

/// Beside the time: it is not idle, and waits for its client.
const HOLDING: u64 = 1 << 62;
/// Neither.
const BUSY: u64 = u64::MAX - 1;
/// Evicted: nothing comes after it.
const EVICTED: u64 = u64::MAX;

impl Slot {
    pub(crate) fn new(accepted: Accepted) -> Arc<Self> {
        Arc::new(Self {
            accepted,
            idle_since: AtomicU64::new(BUSY),
        })
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.idle_since.load(Ordering::Relaxed) == EVICTED
    }

    fn evict(&self, since: u64) -> bool {
        let (order, state) = (Ordering::AcqRel, &self.idle_since);
        let won = state
            .compare_exchange(since, EVICTED, order, Ordering::Relaxed)
            .is_ok();
        if won {
            socket::cut(self.accepted.socket.as_fd()); // wakes its thread
        }
        won
    }
}

impl Hold for Slot {
    const GIVES_BACK: bool = false;

    fn rest(&self, now: Millis, _deadline: Option<Millis>) -> bool {
        self.idle_since.store(now.0, Ordering::Release);
        true
    }

    fn rest_holding(&self, since: Millis, _deadline: Option<Millis>) -> bool {
        self.idle_since.store(HOLDING | since.0, Ordering::Release);
        true
    }

    fn resume(&self) -> bool {
        let (order, state) = (Ordering::AcqRel, &self.idle_since);
        state.fetch_max(BUSY, order) != EVICTED
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.accepted.socket.as_fd())
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct IdleSlots(Slab<Arc<Slot>>);

impl IdleSlots {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn insert(&mut self, slot: &Arc<Slot>) -> Token {
        self.0.insert(Arc::clone(slot))
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Arc<Slot>> {
        self.0.remove(token)
    }

    /// Evicts those that have held memory longest while they wait for their clients, up to this many;
    /// says how many.
    pub(crate) fn evict_holding(&self, count_max: usize) -> usize {
        let slots =
            (0..self.0.slot_count()).filter_map(|index| self.0.get(self.0.token_at(index)?));
        let since = slots.map(|slot| (slot.idle_since.load(Ordering::Relaxed), slot));
        let mut holding: Vec<_> = since
            .filter(|(since, _)| (HOLDING..BUSY).contains(since))
            .collect();
        holding.sort_by_key(|(since, _)| *since);
        let evicted = holding.iter().filter(|(since, slot)| slot.evict(*since));
        evicted.take(count_max).count()
    }

    /// Evicts the connection that is idle the longest, since `latest` at least; `false`: none is.
    ///
    /// Looks at each slot, some ns: little beside starting the thread of the new connection.
    pub(crate) fn evict_oldest(&self, latest: Millis) -> bool {
        let mut least = 0;
        loop {
            let oldest = (0..self.0.slot_count())
                .filter_map(|index| self.0.get(self.0.token_at(index)?))
                .map(|slot| (slot.idle_since.load(Ordering::Relaxed), slot))
                .filter(|(since, _)| (least..HOLDING).contains(since) && *since <= latest.0)
                .min_by_key(|(since, _)| *since);
            let Some((since, slot)) = oldest else {
                return false;
            };
            // It may have got a request just now: then it stays, and another one is looked for.
            if !socket::has_input(slot.accepted.socket.as_fd()) && slot.evict(since) {
                return true;
            }
            least = since + 1;
        }
    }
}
