//! What several rounds of the same trial have in common: the smallest, the mean and the largest of
//! each figure. A percentile is taken in each round; percentiles are never made of merged rounds,
//! since the rounds are what is compared.

use crate::{Percentiles, Results, TrialRecord};

/// Of several rounds: the smallest, the mean and the largest of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The mean over the rounds.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// The figures of several rounds, of their headline groups. `None`: a round does not have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// How many there were.
    pub count: usize,
    /// Requests due, per second.
    pub offered_per_s: Option<Spread>,
    /// Requests sent, per second.
    pub sent_per_s: Option<Spread>,
    /// Complete answers per second.
    pub completed_per_s: Option<Spread>,
    /// Good answers per second.
    pub good_per_s: Option<Spread>,
    /// Bytes received per second.
    pub bytes_received_per_s: Option<Spread>,
    /// Errors of what was offered, as a part of 1.
    pub errors_share: Option<Spread>,
    /// Latency in microseconds: percent, and what it was; `None`: a round had not enough samples.
    pub latency_us: Vec<(f64, Option<Spread>)>,
    /// Service time in the same way.
    pub service_us: Vec<(f64, Option<Spread>)>,
    /// Mean latency in microseconds.
    pub latency_mean_us: Option<Spread>,
}

impl Rounds {
    /// Of the headline groups of these records. A figure that one of them does not have, a
    /// percentile with too few samples say, is `None`.
    #[must_use]
    pub fn of(records: &[TrialRecord]) -> Self {
        let groups = records.iter().filter_map(TrialRecord::headline);
        let rounds: Vec<&Results> = groups.map(|group| &group.total).collect();
        let spread = |of: &dyn Fn(&Results) -> Option<f64>| {
            let values: Option<Vec<f64>> = rounds.iter().map(|results| of(results)).collect();
            values.and_then(|values| Spread::of(&values))
        };
        let percents = |of: &dyn Fn(&Results, f64) -> Option<u64>| {
            let each = Percentiles::PERCENTS.into_iter();
            each.map(|percent| {
                (
                    percent,
                    spread(&|results| of(results, percent).map(|us| us as f64)),
                )
            })
            .collect()
        };
        Self {
            count: rounds.len(),
            offered_per_s: spread(&|results| Some(results.rates.offered_per_s)),
            sent_per_s: spread(&|results| Some(results.rates.sent_per_s)),
            completed_per_s: spread(&|results| Some(results.rates.completed_per_s)),
            good_per_s: spread(&|results| Some(results.rates.good_per_s)),
            bytes_received_per_s: spread(&|results| Some(results.rates.bytes_received_per_s)),
            errors_share: spread(&|results| {
                let (errors, offered) = (results.tally.errors_total(), results.tally.offered);
                (offered > 0).then(|| errors as f64 / offered as f64)
            }),
            latency_us: percents(&|results, percent| results.latency.percentile_us(percent)),
            service_us: percents(&|results, percent| results.service.percentile_us(percent)),
            latency_mean_us: spread(&|results| results.latency.mean_us()),
        }
    }
}

impl Spread {
    /// Of these values; `None` if there is none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
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
        let rounds = Rounds::of(&[round(30.0, 100), round(10.0, 1000), round(20.0, 100)]);
        let expected = Spread {
            min: 10.0,
            mean: 20.0,
            max: 30.0,
        };
        assert_eq!(rounds.completed_per_s, Some(expected));
        assert_eq!(rounds.count, 3);
    }

    #[test]
    fn what_one_round_does_not_know_none_knows() {
        let rounds = Rounds::of(&[round(10.0, 1000), round(10.0, 100)]);
        let known = |percent: f64| {
            let mut each = rounds.latency_us.iter();
            each.any(|(of, spread)| *of == percent && spread.is_some())
        };
        assert!(known(90.0));
        assert!(!known(99.0));
        assert_eq!(Rounds::of(&[]).completed_per_s, None);
    }
}
