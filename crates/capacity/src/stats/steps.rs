//! A quantity at the levels of one factor, each in the same blocks: where it is largest, by how much
//! the best of some levels is above the best of others, where it falls most steeply, and whether it
//! only falls.
//!
//! Which level is best is not known before, and what was chosen by the same runs looks better than it
//! is. So nothing is chosen: what is said holds for all levels that may be the best at once (Hsu 1984,
//! "Constrained simultaneous confidence intervals for multiple comparisons with the best", with
//! Bonferroni's bound in place of Dunnett's point). To choose on all blocks but one and to compare in
//! that one is no way around it: a block is left out of one choice and part of the others, so such
//! ratios are alike by chance. Of 8000 simulated intervals of 95 % over 8 blocks, of the best of three
//! levels over the best of three others that were all the same, 15 % missed.

use loadline_base::sorting::sort_by;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Direction, Interval, Range, Trend, holm, kendall, mean};

/// Runs by level, all of them above 0. Logarithms are looked at, since the noise of a rate or a time
/// grows with it. All levels are taken to have the same noise beside what is common to a block: a
/// level's own two or three runs know little of theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The factor's levels, rising.
    x: Vec<f64>,
    /// Logarithms of the runs, by level and block.
    logs: Vec<Vec<f64>>,
    /// Of each level, the means of its logarithms.
    means: Vec<Range>,
    /// Standard deviation of a run's logarithm, but for level and block.
    deviation: f64,
    /// Degrees of freedom that this is known with.
    freedom: f64,
}

/// Where something is most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// The level with the best mean.
    pub at: f64,
    /// From here ...
    pub low: f64,
    /// ... to here the best level lies, in so many of such runs:
    pub level: f64,
    /// the last level that belongs to it.
    pub high: f64,
}

/// The best of some levels over the best of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestRatio {
    /// The best of the ones, by its mean.
    pub this: f64,
    /// The best of the others.
    pub other: f64,
    /// The ratio of their geometric means. With several levels it lies above what it would be if
    /// these were run again; the interval does not.
    pub value: f64,
    /// Of the ratio of those that truly are the best, whichever they are.
    pub interval: Interval,
    /// Whether the interval reaches further than the runs scatter, since these were ranges.
    pub is_widened: bool,
}

/// Whether something only rises or only falls with its level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsTrend {
    /// Over all runs: Jonckheere's test.
    pub trend: Trend,
    /// Steps (by the level at their begin) against the direction asked for that cannot be noise,
    /// corrected for the number of steps.
    pub reversals: Vec<f64>,
    /// On the whole it goes this way; `None`: not distinguishable from no trend.
    pub direction: Option<Direction>,
}

impl Steps {
    /// Of the runs at each level, `(x, runs)`, the same blocks in the same order at each. `None`: fewer
    /// than two levels or two blocks, a block that a level lacks, or a run that is not above 0.
    #[must_use]
    pub fn new(levels: &[(f64, Vec<Range>)]) -> Option<Self> {
        let mut levels = levels.to_vec();
        sort_by(&mut levels, |one, other| one.0.total_cmp(&other.0));
        let blocks = levels.first()?.1.len();
        let is_positive = |run: &Range| run.low > 0.0 && run.high.is_finite();
        let is_sound = |runs: &Vec<Range>| runs.len() == blocks && runs.iter().all(is_positive);
        if levels.len() < 2 || blocks < 2 || !levels.iter().all(|(_, runs)| is_sound(runs)) {
            return None;
        }
        let logs_of = |end: fn(&Range) -> f64| -> Vec<Vec<f64>> {
            let of_level = |(_, runs): &(f64, Vec<Range>)| {
                let logs = runs.iter().map(|run| end(run).ln());
                logs.collect()
            };
            levels.iter().map(of_level).collect()
        };
        let (low, logs, high) = (
            logs_of(|run| run.low),
            logs_of(|run| run.value),
            logs_of(|run| run.high),
        );
        let means = (0..levels.len()).map(|index| Range {
            low: mean(&low[index]),
            value: mean(&logs[index]),
            high: mean(&high[index]),
        });
        let deviations = [&low, &logs, &high].map(|logs| deviation(logs));
        Some(Self {
            x: levels.iter().map(|(x, _)| *x).collect(),
            means: means.collect(),
            deviation: deviations.into_iter().fold(0.0, f64::max),
            freedom: ((levels.len() - 1) * (blocks - 1)) as f64,
            logs,
        })
    }

    /// The level at which it is largest.
    #[must_use]
    pub fn optimum(&self, level: f64) -> Optimum {
        let values: Vec<f64> = self.means.iter().map(|mean| mean.value).collect();
        let unit = |at: usize| (0..values.len()).map(move |index| f64::from(index == at));
        let gradients: Vec<Vec<f64>> = (0..values.len()).map(|at| unit(at).collect()).collect();
        self.most(&values, &gradients, level)
    }

    /// The level (at its begin) of the step with the steepest fall, as a part of what it falls from,
    /// for each unit of the factor.
    #[must_use]
    pub fn steepest_fall(&self, level: f64) -> Optimum {
        let (mut values, mut gradients) = (Vec::new(), Vec::new());
        for (index, (means, x)) in self.means.windows(2).zip(self.x.windows(2)).enumerate() {
            let (kept, width) = ((means[1].value - means[0].value).exp(), x[1] - x[0]);
            values.push((1.0 - kept) / width);
            let mut gradient = vec![0.0; self.x.len()];
            (gradient[index], gradient[index + 1]) = (kept / width, -kept / width);
            gradients.push(gradient);
        }
        self.most(&values, &gradients, level)
    }

    /// The best of the levels that `is_this` takes over the best of those that `is_other` does.
    /// `None`: there is no such level.
    ///
    /// Each end is a bound for all levels at once that may be the best, and misses in half of what
    /// `level` leaves.
    #[must_use]
    pub fn best_over(
        &self,
        is_this: &dyn Fn(f64) -> bool,
        is_other: &dyn Fn(f64) -> bool,
        level: f64,
    ) -> Option<BestRatio> {
        let side = |is_wanted: &dyn Fn(f64) -> bool| -> (Vec<f64>, Vec<Range>) {
            let levels = self.x.iter().zip(&self.means);
            let wanted = levels.filter(|(x, _)| is_wanted(**x));
            wanted.map(|(x, mean)| (*x, *mean)).unzip()
        };
        let ((x, these), (other_x, others)) = (side(is_this), side(is_other));
        if these.is_empty() || others.is_empty() {
            return None;
        }
        let best = Best::of(&these, &others);
        let reach = |side: &[Range]| self.reach((1.0 - level) / 2.0, side.len()) * self.error();
        let (low, high) = (best.low - reach(&these), best.high + reach(&others));
        Some(BestRatio {
            this: x[best.this],
            other: other_x[best.other],
            value: best.value.exp(),
            interval: Interval {
                low: low.exp(),
                high: high.exp(),
                level,
            },
            is_widened: !these.iter().chain(&others).all(Range::is_exact),
        })
    }

    /// Whether it goes `direction`, and never the other way. Steps that cannot be
    /// distinguished from level are no reversals. That there is a trend the other way and that any step is a reversal
    /// each go wrong in half of what `level` leaves, where all is as asked for. `None`: what is
    /// measured does not vary, or there are fewer than three runs.
    #[must_use]
    pub fn trend(&self, direction: Direction, level: f64) -> Option<StepsTrend> {
        let of_level = |(x, runs): (&f64, &Vec<f64>)| -> Vec<(f64, f64)> {
            runs.iter().map(|run| (*x, *run)).collect()
        };
        let points: Vec<(f64, f64)> = self.x.iter().zip(&self.logs).flat_map(of_level).collect();
        let trend = kendall(&points)?;
        let half = (1.0 - level) / 2.0;
        let steps = self.means.windows(2).map(|means| {
            let rise = means[1].value - means[0].value;
            self.p_above(match direction {
                Direction::Falling => rise,
                Direction::Rising => -rise,
            })
        });
        let corrected = holm(&steps.collect::<Vec<_>>());
        let against = |(x, p): (&f64, f64)| (p <= half).then_some(*x);
        Some(StepsTrend {
            trend,
            reversals: self.x.iter().zip(corrected).filter_map(against).collect(),
            direction: match (trend.p_falling <= half, trend.p_rising <= half) {
                (true, _) => Some(Direction::Falling),
                (_, true) => Some(Direction::Rising),
                _ => None,
            },
        })
    }

    /// How likely it is by chance that a level lies so far above another.
    fn p_above(&self, difference: f64) -> f64 {
        let error = self.error();
        if error == 0.0 {
            return if difference > 0.0 { 0.0 } else { 1.0 };
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(1.0, |student| student.sf(difference / error))
    }

    /// Where a quantity made of the levels' means is largest: all places that do not distinguishably lie
    /// below another one. Each place's `gradient` says how it changes with the means.
    fn most(&self, values: &[f64], gradients: &[Vec<f64>], level: f64) -> Optimum {
        let reach = self.reach(1.0 - level, values.len() - 1);
        let error = |one: usize, other: usize| {
            let parts = gradients[one].iter().zip(&gradients[other]);
            let squares: f64 = parts.map(|(one, other)| (one - other).powi(2)).sum();
            self.deviation * (squares / self.blocks()).sqrt()
        };
        let is_below = |one: usize, other: usize| {
            values[other] - values[one] > reach * error(one, other) && one != other
        };
        let all = 0..values.len();
        let may_be: Vec<usize> = all
            .clone()
            .filter(|one| !all.clone().any(|other| is_below(*one, other)))
            .collect();
        let at =
            all.max_by(|one, other| values[*one].total_cmp(&values[*other]).then(other.cmp(one)));
        let at = at.unwrap_or(0);
        let (low, high) = (
            may_be.first().copied().unwrap_or(at),
            may_be.last().copied().unwrap_or(at),
        );
        Optimum {
            at: self.x[at],
            low: self.x[low],
            high: self.x[high],
            level,
        }
    }

    /// So many standard errors bound each of several differences on one side, all of them at once but
    /// for this share of runs.
    fn reach(&self, share: f64, differences: usize) -> f64 {
        reach(share / differences.max(1) as f64, self.freedom)
    }

    /// The means of the logarithms, by level.
    pub(super) fn means(&self) -> &[Range] {
        &self.means
    }

    pub(super) fn freedom(&self) -> f64 {
        self.freedom
    }

    /// The standard error of a difference of two levels.
    pub(super) fn error(&self) -> f64 {
        self.deviation * (2.0 / self.blocks()).sqrt()
    }

    fn blocks(&self) -> f64 {
        self.logs[0].len() as f64
    }
}

/// The best of some levels and of some others, and the logarithm of their ratio.
pub(super) struct Best {
    /// Its index.
    pub(super) this: usize,
    pub(super) other: usize,
    pub(super) low: f64,
    pub(super) value: f64,
    pub(super) high: f64,
}

impl Best {
    /// By the means of logarithms; there is one at least on either side.
    pub(super) fn of(these: &[Range], others: &[Range]) -> Self {
        let most = |side: &[Range], end: fn(&Range) -> f64| -> f64 {
            side.iter().map(end).fold(f64::NEG_INFINITY, f64::max)
        };
        let at = |side: &[Range]| {
            let best = side.iter().map(|mean| mean.value).enumerate();
            let best = best.max_by(|(_, one), (_, other)| one.total_cmp(other));
            best.map_or(0, |(index, _)| index)
        };
        Self {
            this: at(these),
            other: at(others),
            low: most(these, |mean| mean.low) - most(others, |mean| mean.high),
            value: most(these, |mean| mean.value) - most(others, |mean| mean.value),
            high: most(these, |mean| mean.high) - most(others, |mean| mean.low),
        }
    }
}

/// So many standard errors bound a difference on one side, but for this share of runs.
pub(super) fn reach(share: f64, freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom);
    student.map_or(f64::INFINITY, |student| -student.inverse_cdf(share))
}

/// Of what is left when the means of levels and blocks are taken away.
fn deviation(logs: &[Vec<f64>]) -> f64 {
    let blocks = logs[0].len();
    let of_blocks: Vec<f64> = (0..blocks)
        .map(|block| mean(&logs.iter().map(|runs| runs[block]).collect::<Vec<_>>()))
        .collect();
    let whole = mean(&of_blocks);
    let of_level = |runs: &Vec<f64>| -> f64 {
        let center = mean(runs);
        let left = runs.iter().zip(&of_blocks);
        let left = left.map(|(run, block)| run - center - block + whole);
        left.map(|one| one * one).sum()
    };
    let squares: f64 = logs.iter().map(of_level).sum();
    (squares / ((logs.len() - 1) * (blocks - 1)) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use statrs::distribution::Normal;

    use super::*;
    use crate::stats::LEVEL;

    /// Runs in so many blocks, each with an effect of its own.
    fn steps(curve: &[(f64, f64)], blocks: usize, noise: f64, seed: u64) -> Steps {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let normal = Normal::new(0.0, 1.0).unwrap();
        let mut drawn = || normal.inverse_cdf(generator.random_range(1e-12..1.0));
        let of_blocks: Vec<f64> = (0..blocks).map(|_| 0.2 * drawn()).collect();
        let levels: Vec<(f64, Vec<Range>)> = curve
            .iter()
            .map(|(x, y)| {
                let runs = of_blocks
                    .iter()
                    .map(|block| y * (block + noise * drawn()).exp());
                (*x, runs.map(Range::exact).collect())
            })
            .collect();
        Steps::new(&levels).unwrap()
    }

    const HILL: [(f64, f64); 6] = [
        (1.0, 100.0),
        (2.0, 180.0),
        (4.0, 260.0),
        (8.0, 300.0),
        (16.0, 240.0),
        (30.0, 200.0),
    ];

    fn flat(levels: u32) -> Vec<(f64, f64)> {
        (0..levels).map(|x| (f64::from(x), 100.0)).collect()
    }

    #[test]
    fn an_optimum_inside_and_at_the_end() {
        let found = steps(&HILL, 3, 0.02, 1).optimum(LEVEL);
        assert_eq!((found.at, found.low, found.high), (8.0, 8.0, 8.0));
        let rising = steps(&HILL[..4], 3, 0.02, 1).optimum(LEVEL);
        assert_eq!((rising.at, rising.high), (8.0, 8.0));
        // With noise as large as the hill, the interval is wide instead of wrong.
        let noisy = steps(&HILL, 3, 0.4, 2).optimum(LEVEL);
        assert!(noisy.low <= 8.0 && noisy.high >= 8.0 && noisy.low < noisy.high);
    }

    /// Of 1000 made-up series, at most 5 % and three standard deviations may miss.
    const MISSED_MAX: usize = 71;

    #[test]
    fn the_optimum_lies_in_its_interval() {
        for blocks in [2, 3, 5] {
            let missed = (0..1000).filter(|seed| {
                let found = steps(&HILL, blocks, 0.1, *seed).optimum(LEVEL);
                found.low > 8.0 || found.high < 8.0
            });
            let missed = missed.count();
            assert!(missed <= MISSED_MAX, "{blocks} blocks: {missed} of 1000");
        }
    }

    /// Where all levels are the same, the best of them is none. The level with the best mean, compared
    /// with the first by the runs that chose it, would be found to be better in far more of them.
    #[test]
    fn what_is_best_by_chance_is_not_better() {
        for (levels, blocks) in [(2, 2), (6, 2), (6, 3), (6, 5)] {
            let missed = |is_this: fn(f64) -> bool, is_other: fn(f64) -> bool| {
                let missed = (0..1000).filter(|seed| {
                    let steps = steps(&flat(levels), blocks, 0.05, *seed);
                    let found = steps.best_over(&is_this, &is_other, LEVEL).unwrap();
                    !found.interval.contains(1.0)
                });
                missed.count()
            };
            for missed in [
                missed(|x| x > 0.0, |x| x == 0.0),
                missed(|x| x == 0.0, |x| x > 0.0),
                missed(|x| x > 0.0, |x| x < 3.0),
            ] {
                assert!(missed <= MISSED_MAX, "{levels}, {blocks}: {missed} of 1000");
            }
            let naive = (0..1000).filter(|seed| {
                let steps = steps(&flat(levels), blocks, 0.05, *seed);
                let at = steps.optimum(LEVEL).at;
                let ratio = steps.best_over(&|x| x == at, &|x| x == 0.0, LEVEL);
                at > 0.0 && ratio.is_some_and(|ratio| ratio.interval.low > 1.0)
            });
            let naive = naive.count();
            assert!(levels == 2 || naive > MISSED_MAX, "{levels}: {naive}");
        }
    }

    #[test]
    fn the_best_over_the_best_with_two_levels_is_a_paired_test() {
        let (these, others) = ([110.0, 230.0, 99.0], [100.0, 200.0, 95.0]);
        let runs = |runs: [f64; 3]| runs.map(Range::exact).to_vec();
        let steps = Steps::new(&[(1.0, runs(these)), (2.0, runs(others))]).unwrap();
        let found = steps
            .best_over(&|x| x == 1.0, &|x| x == 2.0, LEVEL)
            .unwrap();
        let pairs: Vec<(f64, f64)> = these.into_iter().zip(others).collect();
        let paired = crate::stats::compare(&pairs, 0.0).unwrap();
        assert!((found.value - paired.ratio).abs() < 1e-12);
        let interval = paired.interval.unwrap();
        assert!(
            (found.interval.low - interval.low).abs() < 1e-6,
            "{found:?}"
        );
        assert!(
            (found.interval.high - interval.high).abs() < 1e-6,
            "{found:?}"
        );
        assert_eq!(steps.best_over(&|x| x > 2.0, &|x| x == 2.0, LEVEL), None);
    }

    #[test]
    fn a_range_widens_the_interval_to_its_ends() {
        let wide = |value: f64| Range {
            low: value,
            value,
            high: 2.0 * value,
        };
        let exact = [100.0, 101.0, 99.0].map(Range::exact).to_vec();
        let levels = [
            (1.0, exact),
            (2.0, [150.0, 152.0, 149.0].map(wide).to_vec()),
        ];
        let steps = Steps::new(&levels).unwrap();
        let found = steps
            .best_over(&|x| x == 2.0, &|x| x == 1.0, LEVEL)
            .unwrap();
        assert!(found.is_widened && (found.value - 1.5).abs() < 0.01);
        assert!(found.interval.low > 1.4 && found.interval.low < 1.5);
        assert!(found.interval.high > 3.0 && found.interval.high < 3.2);
    }

    #[test]
    fn falls_and_reversals() {
        let fall = [
            (0.0, 100.0),
            (100.0, 40.0),
            (200.0, 30.0),
            (300.0, 25.0),
            (400.0, 22.0),
        ];
        let trend = |curve: &[(f64, f64)]| {
            let steps = steps(curve, 3, 0.02, 1);
            steps.trend(Direction::Falling, LEVEL).unwrap()
        };
        assert_eq!(trend(&fall).direction, Some(Direction::Falling));
        assert_eq!(trend(&fall).reversals, []);
        assert_eq!(steps(&fall, 3, 0.02, 1).steepest_fall(LEVEL).high, 0.0);
        let mut turned = fall;
        turned[3].1 = 50.0;
        assert_eq!(trend(&turned).reversals, [200.0]);
        // A single fall is no reversal of a rise where a fall is asked for.
        let rising = [(0.0, 10.0), (1.0, 20.0), (2.0, 15.0), (3.0, 30.0)];
        assert_eq!(trend(&rising).reversals, [0.0, 2.0]);
        assert_eq!(trend(&flat(4)).direction, None);
        assert_eq!(trend(&flat(4)).reversals, []);
    }

    #[test]
    fn a_fall_that_is_as_steep_elsewhere_is_not_located() {
        let even = [(0.0, 100.0), (1.0, 80.0), (2.0, 64.0), (3.0, 51.2)];
        let missed = (0..1000).filter(|seed| {
            let found = steps(&even, 3, 0.05, *seed).steepest_fall(LEVEL);
            found.low > 0.0
        });
        let missed = missed.count();
        assert!(missed <= MISSED_MAX, "{missed} of 1000");
    }

    #[test]
    fn what_cannot_be_judged() {
        let new = |levels: &[(f64, Vec<f64>)]| {
            let exact = |runs: &Vec<f64>| runs.iter().copied().map(Range::exact).collect();
            let levels = levels.iter().map(|(x, runs)| (*x, exact(runs)));
            Steps::new(&levels.collect::<Vec<_>>())
        };
        assert_eq!(new(&[]), None);
        assert_eq!(new(&[(1.0, vec![1.0, 2.0])]), None);
        assert_eq!(new(&[(1.0, vec![1.0]), (2.0, vec![1.0])]), None);
        assert_eq!(new(&[(1.0, vec![1.0, 2.0]), (2.0, vec![1.0])]), None);
        assert_eq!(new(&[(1.0, vec![0.0, 1.0]), (2.0, vec![1.0, 1.0])]), None);
        assert!(new(&[(1.0, vec![1.0, 2.0]), (2.0, vec![1.0, 1.0])]).is_some());
    }
}
