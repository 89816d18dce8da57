//! Up to which rate a server completes what is offered: another question than the SLO's.

use loadline_base::sorting::sort_by;
use loadline_capacity::stats::median;
use serde::{Deserialize, Serialize};

use super::Evidence;
use crate::slo::COMPLETED_SHARE_MIN;

/// Where a server saturates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// The highest rate up to which, by the median of its trials, at least 99 % of what was offered was
    /// completed, of those that were tried.
    pub at_per_s: f64,
    /// The next rate that was tried, which is beyond it; `None`: there is none.
    pub beyond_per_s: Option<f64>,
}

impl Saturation {
    /// By the trials that count. `None`: not even at the lowest rate.
    pub(super) fn of(evidence: &[Evidence]) -> Option<Self> {
        let counts = evidence.iter().filter(|one| one.tried.holds().is_some());
        let points = counts.filter_map(|one| {
            let measured = one.measured.as_ref()?;
            Some((one.tried.trial.rate_per_s, measured.completed_per_s))
        });
        Self::of_points(points.collect())
    }

    /// Of offered and completed rates.
    fn of_points(mut points: Vec<(f64, f64)>) -> Option<Self> {
        sort_by(&mut points, |one, other| one.0.total_cmp(&other.0));
        // What is nearer than that is one rate.
        let rates = points.chunk_by(|one, other| other.0 <= one.0 * 1.002);
        let shares = rates.filter_map(|trials| {
            let shares = trials
                .iter()
                .map(|(offered, completed)| completed / offered);
            Some((trials[0].0, median(&shares.collect::<Vec<_>>())?))
        });
        let shares: Vec<(f64, f64)> = shares.collect();
        let is_good = |(_, share): &&(f64, f64)| *share >= COMPLETED_SHARE_MIN;
        let good = shares.iter().take_while(is_good).count();
        Some(Self {
            at_per_s: shares[good.checked_sub(1)?].0,
            beyond_per_s: shares.get(good).map(|(rate, _)| *rate),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saturation(points: &[(f64, f64)]) -> Option<(f64, Option<f64>)> {
        let found = Saturation::of_points(points.to_vec())?;
        Some((found.at_per_s, found.beyond_per_s))
    }

    #[test]
    fn it_is_the_last_rate_that_is_completed() {
        let mut points: Vec<(f64, f64)> = (1..=15)
            .map(|step| f64::from(step) * 100.0)
            .map(|offered| (offered, offered.min(1000.0)))
            .collect();
        assert_eq!(saturation(&points), Some((1000.0, Some(1100.0))));
        // One trial of three at a rate does not decide; trials come in any order.
        points.extend([(500.0, 100.0), (500.5, 500.5), (1100.0, 1100.0)]);
        assert_eq!(saturation(&points), Some((1000.0, Some(1100.0))));
        points.retain(|(offered, _)| *offered < 1000.0);
        assert_eq!(saturation(&points), Some((900.0, None)));
    }

    #[test]
    fn what_is_never_completed_has_none() {
        assert_eq!(saturation(&[(100.0, 50.0), (200.0, 200.0)]), None);
        assert_eq!(saturation(&[]), None);
    }
}
