//! How long work may wait now.

use std::time::Duration;

/// The part of the goal that work may wait under lasting overload: a tenth. Short enough that what is
/// served is served quickly, long enough that a queue of that length never runs empty.
const TARGET_DIVISOR: u64 = 10;

/// Refusals for this part of the goal are lasting overload; a shorter burst is not. Without refusals
/// for as long, a new count begins.
const ONSET_DIVISOR: u64 = 4;

/// A wait of this part of the target says that there is more capacity than work.
const CALM_DIVISOR: u64 = 8;

/// The longest wait that is accepted: up to the goal; a tenth of it under lasting overload.
///
/// A burst may use all of the goal, since it passes. Under lasting overload a long queue serves
/// nobody: as many requests are answered from a short one, and sooner (CoDel's "good" and "bad"
/// queue, RFC 8289 section 3).
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayControl {
    goal_us: u64,
    /// The first and the last of the refusals that were never a quarter of the goal apart.
    refusing: Option<(u64, u64)>,
    is_lasting: bool,
}

impl DelayControl {
    pub(super) fn new(goal: Duration) -> Self {
        Self {
            goal_us: u64::try_from(goal.as_micros()).unwrap_or(u64::MAX).max(1),
            refusing: None,
            is_lasting: false,
        }
    }

    pub(super) fn goal_us(&self) -> u64 {
        self.goal_us
    }

    /// What is accepted of the whole time, wait and service, now.
    pub(super) fn accepted_us(&self) -> u64 {
        match self.is_lasting {
            true => self.lasting_us(),
            false => self.goal_us,
        }
    }

    /// What is accepted under lasting overload.
    pub(super) fn lasting_us(&self) -> u64 {
        self.goal_us / TARGET_DIVISOR
    }

    /// Refusals for so long are lasting overload.
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

    pub(super) fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Work was refused.
    pub(super) fn refused(&mut self, now_us: u64) {
        let onset_us = self.onset_us();
        let first = match self.refusing {
            Some((first, last)) if now_us.saturating_sub(last) <= onset_us => first,
            _ => now_us,
        };
        self.refusing = Some((first, now_us));
        self.is_lasting |= now_us.saturating_sub(first) >= onset_us;
    }

    /// Work began after it had waited for so long.
    pub(super) fn waited(&mut self, wait_us: u64) {
        if !self.is_wait(wait_us) {
            self.refusing = None;
            self.is_lasting = false;
        }
    }

    /// The same where work begins in no order: one that has hardly waited says nothing of the others, so
    /// that none may have been refused of late.
    pub(super) fn waited_in_no_order(&mut self, wait_us: u64, now_us: u64) {
        let onset_us = self.onset_us();
        let is_over = |(_, last_us)| now_us.saturating_sub(last_us) > onset_us;
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
