//! How long work may wait now.

use std::time::Duration;

/// The part of the goal that work may wait under lasting overload: a tenth. Short enough that what is
/// served is served quickly, long enough that a queue of that length never runs empty.
const TARGET_DIVISOR: u64 = 10;

/// After refusals for this part of the goal less may wait; a shorter burst changes nothing. Without
/// refusals for as long, a new count begins.
const ONSET_DIVISOR: u64 = 4;

/// Refusals for so much work that began are lasting overload: two fifths, so 1.7 times the capacity or more.
const REFUSED_MIN: u64 = 2;
const BEGUN_MAX: u64 = 3;

/// With fewer refusals the longest wait falls by this part of the time for which they have come. At 0.8 of
/// the capacity a queue gets shorter by twice as much, so that after a burst chance alone refuses nothing more.
const FALL_DIVISOR: u64 = 10;

/// A wait of this part of the target says that there is more capacity than work.
const CALM_DIVISOR: u64 = 8;

/// The longest wait that is accepted: up to the goal; a tenth of it under lasting overload.
///
/// A burst may use all of the goal, since it passes. Under lasting overload a long queue serves
/// nobody: as many requests are answered from a short one, and sooner (CoDel's "good" and "bad"
/// queue, RFC 8289 section 3). Where few are refused, the queue may be what a burst has left: it gets
/// shorter of itself, and to refuse all until it is short would lose what can be answered in time. So the
/// longest wait falls slowly there.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayControl {
    goal_us: u64,
    /// From the goal down to `lasting_us`.
    accepted_us: u64,
    refusing: Option<Refusals>,
}

/// Refusals that were never a quarter of the goal apart.
#[derive(Clone, Copy, Debug)]
struct Refusals {
    first_us: u64,
    last_us: u64,
    /// From half a quarter of the goal on, when a short burst is over: refusals, and work that began.
    refused: u64,
    begun: u64,
}

impl Refusals {
    fn since(now_us: u64) -> Self {
        Self {
            first_us: now_us,
            last_us: now_us,
            refused: 0,
            begun: 0,
        }
    }

    fn is_lasting(&self) -> bool {
        let refused = self.refused.saturating_mul(BEGUN_MAX);
        refused >= self.begun.saturating_mul(REFUSED_MIN)
    }
}

impl DelayControl {
    pub(super) fn new(goal: Duration) -> Self {
        let goal_us = u64::try_from(goal.as_micros()).unwrap_or(u64::MAX).max(1);
        Self {
            goal_us,
            accepted_us: goal_us,
            refusing: None,
        }
    }

    pub(super) fn goal_us(&self) -> u64 {
        self.goal_us
    }

    /// What is accepted of the whole time, wait and service, now.
    pub(super) fn accepted_us(&self) -> u64 {
        self.accepted_us
    }

    /// What is accepted under lasting overload.
    pub(super) fn lasting_us(&self) -> u64 {
        self.goal_us / TARGET_DIVISOR
    }

    /// Refusals for so long may be lasting overload.
    pub(super) fn onset_us(&self) -> u64 {
        self.goal_us / ONSET_DIVISOR
    }

    /// Whether a wait is longer than what lasting overload allows.
    pub(super) fn is_long(&self, wait_us: u64) -> bool {
        wait_us > self.lasting_us()
    }

    /// Whether so long a wait says that there is more work than capacity, at least for now.
    pub(super) fn is_wait(&self, wait_us: u64) -> bool {
        wait_us > self.goal_us / (TARGET_DIVISOR * CALM_DIVISOR)
    }

    /// Whether no more may wait than under lasting overload.
    pub(super) fn is_lasting(&self) -> bool {
        self.accepted_us <= self.lasting_us()
    }

    /// Work was refused.
    pub(super) fn refused(&mut self, now_us: u64) {
        let onset_us = self.onset_us();
        let goes_on = |it: &Refusals| now_us.saturating_sub(it.last_us) <= onset_us;
        let last = self.refusing.filter(goes_on);
        let mut refusing = last.unwrap_or_else(|| Refusals::since(now_us));
        refusing.last_us = now_us;
        let since_us = now_us.saturating_sub(refusing.first_us);
        refusing.refused += u64::from(since_us >= onset_us / 2);
        if since_us >= onset_us {
            let fallen_us = match refusing.is_lasting() {
                true => 0,
                false => self.accepted_us.saturating_sub(since_us / FALL_DIVISOR),
            };
            self.accepted_us = fallen_us.max(self.lasting_us());
            refusing = Refusals::since(now_us);
        }
        self.refusing = Some(refusing);
    }

    /// Work began that could have been refused. For an app this is not called, so that all refusals that go on
    /// are lasting overload: how its waits grow is seen only if their number changes much.
    #[inline]
    pub(super) fn begun(&mut self, now_us: u64) {
        let half_us = self.onset_us() / 2;
        if let Some(refusing) = &mut self.refusing
            && now_us.saturating_sub(refusing.first_us) >= half_us
        {
            refusing.begun += 1;
        }
    }

    /// The work that began last did not begin after all.
    pub(super) fn not_begun(&mut self) {
        if let Some(refusing) = &mut self.refusing {
            refusing.begun = refusing.begun.saturating_sub(1);
        }
    }

    /// Work began after it had waited for so long.
    pub(super) fn waited(&mut self, wait_us: u64) {
        if !self.is_wait(wait_us) {
            self.refusing = None;
            self.accepted_us = self.goal_us;
        }
    }

    /// The same where work begins in no order: one that has hardly waited says nothing of the others, so
    /// that none may have been refused of late.
    pub(super) fn waited_in_no_order(&mut self, wait_us: u64, now_us: u64) {
        let onset_us = self.onset_us();
        let is_over = |it: Refusals| now_us.saturating_sub(it.last_us) > onset_us;
        if self.refusing.is_none_or(is_over) {
            self.waited(wait_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_refusals_shorten_the_wait_until_some_work_does_not_wait() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        assert_eq!(delay.accepted_us(), 1_000_000);
        for now_ms in (0..=200).step_by(10) {
            delay.refused(now_ms * 1000);
        }
        assert!(!delay.is_lasting(), "a burst");
        // A pause, and the count begins anew.
        delay.refused(500_000);
        delay.refused(740_000);
        assert!(!delay.is_lasting());
        delay.refused(750_000);
        assert_eq!(delay.accepted_us(), 100_000);
        delay.waited(12_501);
        assert!(delay.is_lasting());
        delay.waited(12_500);
        assert_eq!(delay.accepted_us(), 1_000_000);
        delay.refused(760_000);
        assert!(!delay.is_lasting(), "what was before is over");
    }

    /// All was refused until the queue was short, though it got shorter of itself: 80 of 984 requests of a trial.
    #[test]
    fn a_few_refusals_after_a_burst_are_no_lasting_overload() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        (0..50).for_each(|now_ms| delay.refused(now_ms * 1000));
        for now_ms in (50..=260_u64).step_by(5) {
            delay.begun(now_ms * 1000);
            if now_ms.is_multiple_of(20) {
                delay.refused(now_ms * 1000);
            }
        }
        assert!(!delay.is_lasting());
        assert_eq!(delay.accepted_us(), 974_000, "a tenth of 260 ms less");
        delay.refused(600_000);
        delay.refused(840_000);
        assert_eq!(delay.accepted_us(), 974_000, "another burst");
        delay.waited(12_500);
        assert_eq!(delay.accepted_us(), 1_000_000);
        // A burst that comes just when an overload is over.
        (0..=250).for_each(|now_ms| delay.refused(1_000_000 + now_ms * 1000));
        assert!(delay.is_lasting());
        delay.waited(0);
        (251..500).for_each(|now_ms| delay.refused(1_000_000 + now_ms * 1000));
        assert_eq!(delay.accepted_us(), 1_000_000);
    }

    /// A third of what comes, each 10 ms: 1.5 times the capacity.
    fn refuse_a_third(delay: &mut DelayControl, now_ms: u64) {
        (0..2).for_each(|_| delay.begun(now_ms * 1000));
        delay.refused(now_ms * 1000);
    }

    #[test]
    fn where_few_are_refused_the_longest_wait_falls_slowly() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        for now_ms in (0..=9_000).step_by(10) {
            assert!(!delay.is_lasting(), "{now_ms}");
            assert!(delay.accepted_us() >= 1_000_000 - now_ms * 100, "{now_ms}");
            refuse_a_third(&mut delay, now_ms);
        }
        assert_eq!(delay.accepted_us(), 100_000);
        assert!(delay.is_lasting());
        refuse_a_third(&mut delay, 9_250);
        assert_eq!(delay.accepted_us(), 100_000);
    }

    #[test]
    fn where_more_are_refused_meanwhile_it_is_short_at_once() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        for now_ms in (0..=500).step_by(10) {
            refuse_a_third(&mut delay, now_ms);
        }
        assert_eq!(delay.accepted_us(), 950_000);
        for now_ms in (510..=750).step_by(10) {
            delay.begun(now_ms * 1000);
            delay.refused(now_ms * 1000);
        }
        assert_eq!(delay.accepted_us(), 100_000);
    }

    #[test]
    fn what_did_not_begin_after_all_does_not_count() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        for now_ms in (0..=250).step_by(10) {
            (0..4).for_each(|_| delay.begun(now_ms * 1000));
            (0..3).for_each(|_| delay.not_begun());
            delay.refused(now_ms * 1000);
        }
        assert!(delay.is_lasting());
    }

    #[test]
    fn where_there_is_no_order_calm_takes_a_time_without_refusals() {
        let mut delay = DelayControl::new(Duration::from_secs(1));
        for now_ms in (0..=250).step_by(10) {
            delay.waited_in_no_order(0, now_ms * 1000);
            delay.refused(now_ms * 1000);
        }
        assert!(delay.is_lasting());
        delay.waited_in_no_order(0, 500_000);
        assert!(delay.is_lasting());
        delay.waited_in_no_order(12_501, 500_001);
        assert!(delay.is_lasting());
        delay.waited_in_no_order(12_500, 500_001);
        assert!(!delay.is_lasting());
    }
}
