//! The best of some alternatives over the best of others, under several conditions, pooled over these.
//!
//! The rule is that of [`Steps::best_over`], and for one condition the result, too: nothing is chosen,
//! and what is said holds for all alternatives that may be the best at once. With several conditions
//! any alternative may be the best under each, so that there are as many differences to bound as ways
//! to take one alternative for every condition. Conditions have noise of their own: the degrees of
//! freedom of their mean are Satterthwaite's (1946).

use super::steps::{Best, reach};
use super::{Interval, Range, Steps, mean};

/// Runs of alternatives under one condition, the same blocks in the same order for each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternatives {
    /// Those whose best is compared.
    pub these: Vec<Vec<Range>>,
    /// Those with whose best it is compared.
    pub others: Vec<Vec<Range>>,
}

/// The best of the ones over the best of the others, over all conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledBest {
    /// For each condition.
    pub conditions: Vec<BestOfCondition>,
    /// The geometric mean of the ratios.
    pub value: f64,
    /// Of the ratio of those that truly are the best, whichever they are.
    pub interval: Interval,
    /// Whether the interval reaches further than the runs scatter, since these were ranges.
    pub is_widened: bool,
}

/// What is best under one condition, by its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestOfCondition {
    /// Index into [`Alternatives::these`].
    pub this: usize,
    /// Index into [`Alternatives::others`].
    pub other: usize,
    /// The one over the other.
    pub ratio: f64,
}

impl PooledBest {
    /// Over these conditions; the best has the most, or the least. `None`: there is no condition, or one of which
    /// [`Steps`] cannot be made or that lacks a side.
    #[must_use]
    pub fn new(conditions: &[Alternatives], is_most: bool, level: f64) -> Option<Self> {
        let steps = conditions.iter().map(|condition| {
            let is_there = !condition.these.is_empty() && !condition.others.is_empty();
            let all = condition.these.iter().chain(&condition.others);
            let runs = (0_u32..).map(f64::from).zip(all.map(|runs| {
                let runs = runs.iter().copied();
                runs.map(|run| if is_most { run } else { over_one(run) })
                    .collect::<Vec<Range>>()
            }));
            Steps::new(&runs.collect::<Vec<_>>()).filter(|_| is_there)
        });
        let steps: Vec<Steps> = steps.collect::<Option<_>>()?;
        if steps.is_empty() {
            return None;
        }
        let count = |side: fn(&Alternatives) -> &Vec<Vec<Range>>| -> f64 {
            conditions.iter().map(|it| side(it).len() as f64).product()
        };
        let (error, freedom) = error(&steps);
        let half = (1.0 - level) / 2.0;
        let reach = |ways: f64| reach(half / ways, freedom) * error;
        let (below, above) = (reach(count(|it| &it.these)), reach(count(|it| &it.others)));
        let bests = conditions.iter().zip(&steps);
        let bests: Vec<Best> = bests
            .map(|(condition, steps)| {
                let (these, others) = steps.means().split_at(condition.these.len());
                Best::of(these, others)
            })
            .collect();
        let mean_of = |end: fn(&Best) -> f64| mean(&bests.iter().map(end).collect::<Vec<_>>());
        let (low, value, high) = (
            mean_of(|best| best.low) - below,
            mean_of(|best| best.value),
            mean_of(|best| best.high) + above,
        );
        let ratio = |log: f64| if is_most { log.exp() } else { (-log).exp() };
        let (low, high) = if is_most { (low, high) } else { (high, low) };
        let said = |best: &Best| BestOfCondition {
            this: best.this,
            other: best.other,
            ratio: ratio(best.value),
        };
        let is_exact = |steps: &Steps| steps.means().iter().all(Range::is_exact);
        Some(Self {
            conditions: bests.iter().map(said).collect(),
            value: ratio(value),
            interval: Interval {
                low: ratio(low),
                high: ratio(high),
                level,
            },
            is_widened: !steps.iter().all(is_exact),
        })
    }
}

/// What is least has the largest inverse.
fn over_one(run: Range) -> Range {
    Range::exact(1.0).over(&run)
}

/// The standard error of the mean over conditions of a difference of two alternatives, and its degrees of
/// freedom.
fn error(conditions: &[Steps]) -> (f64, f64) {
    let count = conditions.len() as f64;
    let squares = conditions.iter().map(|it| (it.error() / count).powi(2));
    let squares: Vec<f64> = squares.collect();
    let sum: f64 = squares.iter().sum();
    let parts = squares.iter().zip(conditions);
    let parts: f64 = parts.map(|(it, steps)| it.powi(2) / steps.freedom()).sum();
    let least = conditions.iter().map(Steps::freedom);
    // Without any noise, that of the least that is known.
    let freedom = match parts > 0.0 {
        true => sum.powi(2) / parts,
        false => least.fold(f64::INFINITY, f64::min),
    };
    (sum.sqrt(), freedom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::LEVEL;

    fn runs<const N: usize>(runs: [f64; N]) -> Vec<Range> {
        runs.map(Range::exact).to_vec()
    }

    #[test]
    fn one_condition_is_as_the_best_of_levels() {
        let these = [runs([110.0, 230.0, 99.0]), runs([90.0, 210.0, 102.0])];
        let others = [runs([100.0, 200.0, 95.0]), runs([80.0, 170.0, 85.0])];
        let all = these.iter().chain(&others).cloned();
        let levels: Vec<(f64, Vec<Range>)> = (0_u32..).map(f64::from).zip(all).collect();
        let steps = Steps::new(&levels).unwrap();
        let expected = steps.best_over(&|x| x < 2.0, &|x| x >= 2.0, LEVEL).unwrap();
        let condition = Alternatives {
            these: these.to_vec(),
            others: others.to_vec(),
        };
        let found = PooledBest::new(std::slice::from_ref(&condition), true, LEVEL).unwrap();
        assert!((found.value - expected.value).abs() < 1e-12);
        assert!((found.interval.low - expected.interval.low).abs() < 1e-9);
        assert!((found.interval.high - expected.interval.high).abs() < 1e-9);
        let best = found.conditions[0];
        assert_eq!((best.this, best.other), (0, 0));
        // Twice the same says the same of the ratio, and more surely.
        let twice = PooledBest::new(&[condition.clone(), condition], true, LEVEL).unwrap();
        assert!((twice.value - found.value).abs() < 1e-12);
        assert!(twice.interval.high < found.interval.high);
    }

    #[test]
    fn the_least_of_times_is_the_most_of_their_inverses() {
        let condition = |swap: bool| {
            let of = |runs: [f64; 3]| {
                let runs = runs.map(|run| if swap { 1e6 / run } else { run });
                runs.map(Range::exact).to_vec()
            };
            Alternatives {
                these: vec![of([110.0, 120.0, 99.0]), of([90.0, 95.0, 88.0])],
                others: vec![of([50.0, 52.0, 47.0])],
            }
        };
        let most = PooledBest::new(&[condition(false)], true, LEVEL).unwrap();
        let least = PooledBest::new(&[condition(true)], false, LEVEL).unwrap();
        assert!((most.value * least.value - 1.0).abs() < 1e-9);
        assert!((most.interval.low * least.interval.high - 1.0).abs() < 1e-9);
        assert!(least.interval.low < least.value && least.value < least.interval.high);
        assert_eq!(least.conditions[0].this, 0);
    }

    #[test]
    fn what_cannot_be_judged() {
        let one = Alternatives {
            these: vec![runs([1.0, 2.0])],
            others: vec![],
        };
        assert_eq!(PooledBest::new(&[one], true, LEVEL), None);
        assert_eq!(PooledBest::new(&[], true, LEVEL), None);
        let single_block = Alternatives {
            these: vec![runs([1.0])],
            others: vec![runs([1.0])],
        };
        assert_eq!(PooledBest::new(&[single_block], true, LEVEL), None);
    }
}
