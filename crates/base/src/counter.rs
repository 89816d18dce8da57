//! A counter with one writer and any number of readers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts events of one thread, readable from every other.
///
/// Only the owning thread may add: an addition is a plain load and store, without the lock prefix
/// that an atomic addition costs.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; to be called by the owning thread only.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Puts `n` in its place; to be called by the owning thread only.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Takes `n` away; to be called by the owning thread only. For gauges.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(n),
            Ordering::Relaxed,
        );
    }

    /// The count as last seen by this thread.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
