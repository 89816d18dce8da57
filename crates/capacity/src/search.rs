//! The highest rate that a server holds, from trials that may be wrong: which trial comes next, and
//! what can be said in the end. Pure: it takes in what was measured, and never measures itself.
//!
//! ```text
//!   sweep     short trials, each rate 1.6 times the last, until three in a row fail
//!   settle    rates that contradict their order are tried again: noise, or a dip?
//!   narrow    long trials where they say most, until the interval is narrow
//!   confirm   the candidate has to hold 5 of 5 and for a minute, a rate one step above has to fail
//! ```
//!
//! **Capacity** is the rate at which a trial is as likely to hold as not. Where trials differ from
//! each other, a rate that always holds is below it; the confirmed rate is such a one.
//!
//! What is known from the literature: geometric steps and repeated confirmation (MLPerf LoadGen),
//! short trials before long ones (RFC 9971), Bayesian choice of the next trial (see `belief`).

mod aim;
mod belief;
mod confirm;
mod finding;
mod line;
mod sweep;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use belief::{Belief, STEP};
use confirm::Confirm;
pub use finding::{Basis, Bound, Confirmed, Dip, RateRow, SearchFinding};
use line::Shape;
pub use line::Share;
use sweep::Sweep;

/// The interval may be so wide, as a part of the capacity.
pub const WIDTH_MAX: f64 = 0.10;

/// Narrowing goes on until the interval is this wide: what confirmation finds may widen it again.
const WIDTH_WANTED: f64 = 0.07;

/// The share of the posterior that the 95 % interval takes. Stopping as soon as it is narrow favours
/// intervals that are narrow by luck; with this share, 95 % hold the truth (`tests`).
const CREDIBLE: f64 = 0.97;

/// Fewer long trials say nothing of how much trials differ.
const LONG_MIN: usize = 8;

/// The last trial of a confirmation takes at least so long.
const MINUTE_S: f64 = 60.0;

/// Discarded trials in a row after which it is given up.
const DISCARDED_MAX: u32 = 10;

/// The lowest rate: below it, a trial that says anything takes hours.
const RATE_FLOOR_PER_S: f64 = 0.1;

/// What a search may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The rate to begin with.
    pub begin_per_s: f64,
    /// No rate is tried beyond it.
    pub rate_max_per_s: f64,
    /// Time for all trials.
    pub budget_s: f64,
    /// Length of a trial of the sweep.
    pub short_s: f64,
    /// Length of a trial near the capacity.
    pub long_s: f64,
    /// Requests that a trial needs: a percentile is not known from fewer.
    pub requests_min: f64,
    /// Load before a long trial that is not counted; part of `overhead_s`.
    #[serde(default)]
    pub warm_up_s: f64,
    /// What a trial takes beside its length: start, warm-up, end.
    pub overhead_s: f64,
}

/// What does not fit together in the limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum LimitsError {
    /// A rate or a time is 0, negative or no number.
    #[error("rates and times of a search have to be above 0")]
    NotAboveZero,
    /// Something else is negative.
    #[error("overhead, warm-up and requests of a trial cannot be negative")]
    Negative,
    /// The search would begin at a rate that it may not try.
    #[error(
        "the search begins at {begin_per_s} a second; right would be from {RATE_FLOOR_PER_S} to the \
         highest rate, {rate_max_per_s}"
    )]
    Begin {
        /// Where it would begin.
        begin_per_s: f64,
        /// The highest rate.
        rate_max_per_s: f64,
    },
}

impl Limits {
    /// Whether they fit together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), LimitsError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let rates = [self.begin_per_s, self.rate_max_per_s];
        let times = [self.budget_s, self.short_s, self.long_s];
        if !rates.into_iter().chain(times).all(positive) {
            return Err(LimitsError::NotAboveZero);
        }
        let others = [self.overhead_s, self.warm_up_s, self.requests_min];
        if !others.into_iter().all(|value| value >= 0.0) {
            return Err(LimitsError::Negative);
        }
        if self.begin_per_s < RATE_FLOOR_PER_S || self.begin_per_s > self.rate_max_per_s {
            return Err(LimitsError::Begin {
                begin_per_s: self.begin_per_s,
                rate_max_per_s: self.rate_max_per_s,
            });
        }
        Ok(())
    }

    fn seconds(&self, length: Length, stage: Stage, rate_per_s: f64) -> f64 {
        let wanted = match (length, stage) {
            (Length::Short, _) => self.short_s,
            (Length::Long, Stage::Minute) => self.long_s.max(MINUTE_S),
            (Length::Long, _) => self.long_s,
        };
        let seconds = wanted.max(self.requests_min / rate_per_s);
        // As people write it, and as options are read.
        (seconds * 1e3).ceil() / 1e3
    }

    fn cost_s(&self, length: Length, stage: Stage, rate_per_s: f64) -> f64 {
        self.seconds(length, stage, rate_per_s) + self.overhead_s
    }
}

/// How long a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// To see roughly.
    Short = 0,
    /// To rely on.
    Long = 1,
}

/// Why a trial is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Upwards from low, in large steps.
    Sweep,
    /// Again, since it contradicts the others.
    Settle,
    /// Where it says most about the capacity.
    Narrow,
    /// The candidate, which has to hold.
    Confirm,
    /// One step above the candidate, which has to fail.
    Above,
    /// The candidate for a minute: what grows slowly, or comes seldom, is seen.
    Minute,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sweep => "sweep",
            Self::Settle => "settle",
            Self::Narrow => "narrow",
            Self::Confirm => "confirm",
            Self::Above => "above",
            Self::Minute => "minute",
        })
    }
}

/// A trial that is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// The open-loop rate.
    pub rate_per_s: f64,
    /// Length of the measurement, warm-up apart.
    pub seconds: f64,
    /// What kind of trial that is.
    pub length: Length,
    /// Why.
    pub stage: Stage,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Run this, and record what comes of it.
    Try(Try),
    /// Nothing more: see [`Search::finding`].
    Done,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// The rate was held.
    Holds,
    /// It was not.
    Fails,
    /// Nothing can be said of the server: something else went wrong.
    #[serde(alias = "void")]
    Discarded,
    /// Nothing can be said of the server: the client was the limit.
    ClientLimited,
}

/// A trial that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// What was to be run.
    pub trial: Try,
    /// What came of it.
    pub outcome: TrialOutcome,
    /// How many requests were beyond the bound of each condition that has such a share, in the order
    /// of the conditions; empty: that is not known.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Time that it took, all in all.
    pub spent_s: f64,
}

impl Tried {
    /// Whether it held; `None`: it counts for nothing.
    #[must_use]
    pub fn holds(&self) -> Option<bool> {
        match self.outcome {
            TrialOutcome::Holds => Some(true),
            TrialOutcome::Fails => Some(false),
            TrialOutcome::Discarded | TrialOutcome::ClientLimited => None,
        }
    }
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    tried: Vec<Tried>,
    sweep: Sweep,
    /// From the end of the sweep on.
    belief: Option<Belief>,
    /// How the shares of slow requests depend on the rate.
    shape: Shape,
    confirm: Confirm,
    /// The client is the limit from this rate on.
    ceiling_per_s: f64,
    discarded_in_a_row: u32,
    next: Step,
    /// Why it ended before it was through.
    gave_up: Option<String>,
}

impl Search {
    /// A search that has not begun.
    ///
    /// # Errors
    /// Limits that do not fit together.
    pub fn new(mut limits: Limits) -> Result<Self, LimitsError> {
        limits.check()?;
        // As rates are tried: otherwise there would always be a higher one to try.
        limits.rate_max_per_s = four_digits(limits.rate_max_per_s);
        let mut search = Self {
            sweep: Sweep::new(limits.begin_per_s),
            tried: Vec::new(),
            belief: None,
            shape: Shape::Unknown,
            confirm: Confirm::default(),
            ceiling_per_s: f64::INFINITY,
            discarded_in_a_row: 0,
            next: Step::Done,
            gave_up: None,
            limits,
        };
        search.next = search.choose();
        Ok(search)
    }

    /// Records what came of the trial that was to be run next: whether it held, the shares of slow
    /// requests (of the same conditions each time; none, if they are not known), and how long it took
    /// in all. A search that is done takes no notice.
    pub fn record(&mut self, outcome: TrialOutcome, shares: Vec<Share>, spent_s: f64) {
        let Step::Try(trial) = self.next else { return };
        let tried = Tried {
            trial,
            outcome,
            shares,
            spent_s,
        };
        match tried.holds() {
            Some(holds) => {
                self.discarded_in_a_row = 0;
                match trial.stage {
                    Stage::Sweep | Stage::Settle => self.sweep.learn(trial.rate_per_s, holds),
                    Stage::Narrow => {}
                    Stage::Confirm | Stage::Above | Stage::Minute => {
                        self.confirm.learn(trial.stage, trial.seconds, holds);
                    }
                }
                if let Some(belief) = &mut self.belief {
                    belief.learn(trial.rate_per_s, trial.length, holds);
                    self.widen();
                }
            }
            None => self.count_discarded(&tried),
        }
        self.tried.push(tried);
        self.shape = self.shape();
        self.next = self.choose();
    }

    /// What to do; the same until something is recorded.
    #[must_use]
    pub fn next(&self) -> Step {
        self.next
    }

    /// Everything that was tried, in order.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }

    /// Time that trials have taken.
    #[must_use]
    pub fn spent_s(&self) -> f64 {
        self.tried.iter().map(|tried| tried.spent_s).sum()
    }

    /// What can be said so far: at any time, and for good when it is done.
    #[must_use]
    pub fn finding(&self) -> SearchFinding {
        finding::of(self)
    }

    /// A discarded trial is repeated. Where the client was the limit twice in a row, it is the limit of
    /// the search from there on; so is whatever discards two trials in a row above a rate that failed.
    fn count_discarded(&mut self, tried: &Tried) {
        self.discarded_in_a_row += 1;
        let is_again = self.discarded_in_a_row > 1;
        // Beyond a rate that has failed there is nothing to be found by insisting.
        let is_beyond =
            (self.sweep.failed_above_per_s()).is_some_and(|failed| failed < tried.trial.rate_per_s);
        let is_limited = |one: &Tried| one.outcome == TrialOutcome::ClientLimited;
        let is_limit = is_limited(tried) && self.tried.last().is_some_and(is_limited);
        if is_again && (is_limit || is_beyond) {
            self.ceiling_per_s = self.ceiling_per_s.min(tried.trial.rate_per_s);
            self.discarded_in_a_row = 0;
            self.confirm.give_way();
        } else if self.discarded_in_a_row >= DISCARDED_MAX {
            self.gave_up = Some(format!(
                "{DISCARDED_MAX} trials in a row say nothing about the server"
            ));
        }
    }

    fn choose(&mut self) -> Step {
        if self.gave_up.is_some() {
            return Step::Done;
        }
        if self.discarded_in_a_row > 0
            && let Some(last) = self.tried.last()
        {
            return self.afford(last.trial.rate_per_s, last.trial.length, last.trial.stage);
        }
        let limited = (self.tried.iter()).filter(|one| one.outcome == TrialOutcome::ClientLimited);
        if self.sweep.is_empty() && limited.count() >= DISCARDED_MAX as usize {
            let why = "the client is the limit at every rate that was tried";
            self.gave_up = Some(why.to_owned());
            return Step::Done;
        }
        if self.belief.is_none() {
            let rate_max_per_s = self.limits.rate_max_per_s;
            let next = self.sweep.next(rate_max_per_s, self.ceiling_per_s);
            if let Some((rate_per_s, stage)) = next {
                return self.afford(rate_per_s, Length::Short, stage);
            }
            self.believe();
        }
        let Some(belief) = self.belief.take() else {
            return Step::Done; // no rate holds
        };
        let step = self.narrow_or_confirm(&belief);
        self.belief = Some(belief);
        step
    }

    /// Whether rates above those that held could not be tried without a stronger client.
    fn is_capped(&self) -> bool {
        self.ceiling_per_s.is_finite()
    }

    /// Begins a posterior around where the sweep ended, and learns all trials so far that belong to
    /// it: those below a dip say nothing about what is above it.
    fn believe(&mut self) {
        let Some(held_per_s) = self.sweep.held_per_s() else {
            return;
        };
        let floor_per_s = self.sweep.above_dips_per_s();
        let low = (held_per_s / sweep::FACTOR).max(floor_per_s);
        let high = self.sweep.failed_above_per_s().unwrap_or(held_per_s) * sweep::FACTOR;
        self.belief = Some(self.learned(low, high));
        self.widen();
    }

    fn learned(&self, low_per_s: f64, high_per_s: f64) -> Belief {
        let mut belief = Belief::between(low_per_s, high_per_s);
        let floor_per_s = self.sweep.above_dips_per_s();
        let trials = self
            .tried
            .iter()
            .filter(|one| one.trial.rate_per_s > floor_per_s);
        for tried in trials {
            if let Some(holds) = tried.holds() {
                belief.learn(tried.trial.rate_per_s, tried.trial.length, holds);
            }
        }
        belief
    }

    /// Where the capacity may lie beyond the grid, the grid grows.
    fn widen(&mut self) {
        const AT_END_MAX: f64 = 0.03;
        const ROUNDS_MAX: usize = 6;
        for _ in 0..ROUNDS_MAX {
            let Some(belief) = &self.belief else { return };
            let (below, above) = belief.at_ends();
            let (low, high) = belief.ends();
            let floor_per_s = self.sweep.above_dips_per_s().max(RATE_FLOOR_PER_S);
            let next_low = (low / sweep::FACTOR).max(floor_per_s);
            let can_sink = below > AT_END_MAX && next_low < low / STEP;
            let can_rise = above > AT_END_MAX && high < self.top_per_s() * sweep::FACTOR;
            if !can_sink && !can_rise || belief.is_full() {
                return;
            }
            let low = if can_sink { next_low } else { low };
            let high = if can_rise { high * sweep::FACTOR } else { high };
            self.belief = Some(self.learned(low, high));
        }
    }

    /// The highest rate that may be tried.
    fn top_per_s(&self) -> f64 {
        // A step below where the client was the limit.
        self.limits
            .rate_max_per_s
            .min(self.ceiling_per_s / STEP.powi(2))
    }

    /// Whether the highest rate that may be tried was held as often as that can be doubted: each time, or
    /// often enough beside what something else decided.
    fn has_held_at_top(&self, belief: &Belief) -> bool {
        const HOLDS_MIN: usize = 3;
        const HOLDS_SHARE: f64 = 0.95;
        let near = self.top_per_s() / STEP.powi(4);
        let at_top = self.tried.iter().filter(|one| one.trial.rate_per_s >= near);
        let outcomes: Vec<bool> = at_top.filter_map(Tried::holds).collect();
        let held = outcomes.iter().filter(|holds| **holds).count();
        let is_held = || belief.holds(self.top_per_s()) >= HOLDS_SHARE;
        held >= HOLDS_MIN && (held == outcomes.len() || is_held())
    }

    fn highest_held_per_s(&self) -> f64 {
        let held = self.tried.iter().filter(|one| one.holds() == Some(true));
        held.fold(0.0, |most, one| one.trial.rate_per_s.max(most))
    }

    fn narrow_or_confirm(&mut self, belief: &Belief) -> Step {
        let (low, high) = self.interval(belief);
        if high > self.top_per_s() && self.has_held_at_top(belief) {
            return Step::Done;
        }
        let longs = (self.tried.iter()).filter(|one| one.trial.length == Length::Long);
        let is_narrow = high / low - 1.0 <= self.width_wanted() && longs.count() >= LONG_MIN;
        let left_s = self.limits.budget_s - self.spent_s();
        let cost_s = |stage| self.limits.cost_s(Length::Long, stage, low);
        // What is left is kept for the proof, once it suffices for no more.
        let must_confirm =
            left_s < (confirm::TRIALS_MIN + 1.0) * cost_s(Stage::Confirm) + cost_s(Stage::Minute);
        if !self.confirm.is_through()
            && (self.confirm.is_begun() || is_narrow || must_confirm)
            && let Some((rate_per_s, stage)) =
                self.confirm.next(belief, (low, high), self.top_per_s())
        {
            return self.afford(rate_per_s, Length::Long, stage);
        }
        if is_narrow {
            return Step::Done;
        }
        let rate_per_s = self.most_telling(belief);
        self.afford(rate_per_s, Length::Long, Stage::Narrow)
    }

    /// A trial, if there is time for it.
    fn afford(&self, rate_per_s: f64, length: Length, stage: Stage) -> Step {
        let rate_per_s = four_digits(rate_per_s);
        let cost_s = self.limits.cost_s(length, stage, rate_per_s);
        if self.spent_s() + cost_s > self.limits.budget_s {
            return Step::Done;
        }
        Step::Try(Try {
            rate_per_s,
            seconds: self.limits.seconds(length, stage, rate_per_s),
            length,
            stage,
        })
    }
}

/// A rate as people write it: four significant digits, rounded down.
fn four_digits(rate_per_s: f64) -> f64 {
    let decimals = 3 - rate_per_s.log10().floor() as i32;
    let scale = 10.0_f64.powi(decimals.abs());
    // What is whole already stays as it is.
    let nearly = 1.0 + 1e-9;
    match decimals >= 0 {
        true => (rate_per_s * scale * nearly).floor() / scale,
        false => (rate_per_s / scale * nearly).floor() * scale,
    }
}
