//! Whether an app can answer in time: by how long requests wait within it, for a database, a lock or another
//! server, where no queue of the server shows them.
//!
//! A request that has a place in a queue waits the longer the more came before it; one that merely sleeps does
//! not. So waits are remembered by how many requests were waiting when it began. Where they grow with that
//! number, each request that waits costs the next one the same time, and a request is refused that would have to
//! wait for too long behind the others.

use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;

/// Requests count among those before the next one for twice the goal: what waits for longer (long polling) is
/// no queue that moves, and its client may have left.
const YOUNG_SLOTS: usize = 16;
const SLOT_DIVISOR: u64 = 8;

/// Waits by the number of requests before: from 1, 2 to 3, 4 to 7, up to 32,768 and more.
const OCTAVES: usize = 16;

/// So many waits say something. A queue that is built up by a burst has no more in its lower octaves.
const KNOWN_MIN: u32 = 4;

/// One counts for so much of what is known.
const WEIGHT_MIN: f64 = 1.0 / 16.0;

/// Waits are forgotten after so many times the goal.
const FORGOTTEN_AFTER: u64 = 10;

/// In a queue waits grow as the requests in it do. They do so if they grow by this part of that.
const GROWTH: f64 = 0.25;

/// So much of the goal is kept in reserve, since waits vary.
const RESERVE_DIVISOR: u64 = 16;

/// What an app's requests do that wait.
#[derive(Debug)]
pub(crate) struct AppControl {
    delay: DelayControl,
    retry_after: RetryAfter,
    young: Young,
    waits: [Waits; OCTAVES],
    /// When the latest one of those began to wait that were answered. What began before has been overtaken and
    /// says nothing of a queue.
    overtaken_us: u64,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    since_us: u64,
    /// So many waited when it began, itself included.
    number: u32,
}

impl AppControl {
    pub(crate) fn new(goal: Duration) -> Self {
        let delay = DelayControl::new(goal);
        Self {
            young: Young::new(delay.goal_us()),
            delay,
            retry_after: RetryAfter::new(),
            waits: [Waits::default(); OCTAVES],
            overtaken_us: 0,
        }
    }

    /// A request begins to wait.
    pub(crate) fn begin(&mut self, now_us: u64) -> Wait {
        self.young.add(now_us);
        Wait {
            since_us: now_us,
            number: self.young.count(now_us),
        }
    }

    /// It is answered.
    pub(crate) fn answered(&mut self, wait: Wait, now_us: u64) {
        self.left(wait, now_us);
        if wait.since_us >= self.overtaken_us {
            let took_us = now_us.saturating_sub(wait.since_us);
            let stale_us = self.delay.goal_us();
            self.waits[octave(wait.number)].add(took_us, wait.number, now_us, stale_us);
            if let Some(from) = self.grows_from(octave(wait.number), now_us) {
                self.waits[from].confirmed_us = now_us; // for as long as it holds
            }
            self.overtaken_us = wait.since_us;
            let usual_us = self.usual_us(now_us).unwrap_or_default();
            let waited_us = took_us.saturating_sub(usual_us);
            self.delay.waited_in_no_order(waited_us, now_us);
        }
    }

    /// It is no longer awaited.
    pub(crate) fn left(&mut self, wait: Wait, now_us: u64) {
        self.young.remove(wait.since_us, now_us);
    }

    /// A request has come, and `admitted` others that do not wait yet: `Some` if it could not be answered in time,
    /// with the seconds after which its client is to come back.
    pub(crate) fn offer(&mut self, admitted: u32, now_us: u64) -> Option<u32> {
        let number = self.young.count(now_us) + admitted + 1;
        if number < 2 {
            return None;
        }
        let each_us = self.each_us(number, now_us)?;
        let expected_us = each_us * f64::from(number);
        if expected_us <= self.accepted_us(now_us) as f64 {
            return None;
        }
        self.delay.refused(now_us);
        Some(self.retry_after.next_s(now_us, each_us as u64))
    }

    /// How long a request may wait. One that takes half of the goal or more anyway may wait for half of the goal.
    fn accepted_us(&self, now_us: u64) -> u64 {
        let (goal_us, accepted_us) = (self.delay.goal_us(), self.delay.accepted_us());
        let usual_us = self.usual_us(now_us).unwrap_or_default();
        match self.delay.is_lasting() {
            true => accepted_us.max(3 * usual_us).min(goal_us / 2),
            false => (accepted_us - goal_us / RESERVE_DIVISOR).max(usual_us + goal_us / 2),
        }
    }

    /// What each request that waits costs the next one; `None`: nothing that is known. Where it has changed, the
    /// larger one counts: what has got faster is soon known.
    fn each_us(&self, number: u32, now_us: u64) -> Option<f64> {
        let growing = (2..=octave(number)).filter(|at| self.grows_from(*at, now_us).is_some());
        let each = growing.filter_map(|at| self.known(at, now_us).map(|waits| waits.each_us()));
        each.max_by(f64::total_cmp)
    }

    /// The octave below, with about a quarter of the requests or less, in comparison with which waits of this octave
    /// are those of a queue.
    fn grows_from(&self, at: usize, now_us: u64) -> Option<usize> {
        let waits = self.known(at, now_us)?;
        let mut below = (0..=at.checked_sub(2)?).rev();
        let from = below.find(|at| self.known(*at, now_us).is_some())?;
        let of_half = self.known(at - 1, now_us);
        let grows =
            waits.grows(&self.waits[from]) && of_half.is_none_or(|of_half| waits.grows(of_half));
        grows.then_some(from)
    }

    /// Waits of this octave, if they say something.
    fn known(&self, at: usize, now_us: u64) -> Option<&Waits> {
        let forgotten_us = self.delay.goal_us().saturating_mul(FORGOTTEN_AFTER);
        let waits = &self.waits[at];
        let known_us = waits.last_us.max(waits.confirmed_us);
        let is_fresh = now_us.saturating_sub(known_us) <= forgotten_us;
        (waits.count >= KNOWN_MIN && is_fresh).then_some(waits)
    }

    /// What a request takes that hardly waits for others.
    fn usual_us(&self, now_us: u64) -> Option<u64> {
        let known = (0..OCTAVES).filter_map(|at| self.known(at, now_us));
        let least = known.map(|waits| waits.took_us).min_by(f64::total_cmp);
        least.map(|us| us as u64)
    }
}

/// The octave of a number of requests.
fn octave(number: u32) -> usize {
    (number.max(1).ilog2() as usize).min(OCTAVES - 1)
}

/// Waits that began with about the same number of requests before them.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    count: u32,
    /// Means, the last ones count most.
    took_us: f64,
    number: f64,
    last_us: u64,
    confirmed_us: u64,
}

impl Waits {
    fn add(&mut self, took_us: u64, number: u32, now_us: u64, stale_us: u64) {
        if now_us.saturating_sub(self.last_us) > stale_us {
            self.count = self.count.min(KNOWN_MIN - 1);
        }
        self.count = self.count.saturating_add(1);
        let weight = (1.0 / f64::from(self.count)).max(WEIGHT_MIN);
        self.took_us += weight * (took_us as f64 - self.took_us);
        self.number += weight * (f64::from(number) - self.number);
        self.last_us = now_us;
    }

    /// What each request before them has cost them.
    fn each_us(&self) -> f64 {
        self.took_us / self.number
    }

    /// Whether they are longer than these with fewer requests before them, as in a queue.
    fn grows(&self, fewer: &Self) -> bool {
        let growth = self.number / fewer.number - 1.0;
        self.took_us >= fewer.took_us * (1.0 + GROWTH * growth)
    }
}

/// How many began to wait within twice the goal and still do.
#[derive(Debug)]
struct Young {
    slot_us: u64,
    slots: [u32; YOUNG_SLOTS],
    newest: u64,
}

impl Young {
    fn new(goal_us: u64) -> Self {
        Self {
            slot_us: (goal_us / SLOT_DIVISOR).max(1),
            slots: [0; YOUNG_SLOTS],
            newest: 0,
        }
    }

    /// The slots that have passed since are forgotten.
    fn advance(&mut self, now_us: u64) {
        let newest = now_us / self.slot_us;
        let passed = newest.saturating_sub(self.newest).min(YOUNG_SLOTS as u64);
        for slot in 0..passed {
            self.slots[index(newest - slot)] = 0;
        }
        self.newest = self.newest.max(newest);
    }

    fn add(&mut self, now_us: u64) {
        self.advance(now_us);
        self.slots[index(self.newest)] += 1;
    }

    fn remove(&mut self, since_us: u64, now_us: u64) {
        self.advance(now_us);
        let slot = since_us / self.slot_us;
        if self.newest.saturating_sub(slot) < YOUNG_SLOTS as u64 {
            let slot = &mut self.slots[index(slot)];
            *slot = slot.saturating_sub(1);
        }
    }

    fn count(&mut self, now_us: u64) -> u32 {
        self.advance(now_us);
        self.slots.iter().sum()
    }
}

fn index(slot: u64) -> usize {
    (slot % YOUNG_SLOTS as u64) as usize
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Duration = Duration::from_secs(1);

    #[test]
    fn those_that_wait_for_long_do_not_count() {
        let mut young = Young::new(1_000_000);
        young.add(0);
        young.add(1_000_000);
        assert_eq!(young.count(1_999_999), 2);
        assert_eq!(young.count(2_000_000), 1);
        young.remove(0, 2_000_000);
        assert_eq!(young.count(2_000_000), 1);
        young.remove(1_000_000, 2_000_001);
        assert_eq!(young.count(2_000_001), 0);
        young.add(90_000_000);
        assert_eq!(young.count(90_000_000), 1);
    }

    /// So many requests at once, answered one after the other.
    fn queue(control: &mut AppControl, count: u64, each_us: u64, at_us: u64) {
        let waits: Vec<Wait> = (0..count).map(|_| control.begin(at_us)).collect();
        for (index, wait) in waits.into_iter().enumerate() {
            control.answered(wait, at_us + (index as u64 + 1) * each_us);
        }
    }

    #[test]
    fn what_waits_grow_by_decides() {
        let mut control = AppControl::new(GOAL);
        queue(&mut control, 40, 10_000, 0);
        assert_eq!(control.offer(90, 1_000_000), None, "91 take 0.91 s");
        let seconds = control.offer(120, 1_000_000);
        assert!(seconds.is_some_and(|seconds| (1..=60).contains(&seconds)));
        assert_eq!(control.offer(0, 1_000_000), None, "nothing waits");
        // Ten seconds later nobody knows.
        assert_eq!(control.offer(120, 11_000_000), None);
    }

    #[test]
    fn waits_that_do_not_grow_refuse_nobody() {
        let mut control = AppControl::new(GOAL);
        for number in [1, 4, 16, 64, 256] {
            for _ in 0..8 {
                let waits: Vec<Wait> = (0..number).map(|_| control.begin(0)).collect();
                let answered = |wait| control.answered(wait, 700_000);
                waits.into_iter().for_each(answered);
            }
        }
        assert_eq!(control.offer(100_000, 700_000), None);
    }

    #[test]
    fn those_that_were_overtaken_say_nothing_of_a_queue() {
        let mut control = AppControl::new(GOAL);
        queue(&mut control, 40, 100, 0);
        let slow: Vec<Wait> = (0..40).map(|_| control.begin(100_000)).collect();
        queue(&mut control, 40, 100, 110_000);
        for wait in slow {
            control.answered(wait, 900_000);
        }
        assert_eq!(control.offer(2_000, 900_000), None);
    }
}
