//! A quantity at the levels of one factor, several runs each: where it is largest, where it falls
//! most steeply, and whether it only falls.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::{Direction, LEVEL, Trend, holm, kendall, mean};

/// How often runs are drawn again.
const RESAMPLES: usize = 10_000;

/// Runs by level, all of them above 0. Logarithms are looked at, since the noise of a rate or a time
/// grows with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The factor's level, rising.
    x: Vec<f64>,
    /// Logarithms of the runs of each level.
    logs: Vec<Vec<f64>>,
    /// How far each run is from its level's mean, made as large as they are in the long run.
    residuals: Vec<f64>,
}

/// Where something is most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// The level with the best mean.
    pub at: f64,
    /// From here ...
    pub low: f64,
    /// ... to here the best level lies, in so many of the resamples:
    pub level: f64,
    /// the last level that belongs to it.
    pub high: f64,
    /// Whether the interval leaves out both ends of what was measured: only then is it an optimum
    /// rather than the end of the range.
    pub is_inside: bool,
}

/// Whether something only rises or only falls with its level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsTrend {
    /// Over all runs: Jonckheere's test.
    pub trend: Trend,
    /// Steps (by the level at their begin) against the direction that cannot be noise, corrected for
    /// the number of steps.
    pub reversals: Vec<f64>,
    /// It goes this way, and no step goes the other; `None`: not distinguishable from no trend, or
    /// steps go both ways.
    pub direction: Option<Direction>,
}

impl Steps {
    /// Of the runs at each level, `(x, runs)`. `None`: fewer than two levels, a level without runs,
    /// no level with two runs, or a run that is not above 0.
    #[must_use]
    pub fn new(levels: &[(f64, Vec<f64>)]) -> Option<Self> {
        let mut levels = levels.to_vec();
        levels.sort_by(|one, other| one.0.total_cmp(&other.0));
        let is_positive = |run: &f64| *run > 0.0 && run.is_finite();
        let is_sound = |runs: &Vec<f64>| !runs.is_empty() && runs.iter().all(is_positive);
        if levels.len() < 2 || !levels.iter().all(|(_, runs)| is_sound(runs)) {
            return None;
        }
        let x = levels.iter().map(|(x, _)| *x).collect();
        let logs: Vec<Vec<f64>> = levels
            .iter()
            .map(|(_, runs)| runs.iter().map(|run| run.ln()).collect())
            .collect();
        let mut residuals = Vec::new();
        for runs in logs.iter().filter(|runs| runs.len() > 1) {
            let (center, count) = (mean(runs), runs.len() as f64);
            let scale = (count / (count - 1.0)).sqrt();
            residuals.extend(runs.iter().map(|run| (run - center) * scale));
        }
        (!residuals.is_empty()).then_some(Self { x, logs, residuals })
    }

    /// The level at which it is largest.
    #[must_use]
    pub fn optimum(&self, seed: u64) -> Optimum {
        self.most(seed, |means| means.to_vec())
    }

    /// The level (at its begin) of the step with the steepest fall, as a part of what it falls from,
    /// for each unit of the factor.
    #[must_use]
    pub fn steepest_fall(&self, seed: u64) -> Optimum {
        self.most(seed, |means| {
            let steps = means.windows(2).zip(self.x.windows(2));
            steps
                .map(|(means, x)| (1.0 - (means[1] - means[0]).exp()) / (x[1] - x[0]))
                .collect()
        })
    }

    /// Whether it only rises or only falls. Steps that are level, as far as can be told, are no
    /// reversals.
    #[must_use]
    pub fn trend(&self) -> Option<StepsTrend> {
        let of_level = |(x, runs): (&f64, &Vec<f64>)| -> Vec<(f64, f64)> {
            runs.iter().map(|run| (*x, *run)).collect()
        };
        let points: Vec<(f64, f64)> = self.x.iter().zip(&self.logs).flat_map(of_level).collect();
        let trend = kendall(&points)?;
        let is_falling = trend.tau < 0.0;
        let p: Vec<f64> = (self.logs.windows(2))
            .map(|step| self.p_against(step, is_falling))
            .collect();
        let corrected = holm(&p);
        let against = |(x, p): (&f64, f64)| (p <= 1.0 - LEVEL).then_some(*x);
        let reversals: Vec<f64> = self.x.iter().zip(corrected).filter_map(against).collect();
        let is_trend = trend.p_falling.min(trend.p_rising) <= (1.0 - LEVEL) / 2.0;
        let direction = match (is_trend && reversals.is_empty(), is_falling) {
            (false, _) => None,
            (true, true) => Some(Direction::Falling),
            (true, false) => Some(Direction::Rising),
        };
        Some(StepsTrend {
            trend,
            reversals,
            direction,
        })
    }

    /// How likely a step against the direction is, by chance: Student's test with the spread of all
    /// levels.
    fn p_against(&self, step: &[Vec<f64>], is_falling: bool) -> f64 {
        use statrs::distribution::{ContinuousCDF, StudentsT};
        let rise = mean(&step[1]) - mean(&step[0]);
        let against = if is_falling { rise } else { -rise };
        let levels = self.logs.iter().filter(|runs| runs.len() > 1).count();
        let squares: f64 = self.residuals.iter().map(|one| one * one).sum();
        let variance = squares / self.residuals.len() as f64;
        let parts = 1.0 / step[0].len() as f64 + 1.0 / step[1].len() as f64;
        let error = (variance * parts).sqrt();
        let freedom = (self.residuals.len() - levels) as f64;
        if error == 0.0 {
            return if against > 0.0 { 0.0 } else { 1.0 };
        }
        StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| student.sf(against / error))
    }

    /// Where a quantity made of the levels' means is largest, over resamples: each level's mean with
    /// noise like that of all levels together, since three runs of one know little about theirs.
    fn most(&self, seed: u64, quantity: impl Fn(&[f64]) -> Vec<f64>) -> Optimum {
        let means: Vec<f64> = self.logs.iter().map(|runs| mean(runs)).collect();
        let at = largest(&quantity(&means));
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let mut wins = vec![0_usize; means.len()];
        let mut drawn = means.clone();
        for _ in 0..RESAMPLES {
            for (slot, (mean, runs)) in drawn.iter_mut().zip(means.iter().zip(&self.logs)) {
                let noise: f64 = (0..runs.len())
                    .map(|_| self.residuals[generator.random_range(0..self.residuals.len())])
                    .sum();
                *slot = mean + noise / runs.len() as f64;
            }
            wins[largest(&quantity(&drawn))] += 1;
        }
        let positions = quantity(&means).len();
        let (low, high) = narrowest(&wins[..positions], at);
        let won: usize = wins[low..=high].iter().sum();
        Optimum {
            at: self.x[at],
            low: self.x[low],
            high: self.x[high],
            level: won as f64 / RESAMPLES as f64,
            is_inside: low > 0 && high + 1 < positions,
        }
    }
}

fn largest(values: &[f64]) -> usize {
    let pairs = values.iter().enumerate();
    let most = pairs.max_by(|one, other| one.1.total_cmp(other.1).then(other.0.cmp(&one.0)));
    most.map_or(0, |(index, _)| index)
}

/// The narrowest range around `at` that holds the level's share of all.
fn narrowest(wins: &[usize], at: usize) -> (usize, usize) {
    let (mut low, mut high) = (at, at);
    let needed = LEVEL * RESAMPLES as f64;
    let mut held = wins[at];
    while (held as f64) < needed {
        let before = low.checked_sub(1).map(|index| wins[index]);
        let after = wins.get(high + 1).copied();
        match (before, after) {
            (Some(more), after) if after.is_none_or(|other| more >= other) => {
                (low, held) = (low - 1, held + more);
            }
            (_, Some(more)) => (high, held) = (high + 1, held + more),
            _ => break,
        }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(curve: &[(f64, f64)], noise: f64, seed: u64) -> Steps {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let levels: Vec<(f64, Vec<f64>)> = curve
            .iter()
            .map(|(x, y)| {
                let runs = (0..3).map(|_| y * (1.0 + generator.random_range(-noise..noise)));
                (*x, runs.collect())
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

    #[test]
    fn an_optimum_inside_and_at_the_end() {
        let found = steps(&HILL, 0.03, 1).optimum(1);
        assert_eq!((found.at, found.low, found.high), (8.0, 8.0, 8.0));
        assert!(found.is_inside && found.level >= LEVEL);
        let rising = steps(&HILL[..4], 0.03, 1).optimum(1);
        assert_eq!((rising.at, rising.is_inside), (8.0, false));
        // With noise as large as the hill, the interval is wide instead of wrong.
        let noisy = steps(&HILL, 0.4, 2).optimum(1);
        assert!(noisy.low <= 8.0 && noisy.high >= 8.0 && noisy.low < noisy.high);
    }

    #[test]
    fn the_optimum_lies_in_its_interval() {
        let held = (0..200)
            .map(|seed| steps(&HILL, 0.15, seed).optimum(seed))
            .filter(|found| found.low <= 8.0 && 8.0 <= found.high)
            .count();
        assert!(held >= 184, "{held} of 200");
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
        let found = steps(&fall, 0.03, 1).trend().unwrap();
        assert_eq!(found.direction, Some(Direction::Falling));
        assert_eq!(steps(&fall, 0.03, 1).steepest_fall(1).at, 0.0);
        let mut turned = fall;
        turned[3].1 = 50.0;
        let found = steps(&turned, 0.03, 1).trend().unwrap();
        assert_eq!((found.reversals, found.direction), (vec![200.0], None));
        let level = [(0.0, 10.0), (1.0, 10.0), (2.0, 10.0), (3.0, 10.0)];
        assert_eq!(steps(&level, 0.03, 3).trend().unwrap().direction, None);
    }

    #[test]
    fn what_cannot_be_judged() {
        assert_eq!(Steps::new(&[(1.0, vec![1.0, 2.0])]), None);
        assert_eq!(Steps::new(&[(1.0, vec![1.0]), (2.0, vec![1.0])]), None);
        assert_eq!(
            Steps::new(&[(1.0, vec![0.0, 1.0]), (2.0, vec![1.0, 1.0])]),
            None
        );
    }
}
