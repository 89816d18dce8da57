//! How often something may be tried: some times freely, then after waits that double.
//!
//! A try is counted when it begins, so that many at the same moment are no way around the limit, and
//! given back if it turns out well. What is counted is kept in memory, of a bounded number of keys, and
//! is forgotten at a restart; several servers on one database count each for itself.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many tries there are, and how long the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// Failed tries without any wait.
    pub free: u32,
    /// The wait after the last of them; each further one doubles it.
    pub delay_first: Duration,
    /// The longest wait.
    pub delay_max: Duration,
    /// After so long without a try (and without a wait) all is forgotten.
    pub forgotten_after: Duration,
}

impl Tries {
    /// The wait after `failed` tries, in milliseconds.
    fn delay_ms(&self, failed: u32) -> i64 {
        let Some(doublings) = failed.checked_sub(self.free) else {
            return 0;
        };
        let first = self.delay_first.as_millis();
        let delay = first.saturating_mul(1_u128 << doublings.min(63));
        as_ms(delay.min(self.delay_max.as_millis()))
    }
}

/// Tries by key.
#[derive(Debug)]
pub(crate) struct Throttle<K> {
    tries: Tries,
    entries_max: usize,
    entries: Mutex<HashMap<K, Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failed: u32,
    last_ms: i64,
    blocked_until_ms: i64,
}

impl<K: Clone + Eq + Hash> Throttle<K> {
    pub(crate) fn new(tries: Tries, entries_max: usize) -> Self {
        Self {
            tries,
            entries_max: entries_max.max(1),
            entries: Mutex::default(),
        }
    }

    /// Begins a try; it counts as failed until it is given back.
    ///
    /// # Errors
    /// There is a wait left, which is returned; then nothing was counted.
    pub(crate) fn begin(&self, key: &K, now_ms: i64) -> Result<(), Duration> {
        let mut entries = self.lock();
        if entries.len() >= self.entries_max && !entries.contains_key(key) {
            let is_over = |entry: &mut Entry| {
                self.clamp(entry, now_ms);
                self.is_forgotten(entry, now_ms)
            };
            make_room(&mut entries, self.entries_max, is_over, |entry| {
                entry.last_ms
            });
        }
        let entry = entries.entry(key.clone()).or_insert(Entry {
            failed: 0,
            last_ms: now_ms,
            blocked_until_ms: now_ms,
        });
        self.clamp(entry, now_ms);
        if self.is_forgotten(entry, now_ms) {
            entry.failed = 0;
        }
        if let Ok(left) = u64::try_from(entry.blocked_until_ms - now_ms)
            && left > 0
        {
            return Err(Duration::from_millis(left));
        }
        entry.failed = entry.failed.saturating_add(1);
        entry.last_ms = now_ms;
        entry.blocked_until_ms = now_ms.saturating_add(self.tries.delay_ms(entry.failed));
        Ok(())
    }

    /// A try was none: it failed for another reason, or did not fail.
    pub(crate) fn give_back(&self, key: &K) {
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(key) {
            entry.failed = entry.failed.saturating_sub(1);
            entry.blocked_until_ms = entry
                .last_ms
                .saturating_add(self.tries.delay_ms(entry.failed));
            if entry.failed == 0 {
                entries.remove(key);
            }
        }
    }

    /// A try was right: failures before that no longer count.
    pub(crate) fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    /// The clock may have been set back: nothing lies in the future, and no wait is longer than it was.
    fn clamp(&self, entry: &mut Entry, now_ms: i64) {
        entry.last_ms = entry.last_ms.min(now_ms);
        let until_ms = now_ms.saturating_add(self.tries.delay_ms(entry.failed));
        entry.blocked_until_ms = entry.blocked_until_ms.min(until_ms);
    }

    fn is_forgotten(&self, entry: &Entry, now_ms: i64) -> bool {
        let since = entry.last_ms.max(entry.blocked_until_ms);
        now_ms.saturating_sub(since) >= as_ms(self.tries.forgotten_after.as_millis())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner) // counts are never half written
    }
}

/// Drops what is over, or else an eighth of all: those with the lowest rank.
pub(crate) fn make_room<K: Eq + Hash, E>(
    entries: &mut HashMap<K, E>,
    entries_max: usize,
    mut is_over: impl FnMut(&mut E) -> bool,
    rank: impl Fn(&E) -> i64,
) {
    entries.retain(|_, entry| !is_over(entry));
    if entries.len() < entries_max {
        return;
    }
    let mut ranks: Vec<i64> = entries.values().map(&rank).collect();
    let share = (ranks.len() / 8).max(1);
    let (_, last, _) = ranks.select_nth_unstable(share - 1);
    let (last, mut left) = (*last, share);
    entries.retain(|_, entry| {
        let goes = left > 0 && rank(entry) <= last;
        left -= usize::from(goes);
        !goes
    });
}

pub(crate) fn as_ms(ms: u128) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIES: Tries = Tries {
        free: 3,
        delay_first: Duration::from_secs(1),
        delay_max: Duration::from_secs(5),
        forgotten_after: Duration::from_secs(60),
    };

    fn throttle() -> Throttle<&'static str> {
        Throttle::new(TRIES, 4)
    }

    #[test]
    fn free_tries_then_waits_that_double_up_to_the_longest() {
        let throttle = throttle();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            while let Err(left) = throttle.begin(&"a", now) {
                waits.push(left.as_secs());
                now += as_ms(left.as_millis());
            }
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
    }

    #[test]
    fn many_tries_at_one_moment_are_no_more_than_the_free_ones() {
        let throttle = throttle();
        let passed = (0..100).filter(|_| throttle.begin(&"a", 7).is_ok()).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn a_try_that_is_given_back_was_none_and_one_key_is_not_the_other() {
        let throttle = throttle();
        for _ in 0..50 {
            throttle.begin(&"a", 0).unwrap();
            throttle.give_back(&"a");
        }
        for _ in 0..3 {
            throttle.begin(&"a", 0).unwrap();
        }
        throttle.begin(&"a", 0).unwrap_err();
        throttle.give_back(&"a");
        throttle.begin(&"a", 0).unwrap();
        throttle.begin(&"b", 0).unwrap();
        throttle.forget(&"a");
        throttle.begin(&"a", 0).unwrap();
    }

    #[test]
    fn what_lies_back_is_forgotten() {
        let throttle = throttle();
        for _ in 0..3 {
            throttle.begin(&"a", 0).unwrap();
        }
        assert_eq!(throttle.begin(&"a", 999), Err(Duration::from_millis(1)));
        for _ in 0..3 {
            throttle.begin(&"a", 61_000).unwrap();
        }
        throttle.begin(&"a", 61_000).unwrap_err();
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_wait_longer() {
        let throttle = throttle();
        let hour_ms = 3_600_000;
        throttle.begin(&"a", hour_ms).unwrap();
        throttle.begin(&"a", 0).unwrap();
        throttle.begin(&"a", 0).unwrap();
        assert_eq!(throttle.begin(&"a", 0), Err(Duration::from_secs(1)));
        for _ in 0..3 {
            throttle.begin(&"b", hour_ms).unwrap();
        }
        assert_eq!(throttle.begin(&"b", 0), Err(Duration::from_secs(1)));
        throttle.begin(&"b", 1_000).unwrap();
    }

    #[test]
    fn a_full_table_loses_the_least_recent_and_keeps_the_rest() {
        let throttle = throttle();
        for (now, key) in (0..).zip(["a", "b", "c", "d", "e"]) {
            for _ in 0..3 {
                throttle.begin(&key, now).unwrap();
            }
        }
        assert_eq!(throttle.lock().len(), 4);
        throttle.begin(&"b", 5).unwrap_err();
        throttle.begin(&"a", 5).unwrap(); // the one that had to go
    }
}
