//! Several answers for one wake-up.
//!
//! In a closed loop against a quick server, a thread that sleeps until the next answer comes is
//! woken for each one or two. That costs the client more than the answers do; and on one machine
//! it costs the server as well, since the one who sends does the waking: against nginx on another
//! core 64 connections got a tenth less than wrk did, which is too busy ever to sleep. So where
//! answers come thick the thread sleeps by the clock for a few of them, as network cards do with
//! their interrupts.
//!
//! An answer may then be read later than it came. [`Coalescing::nap_ns`] says by how much at
//! most, and what the machine oversleeps is part of that. An open loop never does this.

/// Sleeps no longer than this number of answers takes to come.
const ANSWERS_MAX: u64 = 16;
/// A sleep for fewer is not worth it.
const ANSWERS_MIN: u64 = 2;
/// Answers that are further apart are too few for waking to cost much: a thread that gets less than
/// 30,000 a second reads each when it comes.
const GAP_NS_MAX: u64 = 33_000;
/// Sleeps no longer than this, or than a hundredth of an answer's time, whichever is longer: what
/// the client may add to the truth.
const NAP_NS_MAX: u64 = 50_000;
const NAP_SHARE: u64 = 100;
/// What is known of how late sleeps end moves so far with each: half of them end later than that. (A
/// mean would be that of the few in which the machine did something else.)
const LATE_STEP_NS: u64 = 500;
/// Where it was too late for sleeping, this is forgotten within this number of turns: it may get better.
const LATE_FORGOTTEN: u64 = 4096;
/// Nor longer than an eighth of an answer's time, or the server might run out of requests.
const RUN_DRY_SHARE: u64 = 8;

/// How fast answers come, and what follows.
#[derive(Debug, Default)]
pub(super) struct Coalescing {
    is_on: bool,
    answers: u64,
    over_ns: u64,
    woken_ns: u64,
    last: u64,
    /// How much later than asked half of the sleeps end.
    late_ns: u64,
}

impl Coalescing {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// `answers` were there when the thread woke up.
    #[inline]
    pub(super) fn woken(&mut self, now_ns: u64, answers: usize) {
        let since_ns = now_ns.saturating_sub(self.woken_ns);
        self.woken_ns = now_ns;
        self.last = answers as u64;
        // Decays over some sixteen turns. Scaled, so that what is left of small numbers counts.
        self.answers = self.answers - self.answers / 16 + (self.last << 8);
        self.over_ns = self.over_ns - self.over_ns / 16 + (since_ns << 8).min(1 << 50);
        self.late_ns -= self.late_ns.div_ceil(LATE_FORGOTTEN);
    }

    /// A sleep of `asked_ns` took `slept_ns`.
    #[inline]
    pub(super) fn slept(&mut self, asked_ns: u64, slept_ns: u64) {
        let was_later = slept_ns.saturating_sub(asked_ns) > self.late_ns;
        self.late_ns = match was_later {
            true => self.late_ns + LATE_STEP_NS,
            false => self.late_ns.saturating_sub(LATE_STEP_NS),
        };
    }

    /// How long to sleep before the next look, with `in_flight` requests out; 0: not at all.
    ///
    /// It is at most 50 us or a hundredth of the time that an answer takes, and at most an eighth of
    /// that time, which follows from the rate of answers and the requests that are out (Little).
    #[inline]
    pub(super) fn nap_ns(&self, in_flight: u64) -> u64 {
        // Many at once: they pile up without a sleep.
        if !self.is_on || self.answers == 0 || self.last >= ANSWERS_MAX {
            return 0;
        }
        let gap_ns = self.over_ns / self.answers;
        if gap_ns > GAP_NS_MAX {
            return 0;
        }
        let answer_ns = gap_ns.saturating_mul(in_flight);
        let pause_ns = (gap_ns * ANSWERS_MAX)
            .min(NAP_NS_MAX.max(answer_ns / NAP_SHARE))
            .min(answer_ns / RUN_DRY_SHARE);
        match pause_ns >= gap_ns * ANSWERS_MIN {
            true => pause_ns.saturating_sub(self.late_ns),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers that come `gap_ns` apart, `at_once` at a time, for a while.
    fn after(gap_ns: u64, at_once: usize) -> Coalescing {
        let mut coalescing = Coalescing::new(true);
        let mut now_ns = 0;
        for _ in 0..200 {
            now_ns += gap_ns * at_once as u64;
            coalescing.woken(now_ns, at_once);
        }
        coalescing
    }

    #[test]
    fn naps_are_short_beside_an_answers_time() {
        for gap_ns in [1_000, 8_000, 20_000, 30_000] {
            for in_flight in [1, 8, 15, 16, 64, 1000, 10_000] {
                let nap_ns = after(gap_ns, 1).nap_ns(in_flight);
                let answer_ns = gap_ns * in_flight;
                let most_ns = NAP_NS_MAX.max(answer_ns / 100).min(answer_ns / 8);
                assert!(nap_ns <= most_ns, "{gap_ns} {in_flight}: {nap_ns}");
                assert!(in_flight >= 16 || nap_ns == 0);
            }
        }
    }

    #[test]
    fn naps_are_for_answers_that_come_thick() {
        let nap_ns = after(8_000, 2).nap_ns(64);
        assert!((49_000..=50_000).contains(&nap_ns), "{nap_ns}");
        // 100 clients that get an answer every 20 ms each: nothing to gather.
        assert_eq!(after(200_000, 1).nap_ns(100), 0);
        assert_eq!(Coalescing::new(false).nap_ns(64), 0);
    }

    #[test]
    fn what_the_machine_oversleeps_is_part_of_it() {
        let mut coalescing = after(8_000, 2);
        for sleep in 0..400 {
            // One in ten is much too late, which says nothing of the others.
            let late_ns = if sleep % 10 == 9 { 900_000 } else { 30_000 };
            coalescing.slept(10_000, 10_000 + late_ns);
        }
        let nap_ns = coalescing.nap_ns(64);
        assert!((18_000..=22_000).contains(&nap_ns), "{nap_ns}");
        for _ in 0..200 {
            coalescing.slept(10_000, 80_000);
        }
        assert_eq!(coalescing.nap_ns(64), 0);
        // It is tried again after some time.
        for turn in 0..4 * LATE_FORGOTTEN {
            coalescing.woken((400 + turn) * 16_000, 2);
        }
        assert!(coalescing.nap_ns(64) > 40_000);
    }

    #[test]
    fn no_nap_where_answers_pile_up() {
        assert_eq!(after(8_000, 16).nap_ns(64), 0);
    }

    #[test]
    fn a_rate_that_changes_is_followed() {
        let mut coalescing = after(8_000, 1);
        for turn in 1..100 {
            coalescing.woken(200 * 8_000 + turn * 1_000_000, 1);
        }
        assert_eq!(coalescing.nap_ns(64), 0);
    }
}
