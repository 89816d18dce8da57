//! The first look: upwards from low in large steps, so that a server whose latency falls with the
//! rate before it rises is seen, and not bisected blindly.

use super::{RATE_FLOOR_PER_S, RateRow, Stage};

/// From one rate to the next.
pub(super) const FACTOR: f64 = 1.6;

/// Failures in a row that end the way up: a dip that is narrower than a factor of 2.5 has at most
/// two of these rates in it, and is passed.
const FAILS_MAX: usize = 3;

/// Trials of a rate that contradicts the others: the majority decides.
const TRIALS_MAX: u32 = 3;

/// How often rates were held, in the order of the rates.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    begin_per_s: f64,
    rates: Vec<RateRow>,
}

impl RateRow {
    /// By the majority; a draw has not held.
    fn holds(&self) -> bool {
        self.held > self.failed
    }

    /// The next rate on the way down.
    fn down_per_s(&self) -> f64 {
        self.rate_per_s / FACTOR.powi(2)
    }

    fn is_settled(&self) -> bool {
        self.held.max(self.failed) > TRIALS_MAX / 2
    }
}

impl Sweep {
    pub(super) fn new(begin_per_s: f64) -> Self {
        Self {
            begin_per_s,
            rates: Vec::new(),
        }
    }

    /// No trial said anything about the server.
    pub(super) fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    pub(super) fn learn(&mut self, rate_per_s: f64, holds: bool) {
        let rate = RateRow::of_rate(&mut self.rates, rate_per_s);
        if holds {
            rate.held += 1;
        } else {
            rate.failed += 1;
        }
    }

    /// The next rate, and why; `None`: it has seen enough. From the ceiling on the client is the limit.
    pub(super) fn next(&self, rate_max_per_s: f64, ceiling_per_s: f64) -> Option<(f64, Stage)> {
        let below = |per_s: f64| match per_s < ceiling_per_s {
            true => per_s,
            false => ceiling_per_s / FACTOR,
        };
        let down = |per_s| {
            let per_s = below(per_s);
            (per_s >= RATE_FLOOR_PER_S).then_some((per_s, Stage::Sweep))
        };
        let Some(highest) = self.rates.last() else {
            return match self.begin_per_s < ceiling_per_s {
                true => Some((self.begin_per_s, Stage::Sweep)),
                false => down(self.begin_per_s),
            };
        };
        let fails = self.rates.iter().rev().take_while(|rate| !rate.holds());
        let up_per_s = (highest.rate_per_s * FACTOR).min(rate_max_per_s);
        let can_rise = up_per_s > highest.rate_per_s && up_per_s < ceiling_per_s;
        if fails.count() < FAILS_MAX && can_rise {
            return Some((up_per_s, Stage::Sweep));
        }
        if self.held_per_s().is_none() {
            return down(self.rates[0].down_per_s());
        }
        self.contradiction().map(|per_s| (per_s, Stage::Settle))
    }

    /// A rate that has to be tried again: where one that failed is below one that held, either may
    /// have been noise.
    fn contradiction(&self) -> Option<f64> {
        let top = self.top()?;
        let fails_below = || self.rates[..top].iter().filter(|rate| !rate.holds());
        let doubtful = fails_below().find(|rate| !rate.is_settled());
        let is_contradicted = fails_below().next().is_some();
        let top = &self.rates[top];
        let top = (is_contradicted && !top.is_settled()).then_some(top);
        top.or(doubtful).map(|rate| rate.rate_per_s)
    }

    fn top(&self) -> Option<usize> {
        self.rates.iter().rposition(RateRow::holds)
    }

    /// The highest rate that held.
    pub(super) fn held_per_s(&self) -> Option<f64> {
        self.top().map(|index| self.rates[index].rate_per_s)
    }

    /// The lowest rate above it, which has failed.
    pub(super) fn failed_above_per_s(&self) -> Option<f64> {
        let above = self.rates.get(self.top()? + 1);
        above.map(|rate| rate.rate_per_s)
    }

    /// Whether no rate holds, down to the lowest.
    pub(super) fn has_given_up(&self) -> bool {
        let lowest = self.rates.first();
        self.top().is_none() && lowest.is_some_and(|rate| rate.down_per_s() < RATE_FLOOR_PER_S)
    }

    /// The highest rate that failed though a higher one held, or 0: what was seen up to it says
    /// nothing about the capacity.
    pub(super) fn above_dips_per_s(&self) -> f64 {
        let below = &self.rates[..self.top().unwrap_or(0)];
        let dip = below.iter().rfind(|rate| !rate.holds());
        dip.map_or(0.0, |rate| rate.rate_per_s)
    }
}
