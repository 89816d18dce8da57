//! The proof: the candidate holds five times in a row and for a minute, and a rate one step above
//! fails.

use super::belief::{Belief, STEP};
use super::{Stage, four_digits};

/// So often the candidate has to hold, without a failure between.
pub(super) const HOLDS_NEEDED: u32 = 5;

/// So often the rate above has to fail; the posterior says the same.
const FAILS_NEEDED: u32 = 1;
/// After this number of trials that did not fail, the rate above is chosen anew.
const ABOVE_HOLDS_MAX: u32 = 3;

/// A candidate is a rate that long trials hold with this probability ...
const CANDIDATE_HOLDS: f64 = 0.98;
/// ... and the rate above one that they hold with at most this.
const ABOVE_HOLDS: f64 = 0.10;

/// Neither is further from the interval than by this factor.
const AWAY_MAX: f64 = 1.3;

/// After a failure, the next candidate is lower by this factor.
const DOWN: f64 = 1.015;

/// What is being confirmed, and what came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirm {
    candidate: Option<Candidate>,
    /// The last candidate failed at this rate.
    failed_at_per_s: Option<f64>,
    /// A rate above failed to fail here.
    held_above_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) per_s: f64,
    pub(super) above_per_s: f64,
    pub(super) held: u32,
    pub(super) above_held: u32,
    pub(super) above_failed: u32,
    /// For how long it held in the end.
    pub(super) minute_s: Option<f64>,
}

impl Candidate {
    /// Five of five, beside one above that failed.
    fn is_repeated(&self) -> bool {
        self.held >= HOLDS_NEEDED && self.is_above_settled()
    }

    fn is_above_settled(&self) -> bool {
        self.above_failed >= FAILS_NEEDED
    }
}

/// Trials that a confirmation takes at least.
pub(super) const TRIALS_MIN: f64 = (HOLDS_NEEDED + FAILS_NEEDED) as f64;

impl Confirm {
    pub(super) fn learn(&mut self, stage: Stage, seconds: f64, holds: bool) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        match (stage, holds) {
            (Stage::Minute, true) => candidate.minute_s = Some(seconds),
            (Stage::Confirm, true) => candidate.held += 1,
            (Stage::Confirm | Stage::Minute, false) => {
                self.failed_at_per_s = Some(candidate.per_s);
                self.candidate = None;
            }
            (_, false) => candidate.above_failed += 1,
            (_, true) => {
                candidate.above_held += 1;
                if candidate.above_held >= ABOVE_HOLDS_MAX {
                    self.held_above_per_s = Some(candidate.above_per_s);
                    self.candidate = None;
                }
            }
        }
    }

    /// Nothing can be confirmed at such rates: the next one is chosen anew.
    pub(super) fn give_way(&mut self) {
        self.candidate = None;
    }

    /// The next trial of the confirmation; `None`: it is through, or what it has to be done with is
    /// not known yet.
    pub(super) fn next(
        &mut self,
        belief: &Belief,
        interval: (f64, f64),
        top_per_s: f64,
    ) -> Option<(f64, Stage)> {
        if self.candidate.is_none() {
            self.candidate = self.chosen(belief, interval, top_per_s);
        }
        let candidate = self.candidate.as_ref()?;
        // Turn by turn: what changes with time concerns both.
        if !candidate.is_above_settled() && candidate.above_held < candidate.held {
            return Some((candidate.above_per_s, Stage::Above));
        }
        if candidate.held < HOLDS_NEEDED {
            return Some((candidate.per_s, Stage::Confirm));
        }
        let needs_minute = candidate.minute_s.is_none();
        needs_minute.then_some((candidate.per_s, Stage::Minute))
    }

    /// `None`: no rate above the candidate may be tried.
    fn chosen(
        &self,
        belief: &Belief,
        (low, high): (f64, f64),
        top_per_s: f64,
    ) -> Option<Candidate> {
        let mut per_s = low.min(top_per_s);
        if let Some(failed) = self.failed_at_per_s {
            per_s = per_s.min(failed / DOWN);
        }
        let lowest = per_s / AWAY_MAX;
        while per_s > lowest && belief.holds(per_s) < CANDIDATE_HOLDS {
            per_s /= STEP;
        }
        let mut above_per_s = high;
        if let Some(held) = self.held_above_per_s {
            above_per_s = above_per_s.max(held * DOWN);
        }
        let highest = above_per_s * AWAY_MAX;
        while above_per_s < highest && belief.holds(above_per_s) > ABOVE_HOLDS {
            above_per_s *= STEP;
        }
        // As they are tried.
        let per_s = four_digits(per_s);
        let above_per_s = four_digits(above_per_s.min(top_per_s));
        (above_per_s > per_s).then_some(Candidate {
            per_s,
            above_per_s,
            held: 0,
            above_held: 0,
            above_failed: 0,
            minute_s: None,
        })
    }

    pub(super) fn is_begun(&self) -> bool {
        self.candidate.is_some() && !self.is_through()
    }

    pub(super) fn is_through(&self) -> bool {
        let is_done = |one: &Candidate| one.is_repeated() && one.minute_s.is_some();
        self.candidate.as_ref().is_some_and(is_done)
    }

    /// What is proven so far: that it held five times, and for a minute if there was time for it.
    pub(super) fn proven(&self) -> Option<&Candidate> {
        self.candidate.as_ref().filter(|one| one.is_repeated())
    }
}
