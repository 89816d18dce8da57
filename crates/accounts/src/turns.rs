//! Turns: some tries of one thing are free, from any source; then they take turns at a rate, in the
//! order of their first try.
//!
//! A source that has to wait gets a turn, which is kept for it: to try at the very moment at which a
//! wait ends is no advantage. Each has one turn at a time, so that the many sources of a busy account
//! wait for each other and not for the one that tries most.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::throttle::{as_ms, make_room};

/// How many turns there are, and how they are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Tries without any wait.
    pub free: u32,
    /// After those there is one in so long; and so long without a try makes one free again.
    pub every: Duration,
    /// Turns further ahead than that are not given: the source has to try again.
    pub ahead_max: Duration,
    /// A turn that is not taken within this time is lost.
    pub kept: Duration,
}

/// Turns by key (of what is tried), for their sources.
#[derive(Debug)]
pub(crate) struct TurnQueue<K, W> {
    turns: Turns,
    entries_max: usize,
    entries: Mutex<HashMap<K, Entry<W>>>,
}

#[derive(Debug)]
struct Entry<W> {
    /// When all free tries are there again, if none is made until then.
    full_ms: i64,
    /// The sources that wait, and their moments. At most as many as there are turns in the time that they are given
    /// ahead and the time that they are kept.
    waiting: Vec<(W, i64)>,
}

impl<K: Clone + Eq + Hash, W: Copy + Eq> TurnQueue<K, W> {
    pub(crate) fn new(turns: Turns, entries_max: usize) -> Self {
        Self {
            turns,
            entries_max: entries_max.max(1),
            entries: Mutex::default(),
        }
    }

    /// Takes a free try, or a turn that has come.
    ///
    /// # Errors
    /// It is not `who`'s turn; it will be after the time that is returned, or, where there are no more
    /// turns to give, that is when to come again.
    pub(crate) fn begin(&self, key: &K, who: W, now_ms: i64) -> Result<(), Duration> {
        let [every_ms, free_ms] = self.every_and_free_ms();
        let ahead_ms = self.ahead_ms();
        let mut entries = self.lock();
        if entries.len() >= self.entries_max && !entries.contains_key(key) {
            // What has all its free tries and no turn waiting; or else what has the fewest tries, so
            // that filling the table is of no use against one that has many.
            let is_over = |entry: &mut Entry<W>| {
                self.drop_lost(entry, now_ms);
                entry.full_ms <= now_ms && entry.waiting.is_empty()
            };
            make_room(&mut entries, self.entries_max, is_over, |entry| {
                entry.full_ms
            });
        }
        let entry = entries.entry(key.clone()).or_insert(Entry {
            full_ms: now_ms,
            waiting: Vec::new(),
        });
        self.drop_lost(entry, now_ms);
        // The clock may have been set back: there are never more tries to make up for than can be made.
        let full_max_ms = now_ms.saturating_add(free_ms).saturating_add(ahead_ms);
        entry.full_ms = entry.full_ms.min(full_max_ms);
        if let Some(place) = entry.waiting.iter().position(|(other, _)| *other == who) {
            let left_ms = entry.waiting[place].1.saturating_sub(now_ms);
            if left_ms > 0 {
                return Err(of_ms(left_ms));
            }
            entry.waiting.remove(place);
            return Ok(());
        }
        let full_ms = entry.full_ms.max(now_ms).saturating_add(every_ms);
        let left_ms = full_ms.saturating_sub(free_ms).saturating_sub(now_ms);
        let beyond_ms = left_ms.saturating_sub(ahead_ms);
        if beyond_ms > 0 {
            return Err(of_ms(beyond_ms));
        }
        entry.full_ms = full_ms;
        if left_ms > 0 {
            entry.waiting.push((who, now_ms.saturating_add(left_ms)));
            return Err(of_ms(left_ms));
        }
        Ok(())
    }

    /// A try was none: it did not fail, or failed for another reason.
    pub(crate) fn give_back(&self, key: &K) {
        let [every_ms, _] = self.every_and_free_ms();
        if let Some(entry) = self.lock().get_mut(key) {
            entry.full_ms = entry.full_ms.saturating_sub(every_ms);
        }
    }

    fn every_and_free_ms(&self) -> [i64; 2] {
        let Turns { every, free, .. } = self.turns;
        let every_ms = every.as_millis().max(1);
        [every_ms, every_ms.saturating_mul(free.into())].map(as_ms)
    }

    fn ahead_ms(&self) -> i64 {
        as_ms(self.turns.ahead_max.as_millis())
    }

    fn drop_lost(&self, entry: &mut Entry<W>, now_ms: i64) {
        let kept_ms = as_ms(self.turns.kept.as_millis());
        let ahead_ms = self.ahead_ms();
        entry.waiting.retain(|(_, at_ms)| {
            let late_ms = now_ms.saturating_sub(*at_ms);
            (-ahead_ms..=kept_ms).contains(&late_ms)
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Entry<W>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner) // counts are never half written
    }
}

fn of_ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNS: Turns = Turns {
        free: 3,
        every: Duration::from_secs(10),
        ahead_max: Duration::from_secs(30),
        kept: Duration::from_secs(20),
    };

    fn queue() -> TurnQueue<&'static str, u8> {
        TurnQueue::new(TURNS, 4)
    }

    fn left(queue: &TurnQueue<&'static str, u8>, who: u8, now_ms: i64) -> u64 {
        let begun = queue.begin(&"a", who, now_ms);
        begun.map_or_else(|left| left.as_secs(), |()| 0)
    }

    #[test]
    fn after_the_free_tries_each_has_a_turn_in_the_order_of_coming() {
        let queue = queue();
        let waits: Vec<u64> = (0..8).map(|who| left(&queue, who, 0)).collect();
        assert_eq!(
            waits,
            [0, 0, 0, 10, 20, 30, 10, 10],
            "the last two have none"
        );
        for now_ms in 0..10_000 {
            queue.begin(&"a", 3, now_ms).unwrap_err(); // asking again and again is no help
        }
        assert_eq!(left(&queue, 4, 10_000), 10);
        assert_eq!(left(&queue, 3, 10_000), 0);
        assert_eq!(left(&queue, 3, 10_000), 30, "behind those who wait already");
        assert_eq!(left(&queue, 5, 45_000), 0, "kept for who comes late");
    }

    #[test]
    fn a_turn_that_is_not_taken_is_lost() {
        let queue = queue();
        for _ in 0..3 {
            assert_eq!(left(&queue, 1, 0), 0);
        }
        assert_eq!(left(&queue, 1, 0), 10);
        assert_eq!(left(&queue, 1, 30_001), 0, "and a free one is there again");
        assert_eq!(queue.lock()["a"].waiting, []);
    }

    #[test]
    fn time_makes_tries_free_again_and_one_that_was_none_is_given_back() {
        let queue = queue();
        for round in 0..5 {
            for _ in 0..3 {
                assert_eq!(left(&queue, 1, round * 30_000), 0);
            }
        }
        for _ in 0..50 {
            queue.give_back(&"a");
            assert_eq!(left(&queue, 1, 120_000), 0);
        }
        assert_eq!(left(&queue, 2, 120_000), 10);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_wait_longer() {
        let queue = queue();
        let hour_ms = 3_600_000;
        for who in 0..5 {
            left(&queue, who, hour_ms);
        }
        assert_eq!(left(&queue, 4, hour_ms), 20);
        // As if all tries had been made that can be.
        assert_eq!(left(&queue, 4, 0), 10);
        assert_eq!(left(&queue, 4, 10_000), 30);
        assert_eq!(left(&queue, 4, 40_000), 0);
    }

    #[test]
    fn in_any_time_there_are_no_more_than_the_free_and_those_of_the_rate() {
        let queue = queue();
        let mut taken = Vec::new();
        for now_ms in (0..600_000).step_by(250) {
            for who in 0..50 {
                if queue.begin(&"a", who, now_ms).is_ok() {
                    taken.push(now_ms);
                }
            }
        }
        for begin in &taken {
            let in_time = |at: &&i64| (*begin..begin + 100_000).contains(*at);
            let count = taken.iter().filter(in_time).count();
            assert!(count <= 3 + 10 + 2, "{count} in 100 s from {begin}");
        }
        assert!(taken.len() >= 60, "{}", taken.len());
    }

    #[test]
    fn a_full_table_loses_what_was_tried_least() {
        let queue = queue();
        for (tries, key) in [(3, "a"), (1, "b"), (2, "c"), (2, "d"), (1, "e")] {
            for _ in 0..tries {
                queue.begin(&key, 0, 0).unwrap();
            }
        }
        assert_eq!(queue.lock().len(), 4);
        assert!(!queue.lock().contains_key("b"));
        queue.begin(&"a", 0, 0).unwrap_err();
        queue.begin(&"f", 0, 25_000).unwrap();
        assert_eq!(
            queue.lock().len(),
            2,
            "all others are as if nobody had tried"
        );
    }
}
