//! What counts towards the memory budget of a server, and how much of it is freed at once when it runs
//! short.
//!
//! A connection is measured when it is put aside, and not while a thread works for it: so a small request
//! changes nothing but a number of its own thread.

mod ledger;
mod relief;

use loadline_base::MemoryAccount;
use loadline_proto::latency::Histogram;

use crate::options::Architecture;
use crate::telemetry::counters::Role;

pub(crate) use ledger::{Elsewhere, Ledger, Plan, Sums};
pub(crate) use relief::{Holding, Relief, Shortage};

/// What a connection takes besides its buffers: its slot and its place in lists, some 400 bytes, and
/// what the kernel keeps of an idle socket (`sock`, `socket`, `file`, `dentry`, `epitem`), some 3.5 KiB.
const CONNECTION_BYTES: u64 = 4 << 10;

/// What a loop takes: the buffer that it reads into, and spare buffers, requests and lines of the log.
const LOOP_BYTES: u64 = 1 << 20;

/// Receive buffers of a ring, and of files that it reads ahead.
const RING_BYTES: u64 = 2 << 20;

/// What of a thread's stack is in use, with what the allocator keeps for it, and its histograms.
const THREAD_BYTES: u64 = (32 << 10) + HISTOGRAMS_BYTES;

/// Two histograms: how long a thread's jobs took, and how long its requests did (of one listener and mount) or its jobs
/// waited. A thread of a pool that changes its size has all three, which is 752 bytes more.
const HISTOGRAMS_BYTES: u64 = 4 << 10;

const _: () = assert!(2 * size_of::<Histogram>() as u64 <= HISTOGRAMS_BYTES);

/// What a thread takes, with a read buffer of this size.
pub(crate) fn thread_bytes(role: Role, architecture: Architecture, read_buffer: usize) -> u64 {
    let own = match role {
        Role::Loop if architecture == Architecture::Proactor => LOOP_BYTES + RING_BYTES,
        Role::Loop => LOOP_BYTES,
        Role::Acceptor | Role::Worker | Role::Thread => THREAD_BYTES,
    };
    own + read_buffer as u64
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

    /// The connection holds this much now. `true`: it is time to look at the pressure.
    #[inline]
    pub(crate) fn note(&mut self, held_bytes: usize, memory: &mut MemoryAccount) -> bool {
        if held_bytes == 0 && *self == Self::IDLE {
            return false; // between two requests, as before
        }
        let noted = Self::of(CONNECTION_BYTES + held_bytes as u64);
        if noted == *self {
            return false;
        }
        let before = std::mem::replace(self, noted);
        memory.change(before.bytes(), noted.bytes())
    }

    /// The connection is gone.
    pub(crate) fn release(&mut self, memory: &mut MemoryAccount) {
        memory.change(std::mem::take(self).bytes(), 0);
    }

    /// The connection waits for another thread: until that counts it, it has an account of its own. A new one
    /// costs two more writes of what all threads share, so an empty one is used again.
    pub(crate) fn set_apart(
        &mut self,
        memory: &mut MemoryAccount,
        apart: &mut Option<MemoryAccount>,
    ) {
        let apart = apart.get_or_insert_with(|| MemoryAccount::of_one(memory.budget()));
        apart.change(0, self.bytes());
        self.release(memory);
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
        let mut footprint = Footprint::default();
        let mut note = |held_bytes| {
            let is_short = footprint.note(held_bytes, &mut memory);
            (is_short, footprint.is_holding(), budget.used_bytes())
        };
        assert_eq!(note(0), (true, false, 4096), "the first takes credit");
        let (_, is_holding, used) = note(100_000);
        assert!(is_holding && used > 100_000);
        assert!(!note(0).1);
        assert!(note(600).1);
        let used = budget.used_bytes();
        let mut apart = None;
        footprint.set_apart(&mut memory, &mut apart);
        assert_eq!(footprint, Footprint::default());
        assert!(budget.used_bytes() > used);
        drop((memory, apart));
        assert_eq!(budget.used_bytes(), 0);
    }
}
