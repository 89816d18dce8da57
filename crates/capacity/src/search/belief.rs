//! What the trials so far say about the capacity: a posterior over it, over how much it differs from
//! trial to trial, and over how often a trial is decided by something else.
//!
//! A trial at rate `r` holds with the probability
//!
//! ```text
//! wrongly held + (1 - wrongly failed - wrongly held) / (1 + exp((ln r - ln capacity) / scale))
//! ```
//!
//! so the capacity is the rate at which a trial is as likely to hold as not, hiccups apart. Scale and
//! the two shares are nuisances: they are summed over. A short trial has more scale: it may end
//! before a queue has grown, so near the capacity it says little.
//!
//! The next rate is the one after which the capacity is expected to be least uncertain (the psi
//! method of Kontsevich and Tyler, Vision Research 39, 1999, with the nuisances summed over as by
//! Prins, Journal of Vision 13, 2013). Near the end that is what probabilistic bisection does.

use std::ops::Range;

use super::Length;

/// Ratio of neighbouring rates: the finest resolution of an interval.
pub(super) const STEP: f64 = 1.01;

/// How much the capacity differs from trial to trial: logarithmic, so about a part of it.
const SCALES: [f64; 6] = [0.0025, 0.006, 0.012, 0.025, 0.05, 0.1];

/// What a short trial adds to that: a server that is 10 % over its capacity takes seconds to be found
/// out.
const SHORT_SCALE: f64 = 0.08;

/// Shares of trials that fail though the rate holds (a neighbour on the machine, say), and that hold
/// though it does not.
const LAPSES: [(f64, f64); 3] = [(0.005, 0.005), (0.03, 0.01), (0.10, 0.02)];

/// Shares of the posterior at which the next rate is looked for, and how far beyond its ends.
const CANDIDATES: [f64; 9] = [0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99];

/// Grid points: a factor of 30 between the ends, more than any two neighbours of the sweep are apart.
const POINTS_MAX: usize = 350;

/// A posterior on a grid of rates.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    /// Logarithm of the lowest rate.
    origin: f64,
    points: usize,
    /// By scale and lapse, then by capacity.
    weights: Vec<Vec<f64>>,
    /// How likely a trial holds, hiccups apart, by scale: `curves[length][scale][capacity - rate]`,
    /// the difference in grid points, shifted so that it is not negative.
    curves: [Vec<Vec<f64>>; 2],
}

impl Belief {
    /// Of a capacity that lies anywhere between two rates.
    pub(super) fn between(low_per_s: f64, high_per_s: f64) -> Self {
        let step = STEP.ln();
        let points = ((high_per_s / low_per_s).ln() / step).ceil() as usize + 1;
        let points = points.clamp(2, POINTS_MAX);
        let curve = |scale: f64| -> Vec<f64> {
            let differences = 0..2 * points - 1;
            differences
                .map(|at| {
                    let above = (at as f64 - (points - 1) as f64) * step;
                    1.0 / (1.0 + (-above / scale).exp())
                })
                .collect()
        };
        let short = SCALES.map(|scale| curve(scale.hypot(SHORT_SCALE)));
        let long = SCALES.map(curve);
        Self {
            origin: low_per_s.ln(),
            points,
            weights: vec![vec![1.0; points]; SCALES.len() * LAPSES.len()],
            curves: [short.to_vec(), long.to_vec()],
        }
    }

    /// Learns what came of a trial.
    pub(super) fn learn(&mut self, rate_per_s: f64, length: Length, holds: bool) {
        let at = self.nearest(rate_per_s);
        let shift = self.points - 1 - at;
        let curves = &self.curves[length as usize];
        let mut most = 0.0_f64;
        for (index, weights) in self.weights.iter_mut().enumerate() {
            let curve = &curves[index / LAPSES.len()][shift..];
            let (wrongly_failed, wrongly_held) = LAPSES[index % LAPSES.len()];
            let span = 1.0 - wrongly_failed - wrongly_held;
            for (weight, held) in weights.iter_mut().zip(curve) {
                let held = wrongly_held + span * held;
                *weight *= if holds { held } else { 1.0 - held };
                most = most.max(*weight);
            }
        }
        for weight in self.weights.iter_mut().flatten() {
            *weight /= most;
        }
    }

    /// The next rate to try: the one that is expected to say most, of those below `below_per_s`.
    pub(super) fn most_telling(&self, below_per_s: f64) -> f64 {
        let capacities = self.capacities();
        let bound = self.nearest(below_per_s);
        let mut candidates: Vec<usize> = CANDIDATES
            .iter()
            .map(|share| quantile_index(&capacities, *share).min(bound))
            .collect();
        candidates.dedup();
        let mut best = (f64::INFINITY, candidates[0]);
        for at in candidates {
            let uncertainty = self.expected_entropy(at, &capacities);
            if uncertainty < best.0 {
                best = (uncertainty, at);
            }
        }
        self.rate(best.1)
    }

    /// How uncertain the capacity is expected to be after a long trial at a grid point; `all` is what it
    /// is now.
    fn expected_entropy(&self, at: usize, all: &[f64]) -> f64 {
        let shift = self.points - 1 - at;
        let mut held = vec![0.0; self.points];
        for (index, weights) in self.weights.iter().enumerate() {
            let curve = &self.curves[Length::Long as usize][index / LAPSES.len()][shift..];
            let (wrongly_failed, wrongly_held) = LAPSES[index % LAPSES.len()];
            let span = 1.0 - wrongly_failed - wrongly_held;
            for (held, (weight, curve)) in held.iter_mut().zip(weights.iter().zip(curve)) {
                *held += weight * (wrongly_held + span * curve);
            }
        }
        let failed: Vec<f64> = all
            .iter()
            .zip(&held)
            .map(|(all, held)| all - held)
            .collect();
        // Of an outcome times its probability; the common factor does not matter.
        let entropy = |part: &[f64]| {
            let sum: f64 = part.iter().sum();
            let terms = part.iter().filter(|one| **one > 0.0);
            terms.map(|one| -one * (one / sum).ln()).sum::<f64>()
        };
        entropy(&held) + entropy(&failed)
    }

    /// The range that holds the capacity with a probability of `level`, as much beyond it on either
    /// side.
    pub(super) fn interval(&self, level: f64) -> (f64, f64) {
        let capacities = self.capacities();
        let tail = (1.0 - level) / 2.0;
        let low = quantile_index(&capacities, tail);
        let high = quantile_index(&capacities, 1.0 - tail);
        // A grid point stands for the rates around it.
        let half = STEP.sqrt();
        (self.rate(low) / half, self.rate(high) * half)
    }

    /// The rate that the capacity is as likely to be above as below.
    pub(super) fn median(&self) -> f64 {
        self.rate(quantile_index(&self.capacities(), 0.5))
    }

    /// How likely the capacity is so near to an end of the grid that it may be beyond it: below and
    /// above.
    pub(super) fn at_ends(&self) -> (f64, f64) {
        let capacities = self.capacities();
        let all: f64 = capacities.iter().sum();
        let margin = (self.points / 30).max(2);
        let below: f64 = capacities[..margin].iter().sum();
        let above: f64 = capacities[self.points - margin..].iter().sum();
        (below / all, above / all)
    }

    /// The lowest and the highest rate of the grid.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.rate(0), self.rate(self.points - 1))
    }

    /// Whether the grid cannot grow.
    pub(super) fn is_full(&self) -> bool {
        self.points >= POINTS_MAX
    }

    /// How likely a long trial at a rate is to hold, hiccups apart.
    pub(super) fn holds(&self, rate_per_s: f64) -> f64 {
        self.predicted(rate_per_s, |_, curve| curve)
    }

    /// How likely the next long trial at a rate is to hold, hiccups and all: the posterior predictive.
    pub(super) fn holds_next(&self, rate_per_s: f64) -> f64 {
        self.predicted(rate_per_s, |(wrongly_failed, wrongly_held), curve| {
            wrongly_held + (1.0 - wrongly_failed - wrongly_held) * curve
        })
    }

    fn predicted(&self, rate_per_s: f64, with: impl Fn((f64, f64), f64) -> f64) -> f64 {
        let shift = self.points - 1 - self.nearest(rate_per_s);
        let (mut held, mut all) = (0.0, 0.0);
        for (index, weights) in self.weights.iter().enumerate() {
            let curve = &self.curves[Length::Long as usize][index / LAPSES.len()][shift..];
            let lapses = LAPSES[index % LAPSES.len()];
            for (weight, curve) in weights.iter().zip(curve) {
                held += weight * with(lapses, *curve);
                all += weight;
            }
        }
        held / all
    }

    /// The rates that the larger and the smaller share of the long trials hold, hiccups apart, with at
    /// least a part of the capacity between it and each.
    pub(super) fn around(&self, shares: (f64, f64), reach_min: f64) -> (f64, f64) {
        let median = self.median();
        (
            self.rate_held_by(shares.1).min(median * (1.0 - reach_min)),
            self.rate_held_by(shares.0).max(median * (1.0 + reach_min)),
        )
    }

    /// The rate that this share of the long trials hold, as nearly as the grid has it. The higher a rate,
    /// the fewer hold it.
    fn rate_held_by(&self, share: f64) -> f64 {
        let median = quantile_index(&self.capacities(), 0.5);
        let is_held = |at: usize| self.holds(self.rate(at));
        let at = match is_held(median) < share {
            true => last_true(0..median, |at| is_held(at) >= share),
            false => last_true(median..self.points - 1, |at| is_held(at) > share) + 1,
        };
        self.rate(at.min(self.points - 1))
    }

    /// By how much the capacity of one trial differs from that of another: standard deviation, as a
    /// part of it.
    pub(super) fn spread(&self) -> f64 {
        let (mut sum, mut all) = (0.0, 0.0);
        for (index, weights) in self.weights.iter().enumerate() {
            let weight: f64 = weights.iter().sum();
            sum += weight * SCALES[index / LAPSES.len()];
            all += weight;
        }
        // Of the logistic distribution.
        sum / all * std::f64::consts::PI / 3.0_f64.sqrt()
    }

    /// The posterior of the capacity alone, not scaled.
    fn capacities(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.points];
        for weights in &self.weights {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += weight;
            }
        }
        sums
    }

    fn nearest(&self, rate_per_s: f64) -> usize {
        let at = (rate_per_s.ln() - self.origin) / STEP.ln();
        // A rate beyond the grid is taken for its end: it says the same of all that is on it.
        at.round().clamp(0.0, (self.points - 1) as f64) as usize
    }

    fn rate(&self, at: usize) -> f64 {
        (self.origin + at as f64 * STEP.ln()).exp()
    }
}

/// The last number for which `is_true` is, of a range that begins with those for which it is: its first
/// one, if it is for none.
fn last_true(range: Range<usize>, is_true: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while high - low > 1 {
        let middle = low.midpoint(high);
        match is_true(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// The first point up to which a share of the weights lies.
fn quantile_index(weights: &[f64], share: f64) -> usize {
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let at = weights.iter().position(|weight| {
        sum += weight;
        sum >= share * all
    });
    at.unwrap_or(weights.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_a_trial() {
        let belief = Belief::between(1000.0, 4000.0);
        assert!((belief.median() / 2000.0 - 1.0).abs() < 0.01);
        let (low, high) = belief.interval(0.9);
        assert!(low < 1100.0 && high > 3700.0, "{low} {high}");
    }

    #[test]
    fn bisection_without_noise() {
        let truth = 2718.0;
        let mut belief = Belief::between(1000.0, 4000.0);
        for _ in 0..25 {
            let rate = belief.most_telling(f64::INFINITY);
            belief.learn(rate, Length::Long, rate <= truth);
        }
        let (low, high) = belief.interval(0.95);
        assert!(
            low <= truth && truth <= high && high / low < 1.05,
            "{low} {high}"
        );
        assert!(belief.spread() < 0.02);
        assert!(belief.holds(2500.0) > 0.99 && belief.holds(3000.0) < 0.01);
    }

    #[test]
    fn a_short_trial_says_less_near_the_capacity() {
        let after = |length| {
            let mut belief = Belief::between(1000.0, 4000.0);
            belief.learn(2000.0, length, true);
            belief.interval(0.9).0
        };
        assert!(after(Length::Short) < after(Length::Long));
        assert!(after(Length::Short) > 1100.0);
    }

    #[test]
    fn shares_of_trials_are_found_on_the_grid() {
        let mut belief = Belief::between(1000.0, 4000.0);
        for (rate, holds) in [
            (2000.0, true),
            (2100.0, true),
            (2300.0, false),
            (2200.0, false),
        ] {
            belief.learn(rate, Length::Long, holds);
        }
        for share in [0.999, 0.9, 0.5, 0.3, 0.1, 0.001] {
            let walked = (0..belief.points).find(|at| belief.holds(belief.rate(*at)) <= share);
            let walked = belief.rate(walked.unwrap_or(belief.points - 1));
            let found = belief.rate_held_by(share);
            assert!(
                (found / walked).ln().abs() < 1.5 * STEP.ln(),
                "{share}: {found} {walked}"
            );
        }
    }

    #[test]
    fn beyond_the_grid_is_noticed() {
        let mut belief = Belief::between(1000.0, 1600.0);
        for _ in 0..6 {
            belief.learn(1590.0, Length::Long, true);
        }
        let (below, above) = belief.at_ends();
        assert!(below < 0.01 && above > 0.5, "{below} {above}");
    }
}
