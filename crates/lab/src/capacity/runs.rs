//! Searches apart in time: how much the capacity differs from one to the next, which no interval of a
//! single search knows.

use loadline_capacity::stats::{Interval, LEVEL, mean, mean_interval};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Capacity;

/// What several searches have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// What each of them found, this one last.
    pub capacities_per_s: Vec<f64>,
    /// Their geometric mean.
    pub capacity_per_s: f64,
    /// Where the capacity of such searches lies on average, by Student's t over them: with two or three
    /// of them it is wide, since so few say little.
    pub interval: Option<Interval>,
    /// By how much searches differ beyond what their own intervals allow: standard deviation, as a part
    /// of the capacity (the moment estimator of DerSimonian and Laird, 1986, of equal weights).
    pub between: f64,
}

/// Why two searches cannot stand beside each other: one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OtherSearch {
    /// They are for different things.
    #[error("its {what} was '{then}', this search has '{now}'")]
    Differs {
        /// In what they differ.
        what: &'static str,
        /// That of the earlier one.
        then: String,
        /// That of this one.
        now: String,
    },
    /// The earlier one is no figure.
    #[error("it found no capacity with an interval")]
    FoundNoCapacity,
}

impl Runs {
    /// Whether an earlier search can stand beside one of this SLO and server, under these conditions.
    ///
    /// # Errors
    /// What differs, or that it found no capacity.
    pub fn check(
        earlier: &Capacity,
        slo: &str,
        target: &str,
        conditions: &str,
    ) -> Result<(), OtherSearch> {
        let pairs = [
            ("SLO", &*earlier.slo, slo),
            ("server", &*earlier.target, target),
            ("set of options", &*earlier.conditions, conditions),
        ];
        if let Some((what, then, now)) = pairs.into_iter().find(|(_, then, now)| then != now) {
            let (then, now) = (then.to_owned(), now.to_owned());
            return Err(OtherSearch::Differs { what, then, now });
        }
        found(earlier).map(drop).ok_or(OtherSearch::FoundNoCapacity)
    }

    /// Of earlier searches that were checked and this one. `None`: this one found no capacity.
    #[must_use]
    pub fn of(earlier: &[Capacity], this: &Capacity) -> Option<Self> {
        let last = found(this)?;
        let mut all: Vec<(f64, f64)> = earlier.iter().filter_map(found).collect();
        all.push(last);
        let logs: Vec<f64> = all.iter().map(|(value, _)| value.ln()).collect();
        let center = mean(&logs);
        let squares = logs.iter().map(|log| (log - center).powi(2));
        let variance = squares.sum::<f64>() / (logs.len() as f64 - 1.0).max(1.0);
        let within: Vec<f64> = all.iter().map(|(_, deviation)| deviation.powi(2)).collect();
        Some(Self {
            capacities_per_s: all.iter().map(|(value, _)| *value).collect(),
            capacity_per_s: center.exp(),
            interval: mean_interval(&logs, LEVEL).map(|of_logs| Interval {
                low: of_logs.low.exp(),
                high: of_logs.high.exp(),
                ..of_logs
            }),
            between: (variance - mean(&within)).max(0.0).sqrt(),
        })
    }
}

/// The capacity, and the standard deviation of its logarithm by its interval.
fn found(capacity: &Capacity) -> Option<(f64, f64)> {
    /// Between the ends of a normal 95 % interval.
    const DEVIATIONS: f64 = 2.0 * 1.96;
    let interval = capacity.finding.interval?;
    let value = capacity.finding.capacity_per_s?;
    Some((value, (interval.high / interval.low).ln() / DEVIATIONS))
}
