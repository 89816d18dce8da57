//! Cells: trials that differ in nothing but chance, and what they come to.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use loadline_base::sorting::sort_by;
use serde::{Deserialize, Serialize};

use super::{Measured, Metric, Run};
use crate::journal::{Level, Levels};
use loadline_capacity::stats::{self, Interval};

/// The trials of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell<'r> {
    /// Of which series.
    pub series: &'r str,
    /// What distinguishes it.
    pub levels: &'r Levels,
    /// Trials that count, by number.
    pub counted: Vec<&'r Measured>,
    /// Trials that are discarded, by number.
    pub discarded: Vec<&'r Measured>,
}

/// What several trials come to: all of it in the metric's unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Trials.
    pub count: usize,
    /// The geometric mean, as in ratios; the arithmetic one where a value is not above 0.
    pub center: f64,
    /// What holds the true one; `None`: fewer than two trials.
    pub interval: Option<Interval>,
    /// The arithmetic mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Estimate {
    /// Of the values of trials; `None`: there are none.
    #[must_use]
    pub fn new(values: &[f64]) -> Option<Self> {
        let (center, interval) = stats::center(values, stats::LEVEL)?;
        Some(Self {
            count: values.len(),
            center,
            interval,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl Cell<'_> {
    /// Trials that count for a metric, by number.
    pub fn counted_for(&self, metric: Metric) -> impl Iterator<Item = &Measured> {
        let trials = self.counted.iter().copied();
        trials.filter(move |trial| trial.discarded_for(metric).is_empty())
    }

    /// Trials that do not, discarded ones before those of which the times alone are.
    pub fn discarded_for(&self, metric: Metric) -> impl Iterator<Item = &Measured> {
        let trials = self.discarded.iter().chain(&self.counted).copied();
        trials.filter(move |trial| !trial.discarded_for(metric).is_empty())
    }

    /// The values of the trials that count.
    #[must_use]
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        let values = self.counted.iter().map(|trial| trial.value(metric));
        values.flatten().collect()
    }

    /// What they come to; `None`: none of them has it.
    #[must_use]
    pub fn estimate(&self, metric: Metric) -> Option<Estimate> {
        Estimate::new(&self.values(metric))
    }

    /// The level of a factor.
    #[must_use]
    pub fn level(&self, factor: &str) -> Option<&Level> {
        self.levels.get(factor)
    }
}

/// The cells of a run, by series and levels: the order of trials was drawn by lot. A/A trials are left
/// out.
#[must_use]
pub fn cells(run: &Run) -> Vec<Cell<'_>> {
    let trials = run.trials.iter().filter(|trial| !trial.is_a_a);
    let mut trials: Vec<&Measured> = trials.collect();
    let order = |one: &&Measured, other: &&Measured| {
        let by_levels = || compare(&one.levels, &other.levels);
        one.series.cmp(&other.series).then_with(by_levels)
    };
    sort_by(&mut trials, order);
    let cells = trials.chunk_by(|one, other| order(one, other).is_eq());
    let cells = cells.map(|trials| {
        let (counted, discarded) = trials.iter().copied().partition(|trial| trial.counts());
        Cell {
            series: &trials[0].series,
            levels: &trials[0].levels,
            counted,
            discarded,
        }
    });
    cells.collect()
}

/// Of levels: numbers by size before names in the order of the alphabet; none is NaN. Of all levels of a
/// cell: by the first factor that differs.
pub(crate) fn compare<L: PartialOrd>(one: &L, other: &L) -> Ordering {
    one.partial_cmp(other).unwrap_or(Ordering::Equal)
}

/// What A/A trials say: the same cell twice in one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Of which series.
    pub series: String,
    /// In what.
    pub metric: Metric,
    /// The second of a pair over the first.
    pub ratio: stats::Comparison,
    /// The largest difference of a pair, as a part of 1.
    pub largest: f64,
}

/// The noise of each series that has A/A cells, in throughput and tail.
#[must_use]
pub fn noise(run: &Run) -> Vec<Noise> {
    let mut pairs: BTreeMap<(&str, Metric), Vec<(f64, f64)>> = BTreeMap::new();
    let counted = || run.trials.iter().filter(|trial| trial.counts());
    for second in counted().filter(|trial| trial.is_a_a) {
        let is_twin = |first: &&Measured| {
            !first.is_a_a
                && first.block == second.block
                && first.series == second.series
                && first.levels == second.levels
        };
        let Some(first) = counted().find(is_twin) else {
            continue;
        };
        for metric in [Metric::CompletedPerS, Metric::P99Us] {
            if let (Some(one), Some(other)) = (first.value(metric), second.value(metric)) {
                let of_series = pairs.entry((second.series.as_str(), metric));
                of_series.or_default().push((other, one));
            }
        }
    }
    let noise = pairs.into_iter().filter_map(|((series, metric), pairs)| {
        let apart = |(second, first): &(f64, f64)| (second / first - 1.0).abs();
        Some(Noise {
            series: series.to_owned(),
            metric,
            ratio: stats::compare(&pairs, 0.0)?,
            largest: pairs.iter().map(apart).fold(0.0, f64::max),
        })
    });
    noise.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(number: u32, loops: f64, rate: f64) -> Measured {
        Measured {
            number,
            series: "s".to_owned(),
            levels: [("loops".to_owned(), Level::Number(loops))].into(),
            values: [(Metric::CompletedPerS, rate)].into(),
            ..Measured::default()
        }
    }

    fn run(trials: Vec<Measured>) -> Run {
        Run {
            trials,
            ..Run::default()
        }
    }

    #[test]
    fn discarded_trials_are_kept_apart() {
        let mut discarded = trial(2, 1.0, 5.0);
        discarded.discarded = vec!["the client was the limit".to_owned()];
        let run = run(vec![
            trial(0, 1.0, 10.0),
            trial(1, 2.0, 30.0),
            discarded,
            trial(3, 1.0, 12.0),
        ]);
        let cells = cells(&run);
        assert_eq!(cells.len(), 2);
        assert_eq!((cells[0].counted.len(), cells[0].discarded.len()), (2, 1));
        let estimate = cells[0].estimate(Metric::CompletedPerS).unwrap();
        assert_eq!((estimate.count, estimate.mean), (2, 11.0));
        assert!((estimate.center - 120.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!((estimate.min, estimate.max), (10.0, 12.0));
        assert_eq!(cells[1].estimate(Metric::P99Us), None);
    }

    #[test]
    fn trials_of_late_clients_count_but_for_their_times() {
        let mut late = trial(0, 1.0, 10.0);
        late.values.insert(Metric::P99Us, 900.0);
        late.values.insert(Metric::InGoalShare, 0.9);
        late.times_discarded = vec!["the client was late".to_owned()];
        let mut sound = trial(1, 1.0, 12.0);
        sound.values.insert(Metric::P99Us, 100.0);
        sound.values.insert(Metric::InGoalShare, 1.0);
        let run = run(vec![late, sound]);
        let cell = &cells(&run)[0];
        assert_eq!(cell.values(Metric::CompletedPerS), [10.0, 12.0]);
        assert_eq!(cell.values(Metric::P99Us), [100.0]);
        // Whether a response came within the goal is a matter of time, too.
        assert_eq!(cell.values(Metric::InGoalShare), [1.0]);
        let discarded: Vec<u32> = cell
            .discarded_for(Metric::P99Us)
            .map(|it| it.number)
            .collect();
        assert_eq!(discarded, [0]);
        assert_eq!(cell.discarded_for(Metric::CompletedPerS).count(), 0);
        assert_eq!(run.trials[0].range(Metric::P99Us), None);
        assert_eq!(run.trials[0].measured(Metric::P99Us), Some(900.0));
    }

    #[test]
    fn numbers_are_in_the_order_of_their_size() {
        let run = run(vec![
            trial(0, 10.0, 1.0),
            trial(1, 9.0, 1.0),
            trial(2, 100.0, 1.0),
        ]);
        let levels: Vec<String> = cells(&run)
            .iter()
            .map(|cell| cell.level("loops").unwrap().to_string())
            .collect();
        assert_eq!(levels, ["9", "10", "100"]);
    }

    #[test]
    fn noise_is_what_pairs_of_a_block_differ_by() {
        let mut trials = Vec::new();
        for block in 0..5 {
            let mut first = trial(2 * block, 1.0, 100.0);
            let mut second = trial(2 * block + 1, 1.0, 101.0 + f64::from(block) / 10.0);
            second.is_a_a = true;
            (first.block, second.block) = (block, block);
            trials.extend([first, second]);
        }
        let run = run(trials);
        assert_eq!(cells(&run).len(), 1);
        let noise = noise(&run);
        assert_eq!(noise.len(), 1);
        assert!((noise[0].ratio.ratio - 1.012).abs() < 0.0001);
        assert!((noise[0].largest - 0.014).abs() < 1e-9);
    }
}
