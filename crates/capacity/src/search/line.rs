//! How far, not only whether: the share of requests beyond the bound of a condition as a function of
//! the rate, and the rate at which that is what the condition allows.
//!
//! Near its end, the waiting time of a queue decays exponentially, at a rate that falls in a straight
//! line with what is offered (exactly so for M/M/1, in heavy traffic for all: Kingman 1962). So the
//! logarithm of the share that waits longer than a bound is a straight line, too:
//!
//! ```text
//! ln(share / allowed) = slope * ln(rate / capacity)
//! ```
//!
//! The line is fitted to the counts of all long trials nearby by quasi-likelihood (Wedderburn 1974):
//! the variance of a count is its expectation times a dispersion, which holds what requests of one
//! trial have in common, their queue above all. It is estimated from how much trials differ, so no
//! request is taken for independent of the next. A share is a mean: it has no bias from short trials,
//! as a percentile has. The interval is Fieller's (1954), for the point where a line crosses a level.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// What a trial measured of one condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Requests beyond the bound.
    pub beyond: u64,
    /// Requests in all.
    pub of: u64,
    /// The part of them that may be: 0.01 for a 99th percentile.
    pub allowed: f64,
    /// The bound, where it is one of time.
    pub bound_s: Option<f64>,
}

/// A long trial as the line sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) rate_per_s: f64,
    pub(super) seconds: f64,
    pub(super) share: Share,
}

/// Where a fitted line crosses what is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub(super) capacity_per_s: f64,
    low: f64,
    high: f64,
    /// Of the logarithm of the share over that of the rate.
    slope: f64,
    /// Trials that it rests on.
    pub(super) trials: usize,
}

/// Trials that a line needs.
const TRIALS_MIN: usize = 6;

/// Requests beyond the bound that it needs, all trials together.
const BEYOND_MIN: u64 = 30;

/// Where trials differ by more than that, some have next to nothing beyond the bound and others next to
/// everything. Simulated queues have 3 to 15, a server that falls over has 25 to 300.
const DISPERSION_MAX: f64 = 20.0;

/// A step describes trials better than a line if it leaves this part of the deviance at most.
const STEP_LEAVES_MAX: f64 = 0.5;

/// An interval with such a ratio of its ends says nothing: the slope is not known yet.
const WIDTH_MAX: f64 = 1.25;

/// More than that is not made up for: the logarithm of what a trial has of the long run's share.
const LEFT_OUT_MIN: f64 = -4.0;

/// The variance of a share grows with this power of its expectation. What is slow comes in clusters
/// whose number and size both grow with the rate; simulated queues have 1.4 to 1.7.
const POWER: f64 = 1.5;

/// What the trials near the capacity are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Too few to tell.
    Unknown,
    /// Shares that rise with the rate.
    Line(Crossing),
    /// Next to nothing beyond the bound in some, next to everything in others.
    Step,
}

impl Crossing {
    /// The rates between which the capacity lies, at the level that was asked for.
    pub(super) fn interval(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The rate at which the share is `times` what is allowed.
    pub(super) fn rate_at(&self, times: f64) -> f64 {
        self.capacity_per_s * (times.ln() / self.slope).exp()
    }
}

impl Shape {
    /// Of trials near the capacity, after a warm-up that begins with nothing waiting.
    pub(super) fn of(points: &[Point], warm_up_s: f64, level: f64) -> Self {
        let beyond: u64 = points.iter().map(|point| point.share.beyond).sum();
        if points.len() < TRIALS_MIN || beyond < BEYOND_MIN {
            return Self::Unknown;
        }
        let Some(line) = Line::through(points) else {
            return Self::Step;
        };
        match line.crossing(warm_up_s, level) {
            _ if line.dispersion > DISPERSION_MAX || line.is_step => Self::Step,
            Some(crossing) if crossing.high / crossing.low <= WIDTH_MAX => Self::Line(crossing),
            _ => Self::Unknown,
        }
    }
}

/// `ln(share / allowed) = level + slope * ln(rate / center)`.
struct Line {
    center_per_s: f64,
    level: f64,
    slope: f64,
    /// Of level and slope: variances and covariance.
    variances: [f64; 3],
    /// Variance of a trial where the share is what is allowed, as a part of its square.
    dispersion: f64,
    /// Whether two levels describe the trials much better.
    is_step: bool,
    trials: usize,
    /// Length and requests of a trial, on average.
    seconds: f64,
    requests: f64,
    /// The condition, beside what was measured of it.
    condition: Share,
}

/// A trial: distance of its rate from the center, share over what is allowed, weight.
struct Row {
    x: f64,
    times: f64,
    weight: f64,
}

impl Line {
    fn through(points: &[Point]) -> Option<Self> {
        let trials = points.len() as f64;
        let center = points
            .iter()
            .map(|point| point.rate_per_s.ln())
            .sum::<f64>()
            / trials;
        let requests = points
            .iter()
            .map(|point| point.share.of as f64)
            .sum::<f64>()
            / trials;
        let rows: Vec<Row> = (points.iter())
            .filter(|point| point.share.of > 0)
            .map(|point| {
                let of = point.share.of as f64;
                Row {
                    x: point.rate_per_s.ln() - center,
                    times: point.share.beyond as f64 / of / point.share.allowed,
                    weight: of / requests,
                }
            })
            .collect();
        let (level, slope) = fitted(&rows)?;
        let [all, first, second] = information(&rows, level, slope);
        let determinant = all * second - first * first;
        if determinant.is_nan() || determinant <= all * second * 1e-9 {
            return None; // all of one rate
        }
        let squares = rows.iter().map(|row| {
            let expected = (level + slope * row.x).exp();
            row.weight * (row.times - expected).powi(2) / expected.powf(POWER)
        });
        let dispersion = squares.sum::<f64>() / (trials - 2.0);
        Some(Self {
            center_per_s: center.exp(),
            level,
            slope,
            variances: [second, -first, all].map(|part| part * dispersion / determinant),
            dispersion,
            is_step: is_step(&rows, level, slope),
            trials: rows.len(),
            seconds: points.iter().map(|point| point.seconds).sum::<f64>() / trials,
            requests,
            condition: points[0].share,
        })
    }

    /// `None`: the slope may be none.
    fn crossing(&self, warm_up_s: f64, level: f64) -> Option<Crossing> {
        let student = StudentsT::new(0.0, 1.0, (self.trials - 2) as f64).ok()?;
        let scale = student.inverse_cdf(f64::midpoint(1.0, level)).powi(2);
        // Where (level + slope x)^2 is at most t^2 times its variance.
        let [of_level, both, of_slope] = self.variances;
        let square = self.slope * self.slope - scale * of_slope;
        let half = self.level * self.slope - scale * both;
        let rest = self.level * self.level - scale * of_level;
        let root = (half * half - square * rest).max(0.0).sqrt();
        if !(self.slope > 0.0 && square > 0.0) {
            return None;
        }
        let left_out = self.left_out(warm_up_s) / self.slope;
        let rate = |x: f64| self.center_per_s * (x + left_out).exp();
        Some(Crossing {
            capacity_per_s: rate(-self.level / self.slope),
            low: rate((-half - root) / square),
            high: rate((-half + root) / square),
            slope: self.slope,
            trials: self.trials,
        })
    }

    /// How much smaller the share is in a trial than in the long run, at the capacity: logarithm of
    /// the ratio, 0 or less.
    fn left_out(&self, warm_up_s: f64) -> f64 {
        // A trial has as many arrivals as planned. Those of independent users are as many as chance
        // has it, and the share grows exponentially with them.
        let arrivals = self.requests * (warm_up_s + self.seconds) / self.seconds;
        let of_chance = -self.slope * self.slope / (2.0 * arrivals);
        let of_begin = self.condition.bound_s.map_or(0.0, |bound_s| {
            let share = begin(
                self.slope,
                self.condition.allowed,
                bound_s,
                warm_up_s,
                self.seconds,
            );
            share.ln().max(LEFT_OUT_MIN)
        });
        of_chance + of_begin
    }
}

/// The share beyond the bound in a trial that begins with nothing waiting, over that of the long run,
/// by the diffusion that queues come near to in heavy traffic (J. M. Harrison, *Brownian Motion and
/// Stochastic Flow Systems*, 1985, section 1.8).
///
/// It drifts down by `drift` and has the variance `variance` in a second: in the long run, the bound
/// is exceeded with the probability `exp(-2 drift bound / variance)`, which is `allowed`, and grows
/// with the rate as the line says.
fn begin(slope: f64, allowed: f64, bound_s: f64, warm_up_s: f64, seconds: f64) -> f64 {
    const PARTS: u32 = 64;
    let Ok(normal) = Normal::new(0.0, 1.0) else {
        return 1.0;
    };
    let (drift, variance) = (-allowed.ln() / slope, 2.0 * bound_s / slope);
    let parts = (0..PARTS).map(|part| {
        let at_s = warm_up_s + seconds * (f64::from(part) + 0.5) / f64::from(PARTS);
        let deviation = (variance * at_s).sqrt();
        normal.sf((bound_s - drift * at_s) / deviation)
            + normal.sf((bound_s + drift * at_s) / deviation) / allowed
    });
    parts.sum::<f64>() / f64::from(PARTS)
}

/// Level and slope of the largest quasi-likelihood, by Newton's method: it is concave.
fn fitted(rows: &[Row]) -> Option<(f64, f64)> {
    const STEPS_MAX: usize = 60;
    const FAR: f64 = 1.0;
    let mean = rows.iter().map(|row| row.times * row.weight).sum::<f64>() / rows.len() as f64;
    let widest = rows.iter().fold(0.0_f64, |most, row| most.max(row.x.abs()));
    let (mut level, mut slope) = (mean.ln(), 20.0);
    for _ in 0..STEPS_MAX {
        let (mut score, mut score_slope) = (0.0, 0.0);
        let [mut all, mut first, mut second] = [0.0; 3];
        for Row { x, times, weight } in rows {
            let expected = (level + slope * x).exp();
            let scaled = weight * expected.powf(1.0 - POWER);
            let rest = scaled * (times - expected);
            score += rest;
            score_slope += rest * x;
            let curvature = scaled * ((2.0 - POWER) * expected + (POWER - 1.0) * times);
            all += curvature;
            first += curvature * x;
            second += curvature * x * x;
        }
        let determinant = all * second - first * first;
        let step = (second * score - first * score_slope) / determinant;
        let step_slope = (all * score_slope - first * score) / determinant;
        let length = step.abs() + step_slope.abs() * widest;
        if !length.is_finite() {
            return None;
        }
        // A step that is too long may overflow.
        let part = (FAR / length).min(1.0);
        level += part * step;
        slope += part * step_slope;
        if length < 1e-9 {
            return Some((level, slope));
        }
    }
    None
}

/// Whether one share below some rate and another one above it leave less than a part of what the line
/// leaves unexplained.
fn is_step(rows: &[Row], level: f64, slope: f64) -> bool {
    let unexplained = |row: &Row, expected: f64| {
        // The deviance of a Tweedie distribution of power 3/2.
        let expected = expected.max(f64::MIN_POSITIVE);
        4.0 * row.weight * (row.times.sqrt() - expected.sqrt()).powi(2) / expected.sqrt()
    };
    let by_line = rows
        .iter()
        .map(|row| unexplained(row, (level + slope * row.x).exp()));
    let by_line: f64 = by_line.sum();
    let by_levels = |split: f64| -> f64 {
        let (below, above): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.x < split);
        let sides = [below, above].map(|side| {
            let weight: f64 = side.iter().map(|row| row.weight).sum();
            let mean = side.iter().map(|row| row.weight * row.times).sum::<f64>() / weight;
            side.iter().map(|row| unexplained(row, mean)).sum::<f64>()
        });
        sides.iter().sum()
    };
    let least = rows
        .iter()
        .map(|row| by_levels(row.x))
        .fold(f64::INFINITY, f64::min);
    least < STEP_LEAVES_MAX * by_line
}

/// Of level and slope, at a dispersion of 1.
fn information(rows: &[Row], level: f64, slope: f64) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for Row { x, weight, .. } in rows {
        let known = weight * (level + slope * x).exp().powf(2.0 - POWER);
        sums[0] += known;
        sums[1] += known * x;
        sums[2] += known * x * x;
    }
    sums
}
