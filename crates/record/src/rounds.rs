//! What several rounds of the same trial have in common: the smallest, the mean and the largest of
//! a figure. A percentile is taken in each round; percentiles are never made of merged rounds,
//! since the rounds are what is compared.

use crate::{Results, TrialRecord};

/// The smallest, the mean and the largest of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The mean over the rounds.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of a figure of the headline groups of these records; `None`: one of them does not have it, a
    /// percentile with too few samples say, or there is no record.
    #[must_use]
    pub fn of(records: &[TrialRecord], figure: &dyn Fn(&Results) -> Option<f64>) -> Option<Self> {
        let groups = records.iter().filter_map(TrialRecord::headline);
        let values: Option<Vec<f64>> = groups.map(|group| figure(&group.total)).collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Distribution, GroupRecord, latencies};

    fn round(completed_per_s: f64, samples: u64) -> TrialRecord {
        let mut latency = latencies();
        latency.saturating_record_n(1000, samples);
        let mut total = Results {
            latency: Distribution::new(latency),
            ..Results::default()
        };
        total.rates.completed_per_s = completed_per_s;
        total.tally.offered = samples;
        let group = GroupRecord {
            total,
            ..GroupRecord::default()
        };
        TrialRecord {
            groups: vec![group],
            ..TrialRecord::default()
        }
    }

    #[test]
    fn the_smallest_the_mean_and_the_largest() {
        let rounds = [round(30.0, 100), round(10.0, 1000), round(20.0, 100)];
        let expected = Spread {
            min: 10.0,
            mean: 20.0,
            max: 30.0,
        };
        let rate = |results: &Results| Some(results.rates.completed_per_s);
        assert_eq!(Spread::of(&rounds, &rate), Some(expected));
        assert_eq!(Spread::of(&[], &rate), None);
    }

    #[test]
    fn what_one_round_does_not_know_none_knows() {
        let rounds = [round(10.0, 1000), round(10.0, 100)];
        let is_known = |percent: f64| {
            let us = |results: &Results| results.latency.percentile_us(percent).map(|us| us as f64);
            Spread::of(&rounds, &us).is_some()
        };
        assert!(is_known(90.0));
        assert!(!is_known(99.0));
    }
}
