//! The cache that all threads share: found by the decoded path.

use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadline_base::Millis;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter, Weighter};

use super::{CacheLimits, SHARDS_MAX, Weighty};

type Kept<K, V, W> = Cache<K, V, W, RandomState, DefaultLifecycle<K, V>>;

/// Entries by decoded path, and paths that have nothing behind them.
pub(crate) struct SharedCache<E> {
    entries: Kept<Box<[u8]>, Arc<E>, ByWeight>,
    /// Until when a miss is taken for granted.
    misses: Kept<Box<[u8]>, Millis, UnitWeighter>,
    /// One for each shard of the entries.
    locks: [Mutex<()>; SHARDS_MAX],
}

/// Entries that had to make room. To be dropped without a lock: closing a file may wait.
pub(crate) type Evicted<E> = [Option<(Box<[u8]>, Arc<E>)>; 2];

#[derive(Clone)]
struct ByWeight;

impl<K: AsRef<[u8]>, E: Weighty> Weighter<K, Arc<E>> for ByWeight {
    fn weight(&self, _key: &K, entry: &Arc<E>) -> u64 {
        entry.weight()
    }
}

impl<E: Weighty> SharedCache<E> {
    pub(crate) fn new(limits: &CacheLimits) -> Self {
        Self {
            entries: bounded(
                limits.entries_max / 2,
                limits.weight_max(),
                limits.shards(),
                ByWeight,
            ),
            misses: bounded(
                limits.misses_max,
                limits.misses_max as u64,
                SHARDS_MAX,
                UnitWeighter,
            ),
            locks: Default::default(),
        }
    }

    /// Whoever looks at what is known of `path` and then changes it holds this meanwhile. Event loops wait
    /// for it, so nothing that waits is done under it.
    pub(crate) fn lock(&self, path: &[u8]) -> MutexGuard<'_, ()> {
        let shard = self.entries.shard_index(path) % SHARDS_MAX;
        self.locks[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, path: &[u8]) -> Option<Arc<E>> {
        self.entries.get(path)
    }

    #[must_use]
    pub(crate) fn insert(&self, path: &[u8], entry: &Arc<E>) -> Evicted<E> {
        self.misses.remove(path);
        let mut evicted = [None, None];
        self.entries
            .insert_with_lifecycle(path.into(), Arc::clone(entry), &mut evicted);
        evicted
    }

    pub(crate) fn remove(&self, path: &[u8]) {
        self.entries.remove(path);
    }

    /// Keeps only the entries that are worth it.
    pub(crate) fn retain(&self, is_kept: impl Fn(&E) -> bool) {
        self.entries.retain(|_, entry| is_kept(entry));
    }

    /// Whether nothing is known to be at `path`.
    pub(crate) fn is_missing(&self, path: &[u8], now: Millis) -> bool {
        self.misses.get(path).is_some_and(|until| now < until)
    }

    /// Notes that nothing is at `path`, and will not be looked for before `until`.
    pub(crate) fn insert_missing(&self, path: &[u8], until: Millis) {
        self.entries.remove(path);
        self.misses.insert(path.into(), until);
    }

    /// Weight of what is kept.
    pub(crate) fn weight(&self) -> u64 {
        self.entries.weight()
    }

    /// Entries and misses that are kept.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.entries.len(), self.misses.len())
    }
}

fn bounded<K, V, W>(items: usize, weight_max: u64, shards: usize, weighter: W) -> Kept<K, V, W>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let options = OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity(items)
        .weight_capacity(weight_max)
        .build()
        .expect("capacities are set");
    Cache::with_options(
        options,
        weighter,
        RandomState::new(),
        DefaultLifecycle::default(),
    )
}
