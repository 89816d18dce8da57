//! Gunther's Universal Scalability Law, fitted to throughput over N, with intervals.
//!
//! ```text
//!             lambda N                        lambda  throughput of one
//!  X(N) = ───────────────────────────────     sigma   contention: what has to wait in line
//!         1 + sigma (N-1) + kappa N (N-1)     kappa   coherency: what all have to agree on
//! ```
//!
//! With kappa above 0 the throughput has a peak, at `sqrt((1 - sigma) / kappa)`. A kappa that cannot
//! be distinguished from 0 gives some huge number there, which is why no peak is claimed then. What N is
//! (clients, threads, loops) is the caller's to say, in the title.
//!
//! Measurements of one block share what the machine was like then: that is drawn once for a block, and
//! what is left of the residuals once for each measurement. Where replicates differ less than the levels
//! do from the curve, the law does not fit, and no peak is claimed of it (the test for lack of fit:
//! Draper and Smith, *Applied Regression Analysis*, 2.1).
//!
//! N. J. Gunther, *Guerrilla Capacity Planning* (2007), chapters 4 to 6; the intervals are by drawing
//! the residuals again (Davison and Hinkley, *Bootstrap Methods and their Application*, 6.2 and 7.3).

mod fit;
mod noise;
#[cfg(test)]
mod tests;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::stats::{Interval, LEVEL, quantile};
use fit::{Model, fit, fit_free};
use noise::Noise;

/// Levels of N that a fit needs: three parameters from fewer fit anything.
pub const LEVELS_MIN: usize = 6;

/// How often residuals are drawn again.
const RESAMPLES: usize = 2000;

/// So unlikely has what is left to be where the law is right for it not to fit: a report has dozens of
/// curves.
const LACK_OF_FIT_P: f64 = 0.01;

/// A peak beyond this multiple of the largest N that was measured is not believed.
pub const EXTRAPOLATION_MAX: f64 = 2.0;

/// What every measurement counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weighting {
    /// The same: noise does not depend on the throughput.
    Equal,
    /// As a part of itself: noise grows with the throughput, as it does in most measurements.
    Relative,
}

/// A fitted law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Throughput of one, per second.
    pub lambda: Parameter,
    /// Contention.
    pub sigma: Parameter,
    /// Coherency.
    pub kappa: Parameter,
    /// How likely a kappa as large as this is where it really is 0.
    pub kappa_p: f64,
    /// How likely levels that are as far from the curve are where the law is right; `None`: there are
    /// no replicates to compare them with.
    #[serde(default)]
    pub lack_of_fit_p: Option<f64>,
    /// The peak, where one is shown.
    pub peak: Option<Peak>,
    /// What is said of the peak, in a sentence.
    pub peak_claim: String,
    /// Share of the variance that the law explains (R squared).
    pub explained: f64,
    /// Largest N that was measured.
    pub n_max: f64,
    /// Measurements.
    pub measurements: usize,
}

/// A parameter and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The best fit.
    pub value: f64,
    /// 95 %.
    pub interval: Interval,
}

/// The peak of the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Where it is.
    pub n: Parameter,
    /// The throughput there, per second.
    pub per_s: f64,
}

impl Usl {
    /// Fits measurements `(N, throughput per second)`; replicates are several with the same N. `blocks`
    /// has the block of each, or is empty if they share nothing.
    ///
    /// # Errors
    /// Fewer than [`LEVELS_MIN`] levels of N, a level below 1, or a throughput that is not above 0.
    pub fn fit(
        points: &[(f64, f64)],
        blocks: &[u32],
        weighting: Weighting,
        seed: u64,
    ) -> Result<Self, FitError> {
        check(points)?;
        let model = fit(points, weighting);
        let noise = Noise::of(points, blocks, &residuals(points, &model, weighting));
        let resampled = resample(points, &model, &noise, weighting, seed);
        let free = fit_free(points, weighting);
        let kappa_p = p_of_kappa(&free, &resampled);
        let n_max = points.iter().fold(0.0_f64, |most, point| most.max(point.0));
        let (peak, peak_claim) = match noise.lack_of_fit_p.filter(|p| *p < LACK_OF_FIT_P) {
            Some(p) => (None, no_fit(p)),
            None => peak(&model, &resampled, kappa_p, n_max),
        };
        let of = |value: f64, pick: fn(&Model) -> f64| Parameter {
            value,
            interval: interval(resampled.iter().map(pick).collect(), value),
        };
        Ok(Self {
            lambda: of(model.lambda, |model| model.lambda),
            sigma: of(model.sigma, |model| model.sigma.max(0.0)),
            kappa: of(model.kappa, |model| model.kappa.max(0.0)),
            kappa_p,
            lack_of_fit_p: noise.lack_of_fit_p,
            peak,
            peak_claim,
            explained: explained(points, &model),
            n_max,
            measurements: points.len(),
        })
    }
}

/// Why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum FitError {
    /// This number of levels.
    #[error("the scalability law needs at least {LEVELS_MIN} levels of N, there are {0}")]
    TooFewLevels(usize),
    /// A measurement outside of what the law is about.
    #[error(
        "the scalability law needs N of at least 1 and throughputs above 0, not {per_s} at N = {n}"
    )]
    Unsound {
        /// What works at once.
        n: f64,
        /// The throughput.
        per_s: f64,
    },
}

fn check(points: &[(f64, f64)]) -> Result<(), FitError> {
    let mut levels: Vec<f64> = points.iter().map(|point| point.0).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    if levels.len() < LEVELS_MIN {
        return Err(FitError::TooFewLevels(levels.len()));
    }
    let is_sound = |(n, x): &(f64, f64)| *n >= 1.0 && n.is_finite() && *x > 0.0 && x.is_finite();
    match points.iter().find(|point| !is_sound(point)) {
        Some(&(n, per_s)) => Err(FitError::Unsound { n, per_s }),
        None => Ok(()),
    }
}

fn no_fit(p: f64) -> String {
    format!(
        "the law does not fit: levels are further from the curve than their trials are from each other \
         (p = {p:.2}): no peak claimed"
    )
}

/// How far each measurement is from the curve, as it counts.
fn residuals(points: &[(f64, f64)], model: &Model, weighting: Weighting) -> Vec<f64> {
    let residual = |(n, x): &(f64, f64)| match weighting {
        Weighting::Equal => x - model.at(*n),
        Weighting::Relative => (x / model.at(*n)).ln(),
    };
    points.iter().map(residual).collect()
}

/// Fits of made-up measurements: the fitted curve with noise drawn again. Kappa and sigma may be below
/// 0 here, since a bound would hide how uncertain they are.
fn resample(
    points: &[(f64, f64)],
    model: &Model,
    noise: &Noise,
    weighting: Weighting,
    seed: u64,
) -> Vec<Model> {
    let fitted: Vec<f64> = points.iter().map(|(n, _)| model.at(*n)).collect();
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let mut drawn = points.to_vec();
    (0..RESAMPLES)
        .map(|_| {
            let noises = noise.draw(&mut generator);
            for ((point, fitted), noise) in drawn.iter_mut().zip(&fitted).zip(noises) {
                point.1 = match weighting {
                    Weighting::Equal => (fitted + noise).max(fitted * 0.01),
                    Weighting::Relative => fitted * noise.exp(),
                };
            }
            fit_free(&drawn, weighting)
        })
        .collect()
}

/// One-sided: of how many resamples the kappa is as far below what was found as 0 is.
fn p_of_kappa(free: &Model, resampled: &[Model]) -> f64 {
    let beyond = resampled.iter().filter(|model| model.kappa <= 0.0).count();
    if free.kappa <= 0.0 {
        return 1.0;
    }
    (beyond + 1) as f64 / (resampled.len() + 1) as f64
}

fn peak(model: &Model, resampled: &[Model], kappa_p: f64, n_max: f64) -> (Option<Peak>, String) {
    if model.kappa <= 0.0 || kappa_p > (1.0 - LEVEL) / 2.0 {
        let claim = "kappa is not distinguishable from 0: no peak claimed";
        return (None, claim.to_owned());
    }
    let at = model.peak_n();
    let places = resampled.iter().map(Model::peak_n).collect();
    let n = Parameter {
        value: at,
        interval: interval(places, at),
    };
    if at > n_max * EXTRAPOLATION_MAX || !n.interval.high.is_finite() {
        let claim = format!(
            "the peak would be at N = {at:.0}, too far beyond {n_max:.0}, the largest N that was \
             measured: no peak claimed"
        );
        return (None, claim);
    }
    let per_s = model.at(at);
    let claim = format!(
        "the peak is at N = {at:.0} ({:.0} to {:.0})",
        n.interval.low, n.interval.high
    );
    (Some(Peak { n, per_s }), claim)
}

fn interval(mut values: Vec<f64>, value: f64) -> Interval {
    values.push(value);
    let tail = (1.0 - LEVEL) / 2.0;
    Interval {
        low: quantile(&values, tail).unwrap_or(value),
        high: quantile(&values, 1.0 - tail).unwrap_or(value),
        level: LEVEL,
    }
}

fn explained(points: &[(f64, f64)], model: &Model) -> f64 {
    let throughputs: Vec<f64> = points.iter().map(|point| point.1).collect();
    let mean = crate::stats::mean(&throughputs);
    let all: f64 = throughputs.iter().map(|x| (x - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|(n, x)| (x - model.at(*n)).powi(2)).sum();
    if all == 0.0 { 1.0 } else { 1.0 - left / all }
}
