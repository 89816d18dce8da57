//! What counts towards the memory budget of a server, and how much of it is freed at once when it runs
//! short.
//!
//! A connection is measured when it is put aside, and not while a thread works for it: so a small request
//! changes nothing but a number of its own thread.

use loadline_base::{MemoryAccount, MemoryPressure, Millis};

use crate::options::Architecture;
use crate::telemetry::counters::Role;

/// What a connection takes besides its buffers: its slot and its place in lists, some 400 bytes, and
/// what the kernel keeps of an idle socket (`sock`, `socket`, `file`, `dentry`, `epitem`), some 3.5 KiB.
const CONNECTION_BYTES: u64 = 4 << 10;

/// What a loop takes: the buffer that it reads into, and spare buffers, requests and lines of the log.
const LOOP_BYTES: u64 = 1 << 20;

/// Receive buffers of a ring, and of files that it reads ahead.
const RING_BYTES: u64 = 2 << 20;

/// What of a thread's stack is in use, with what the allocator keeps for it.
const THREAD_BYTES: u64 = 32 << 10;

/// Idle connections are closed if they have been idle for so long: the next request of a client that is
/// at work may be on its way.
const IDLE_MIN_MS: u64 = 1000;

/// Idle connections that are closed in one turn: 64 take some 200 us.
pub(crate) const IDLE_CLOSES_MAX: usize = 64;

/// Connections on threads of their own that are closed at once.
pub(crate) const THREAD_CLOSES_MAX: usize = 16;

/// What a thread takes, with a read buffer of this size.
pub(crate) fn thread_bytes(role: Role, architecture: Architecture, read_buffer: usize) -> u64 {
    let own = match role {
        Role::Loop if architecture == Architecture::Proactor => LOOP_BYTES + RING_BYTES,
        Role::Loop => LOOP_BYTES,
        Role::Acceptor | Role::Worker | Role::Thread => THREAD_BYTES,
    };
    own + read_buffer as u64
}

/// Whether a connection that has been idle since then may be closed for its memory.
pub(crate) fn latest_idle(now: Millis) -> Millis {
    Millis(now.0.saturating_sub(IDLE_MIN_MS))
}

/// What a connection is counted with, in one byte: a size class, eight to a power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint(u8);

/// The bytes of the first class that is not empty, in eighths.
const EIGHTH_BYTES: u64 = 64;

impl Footprint {
    const IDLE: Self = Self::of(CONNECTION_BYTES);

    /// The smallest class that holds this much.
    #[inline]
    const fn of(bytes: u64) -> Self {
        let eighths = bytes.div_ceil(EIGHTH_BYTES);
        let power = match eighths {
            0..=8 => return Self((eighths > 0) as u8),
            _ => (eighths - 1).ilog2() - 3,
        };
        let class = 8 * power as u64 + eighths.div_ceil(1 << power) - 7;
        Self(if class > 255 { 255 } else { class as u8 })
    }

    /// The connection holds this much now, and has held memory since `since` if it held any before.
    /// `true`: it is time to look at the pressure.
    #[inline]
    pub(crate) fn note(
        &mut self,
        held_bytes: usize,
        since: &mut Millis,
        now: Millis,
        memory: &mut MemoryAccount,
    ) -> bool {
        let noted = Self::of(CONNECTION_BYTES + held_bytes as u64);
        if noted == *self {
            return false;
        }
        if !self.is_holding() && noted.is_holding() {
            *since = now;
        }
        let before = std::mem::replace(self, noted);
        memory.change(before.bytes(), noted.bytes())
    }

    /// The connection is gone.
    pub(crate) fn release(&mut self, memory: &mut MemoryAccount) {
        memory.change(std::mem::take(self).bytes(), 0);
    }

    /// Whether it holds more than it would if it were idle.
    #[inline]
    pub(crate) fn is_holding(self) -> bool {
        self.0 > Self::IDLE.0
    }

    /// What its end would free.
    pub(crate) fn bytes(self) -> u64 {
        match u64::from(self.0) {
            0 => 0,
            class => ((8 + (class - 1) % 8) * EIGHTH_BYTES) << ((class - 1) / 8),
        }
    }
}

/// How many idle connections a loop closes now.
pub(crate) fn idle_closes(memory: &MemoryAccount) -> usize {
    let excess = memory.share_of_excess(MemoryPressure::Idle);
    let count = excess.div_ceil(CONNECTION_BYTES);
    usize::try_from(count)
        .unwrap_or(usize::MAX)
        .min(IDLE_CLOSES_MAX)
}

/// A connection that holds memory while it waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding<T> {
    pub(crate) since: Millis,
    pub(crate) bytes: u64,
    pub(crate) connection: T,
}

/// Those whose end frees this much: who has held memory longest goes first.
pub(crate) fn longest_holding<T>(mut all: Vec<Holding<T>>, goal_bytes: u64) -> Vec<T> {
    all.sort_by_key(|it| it.since.0);
    let mut freed = 0;
    let is_needed = |it: &Holding<T>| {
        let is_needed = freed < goal_bytes;
        freed += it.bytes;
        is_needed
    };
    let needed = all.into_iter().take_while(is_needed);
    needed.map(|it| it.connection).collect()
}

#[cfg(test)]
mod tests {
    use loadline_base::MemoryBudget;

    use super::*;

    #[test]
    fn a_size_class_holds_what_it_is_for_and_an_eighth_more_at_most() {
        assert_eq!(Footprint::of(0).bytes(), 0);
        assert_eq!(Footprint::IDLE.bytes(), CONNECTION_BYTES);
        let mut last = Footprint::default();
        for bytes in (512..100_000).chain((100_000..1 << 40).step_by(987_654_321)) {
            let class = Footprint::of(bytes);
            assert!(class.bytes() >= bytes, "{bytes}");
            assert!(class.bytes() * 8 <= bytes * 9 + 8 * EIGHTH_BYTES, "{bytes}");
            assert!(class.0 >= last.0);
            last = class;
        }
        assert!(Footprint::of(u64::MAX).bytes() > 1 << 40);
    }

    #[test]
    fn a_connection_is_counted_once_and_goes_with_its_end() {
        let budget = MemoryBudget::new(Some(64 << 20));
        let mut memory = MemoryAccount::of_one(&budget);
        let (mut footprint, mut since) = (Footprint::default(), Millis(0));
        let mut note = |held_bytes, now| {
            let is_short = footprint.note(held_bytes, &mut since, Millis(now), &mut memory);
            (
                is_short,
                footprint.is_holding(),
                since.0,
                budget.used_bytes(),
            )
        };
        assert_eq!(note(0, 5), (true, false, 0, 4096), "the first takes credit");
        let (_, is_holding, since_ms, used) = note(100_000, 7);
        assert!(is_holding && used > 100_000);
        assert_eq!(since_ms, 7);
        assert_eq!(note(200_000, 8).2, 7, "since it has grown first");
        assert!(!note(0, 9).1);
        assert_eq!(note(600, 10).2, 10);
        footprint.release(&mut memory);
        drop(memory);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn who_has_held_memory_longest_goes_first_and_no_more_than_needed() {
        let holding = |since, connection| Holding {
            since: Millis(since),
            bytes: 100,
            connection,
        };
        let longest = |goal_bytes| {
            let all = vec![holding(30, "c"), holding(10, "a"), holding(20, "b")];
            longest_holding(all, goal_bytes)
        };
        assert!(longest(0).is_empty());
        assert_eq!(longest(1), ["a"]);
        assert_eq!(longest(101), ["a", "b"]);
        assert_eq!(longest(u64::MAX), ["a", "b", "c"]);
    }

    #[test]
    fn idle_connections_are_closed_by_the_excess() {
        let budget = MemoryBudget::new(Some(32 << 20));
        let mut memory = MemoryAccount::of_many(&budget);
        memory.change(0, 27 << 20);
        assert_eq!(idle_closes(&memory), 0);
        memory.change(0, (1 << 20) + (8 << 10));
        assert!((1..=20).contains(&idle_closes(&memory)));
        memory.change(0, 2 << 20);
        assert_eq!(idle_closes(&memory), IDLE_CLOSES_MAX);
    }
}
