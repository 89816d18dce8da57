//! Which requests a loop answers that does the work itself.

use std::time::Duration;

use super::delay::DelayControl;
use super::retry_after::RetryAfter;

/// Decides by the age of what a loop finds: an event of this turn came after the last turn began that
/// has reported all there was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnControl {
    delay: DelayControl,
    retry_after: RetryAfter,
    /// When this turn began.
    began_us: u64,
    /// When its events were taken from the kernel, and when those before.
    taken_us: u64,
    /// Its events came after this.
    oldest_us: u64,
    /// There may be more events than were taken.
    is_full: bool,
    /// It has refused something.
    has_refused: bool,
}

impl TurnControl {
    pub(crate) fn new(goal: Duration) -> Self {
        Self {
            delay: DelayControl::new(goal),
            retry_after: RetryAfter::new(),
            began_us: 0,
            taken_us: 0,
            oldest_us: 0,
            is_full: false,
            has_refused: false,
        }
    }

    /// A turn begins. `waited`: the loop has waited for an event, so that nothing is older than that.
    /// `is_full`: there may be more events than were taken.
    pub(crate) fn begin(&mut self, now_us: u64, waited: bool, is_full: bool) {
        self.oldest_us = match (waited, self.is_full) {
            (true, _) => now_us,
            (false, true) => self.oldest_us,
            (false, false) => self.taken_us,
        };
        self.began_us = now_us;
        self.taken_us = now_us;
        self.is_full = is_full;
        self.look_for_calm(waited);
    }

    /// A turn begins with events that the one before has left.
    pub(crate) fn go_on(&mut self, now_us: u64) {
        self.began_us = now_us;
        self.look_for_calm(false);
    }

    fn look_for_calm(&mut self, waited: bool) {
        // A turn that refuses is short for that reason.
        if !std::mem::take(&mut self.has_refused) || waited {
            self.delay.waited(self.began_us - self.oldest_us);
        }
    }

    /// There were more events than were taken.
    pub(crate) fn has_left_some(&mut self) {
        self.is_full = true;
    }

    /// How long ago its events were taken from the kernel.
    pub(crate) fn lasts_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.taken_us)
    }

    /// A request is about to be answered. `Err`: it is too old for that, and its client is to come
    /// back after this many seconds.
    #[inline]
    pub(crate) fn check(&mut self, now_us: u64) -> Result<(), u32> {
        // On average an event came in the middle of the time; the oldest are reported first.
        let came_us = match self.is_full {
            true => self.oldest_us,
            false => self.oldest_us / 2 + self.taken_us / 2,
        };
        let age_us = now_us.saturating_sub(came_us);
        if age_us <= self.delay.accepted_us() {
            return Ok(());
        }
        Err(self.refuse(now_us))
    }

    #[cold]
    fn refuse(&mut self, now_us: u64) -> u32 {
        self.has_refused = true;
        self.delay.refused(now_us);
        self.retry_after.next_s(now_us, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_longer_than_the_goal_is_refused() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(5_000_000, true, false);
        assert_eq!(turn.check(5_000_000), Ok(()));
        assert_eq!(turn.check(6_000_000), Ok(()));
        assert!(turn.check(6_000_001).is_err());
        // Events of the next turn came while that one lasted.
        turn.begin(6_200_000, false, false);
        assert_eq!(turn.check(6_600_000), Ok(()));
        assert!(turn.check(6_700_000).is_err());
        turn.begin(6_700_000, true, false);
        assert_eq!(turn.check(7_000_000), Ok(()));
    }

    #[test]
    fn under_lasting_overload_turns_become_short() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(0, true, false);
        turn.begin(1, false, false);
        for now_us in (1_000_100..1_300_000).step_by(50_000) {
            assert!(turn.check(now_us).is_err());
        }
        turn.begin(1_300_000, false, false);
        assert!(turn.check(1_300_000).is_err(), "from a turn of 1.3 s");
        turn.begin(1_301_000, false, false);
        assert_eq!(turn.check(1_380_000), Ok(()));
        assert!(turn.check(1_402_000).is_err());
        // Nothing waits any more.
        turn.begin(1_410_000, true, false);
        assert_eq!(turn.check(2_400_000), Ok(()));
    }

    #[test]
    fn events_that_did_not_fit_into_a_turn_are_as_old_as_the_first_of_them() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(0, true, true);
        turn.begin(900_000, false, true);
        assert_eq!(turn.check(1_000_000), Ok(()));
        assert!(turn.check(1_000_001).is_err());
        turn.begin(1_100_000, false, false);
        assert_eq!(turn.check(1_500_000), Ok(()), "the last of them");
        turn.begin(1_600_000, false, false);
        assert_eq!(turn.check(2_300_000), Ok(()));
    }

    #[test]
    fn what_came_while_a_batch_was_worked_off_is_as_old_as_the_batch() {
        let mut turn = TurnControl::new(Duration::from_secs(1));
        turn.begin(0, true, false);
        turn.go_on(500_000);
        assert_eq!(turn.lasts_us(600_000), 600_000);
        assert_eq!(turn.check(900_000), Ok(()));
        turn.begin(1_000_000, false, false);
        assert_eq!(
            turn.check(1_500_000),
            Ok(()),
            "half a second old when it was taken"
        );
        assert!(turn.check(1_500_001).is_err());
    }
}
