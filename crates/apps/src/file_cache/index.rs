//! A thread's own index: found by the path as it came, without a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;

use super::{CacheLimits, Weighty};

/// The space that the indexes of all threads share out among themselves.
#[derive(Debug)]
pub(crate) struct IndexSpace {
    weight_max: u64,
    indexes: AtomicUsize,
}

impl IndexSpace {
    pub(crate) fn new(limits: &CacheLimits) -> Self {
        Self {
            weight_max: limits.weight_max(),
            indexes: AtomicUsize::new(0),
        }
    }

    fn share(&self) -> u64 {
        self.weight_max / self.indexes.load(Ordering::Relaxed).max(1) as u64
    }
}

/// Entries in two generations. A hit in the young one writes nothing. When the young one is full,
/// it becomes the old one and the old one goes: so what has not been asked for while half the space
/// was filled is forgotten.
#[derive(Debug)]
pub(crate) struct Index<E> {
    space: Arc<IndexSpace>,
    young: HashMap<Box<[u8]>, Arc<E>, RandomState>,
    young_weight: u64,
    old: HashMap<Box<[u8]>, Arc<E>, RandomState>,
}

impl<E: Weighty> Index<E> {
    /// An empty index; takes no memory until something is put in.
    pub(crate) fn new(space: &Arc<IndexSpace>) -> Self {
        space.indexes.fetch_add(1, Ordering::Relaxed);
        Self {
            space: Arc::clone(space),
            young: HashMap::default(),
            young_weight: 0,
            old: HashMap::default(),
        }
    }

    /// Looks `path` up among the young.
    #[inline]
    pub(crate) fn find(&self, path: &[u8]) -> Option<&Arc<E>> {
        self.young.get(path)
    }

    /// Looks `path` up among the old, and makes it young again.
    pub(crate) fn revive(&mut self, path: &[u8]) -> Option<&Arc<E>> {
        let (path, entry) = self.old.remove_entry(path)?;
        self.put(path, entry)
    }

    /// Puts `entry` in for `path`.
    pub(crate) fn insert(&mut self, path: &[u8], entry: &Arc<E>) {
        self.old.remove(path);
        self.put(path.into(), Arc::clone(entry));
    }

    /// Forgets `path`.
    pub(crate) fn remove(&mut self, path: &[u8]) {
        self.old.remove(path);
        if let Some(entry) = self.young.remove(path) {
            self.young_weight -= entry.weight();
        }
    }

    fn put(&mut self, path: Box<[u8]>, entry: Arc<E>) -> Option<&Arc<E>> {
        let weight = entry.weight();
        let generation_max = self.space.share() / 2;
        if let Some(replaced) = self.young.remove(&path) {
            self.young_weight -= replaced.weight();
        }
        if self.young_weight.saturating_add(weight) > generation_max {
            // The old generation's table is kept, empty, for the next young one.
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            self.young_weight = 0;
        }
        if weight > generation_max {
            return None;
        }
        self.young_weight += weight;
        Some(self.young.entry(path).or_insert(entry))
    }
}

impl<E> Drop for Index<E> {
    fn drop(&mut self) {
        self.space.indexes.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u64);

    impl Weighty for Thing {
        fn weight(&self) -> u64 {
            self.0
        }
    }

    fn space(weight_max: usize) -> Arc<IndexSpace> {
        Arc::new(IndexSpace::new(&CacheLimits {
            bytes_max: weight_max * 2,
            ..CacheLimits::default()
        }))
    }

    fn held(index: &Index<Thing>) -> u64 {
        index
            .young
            .values()
            .chain(index.old.values())
            .map(|thing| thing.0)
            .sum()
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut index = Index::new(&space(100));
        index.insert(b"/hot", &Arc::new(Thing(10)));
        for number in 0..1000 {
            let path = format!("/{number}");
            index.insert(path.as_bytes(), &Arc::new(Thing(10)));
            if index.find(b"/hot").is_none() {
                assert!(index.revive(b"/hot").is_some(), "after {number}");
            }
            assert!(held(&index) <= 100);
        }
        assert!(index.find(b"/0").is_none() && index.revive(b"/0").is_none());
    }

    #[test]
    fn one_path_counts_once() {
        let mut index = Index::new(&space(100));
        for _ in 0..100 {
            index.insert(b"/a", &Arc::new(Thing(40)));
        }
        assert_eq!((held(&index), index.young_weight), (40, 40));
        index.remove(b"/a");
        assert_eq!((held(&index), index.young_weight), (0, 0));
    }

    #[test]
    fn what_is_too_heavy_is_not_kept() {
        let mut index = Index::new(&space(100));
        index.insert(b"/a", &Arc::new(Thing(51)));
        assert_eq!(held(&index), 0);
    }

    #[test]
    fn threads_share_the_space_and_give_it_back() {
        let space = space(100);
        let indexes: Vec<Index<Thing>> = (0..4).map(|_| Index::new(&space)).collect();
        assert_eq!(space.share(), 25);
        drop(indexes);
        assert_eq!(space.share(), 100);
    }
}
