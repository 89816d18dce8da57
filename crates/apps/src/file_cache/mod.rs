//! What is kept of files between requests: one cache for all threads, and an index of each
//! thread's own in front of it.
//!
//! Both are bounded by weight. The weight of an entry is its memory plus a share of the whole for
//! being an entry, and one for each descriptor it keeps open: so one number bounds bytes, entries
//! and open files at once. What keeps files open is in the shared cache alone: a thread without requests
//! would never close them.

mod index;
mod shared;

pub(crate) use index::{Index, IndexSpace};
pub(crate) use shared::SharedCache;

/// Shards of the shared cache. More than threads that miss their index at the same moment.
const SHARDS_MAX: usize = 16;

/// The bounds of the cache. Half of the memory and of the entries is for the shared cache, half for the
/// indexes of all threads together, which may hold on to what the shared cache has let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Memory, in bytes; 0 turns the cache off.
    pub bytes_max: usize,
    /// Entries. Each weighs at least `bytes_max / entries_max`.
    pub entries_max: usize,
    /// Files kept open; 0 keeps none. To be derived from the descriptor limit.
    pub open_files_max: usize,
    /// Paths remembered for having nothing behind them; a bound of their own, so that a flood of
    /// them pushes no file out.
    pub misses_max: usize,
}

impl Default for CacheLimits {
    /// 128 MiB in 16,384 entries: the whole of most sites, of 8 KiB a file.
    fn default() -> Self {
        Self {
            bytes_max: 128 << 20,
            entries_max: 16_384,
            open_files_max: 512,
            misses_max: 4096,
        }
    }
}

impl CacheLimits {
    /// Weight of all entries in the shared cache; the same for all indexes together.
    pub(crate) fn weight_max(&self) -> u64 {
        self.bytes_max as u64 / 2
    }

    /// The parts of the shared cache: fewer if one could not take an entry with four files open.
    pub(crate) fn shards(&self) -> usize {
        SHARDS_MAX.min(self.open_files_max / 16).max(1)
    }

    /// The most that an entry of the shared cache weighs; what is heavier is not kept.
    pub(crate) fn entry_weight_max(&self) -> u64 {
        self.weight_max() / self.shards() as u64
    }

    /// What an entry weighs.
    pub(crate) fn weight(&self, bytes: usize, open_files: usize) -> u64 {
        let share = |count_max: usize| match count_max as u64 {
            0 => u64::MAX / 8, // more than there is: never kept
            count => self.weight_max().div_ceil(count),
        };
        let open = match open_files as u64 {
            0 => 0,
            count => share(self.open_files_max).saturating_mul(count),
        };
        share(self.entries_max / 2)
            .saturating_add(bytes as u64)
            .saturating_add(open)
            .min(u64::MAX / 4)
    }
}

/// What can be kept.
pub(crate) trait Weighty {
    /// Its weight by `CacheLimits::weight`; always the same.
    fn weight(&self) -> u64;
}
