//! Which comparisons of a plan are decided, and which cells still need blocks.
//!
//! Whoever looks after every block and stops as soon as the interval says something is wrong more often than
//! the interval says. So the looks are fixed beforehand, by the blocks of the plan and the bound: each is
//! half as many blocks again after the one before. The error of 5 % is shared among them (Bonferroni),
//! so that over all looks a comparison is decided wrongly in 5 % of the cases at most.

use std::collections::BTreeMap;

use loadline_base::sorting::{to_map, to_set};
use loadline_capacity::stats::{Interval, Range, mean_interval};
use loadline_spec::SpecError;

use crate::advice::MATTERS_MIN;
use crate::analysis::{Measured, Metric, Run};
use crate::cells::levels_text;
use crate::expand::Expansion;
use crate::plan::Plan;

/// The share of comparisons that may be decided wrongly, over all looks at each.
const ERROR: f64 = 0.05;

/// When it is looked whether comparisons are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Numbers of blocks, rising: first those of the plan, last the bound.
    blocks: Vec<u32>,
}

impl Looks {
    /// From the blocks of the plan and the most that there may be.
    ///
    /// # Errors
    /// The bound is less than what the plan has.
    pub fn new(planned: u32, blocks_max: u32) -> Result<Self, SpecError> {
        if blocks_max < planned {
            let problem = format!("the plan has {planned} blocks");
            let error = SpecError::new("blocks-max", problem, "at least as many");
            return Err(error.with_value(blocks_max));
        }
        let mut blocks = vec![planned.max(1)];
        while let Some(last) = blocks.last().copied().filter(|last| *last < blocks_max) {
            blocks.push((last + last.div_ceil(2)).min(blocks_max));
        }
        Ok(Self { blocks })
    }

    /// The level of the interval at each look.
    #[must_use]
    pub fn level(&self) -> f64 {
        1.0 - ERROR / self.blocks.len() as f64
    }

    /// How many blocks there are at the next look; `None`: it was the last.
    #[must_use]
    pub fn after(&self, blocks: u32) -> Option<u32> {
        self.blocks.iter().copied().find(|one| *one > blocks)
    }
}

/// Two cells of which the plan asks which is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Index into [`Expansion::cells`] of the one that is compared.
    pub cell: usize,
    /// And of the one that it is compared with.
    pub with: usize,
    /// In what.
    pub metric: Metric,
}

/// What can be said of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The ratio of the first to the second; `None`: fewer than two blocks have both, or one of them has 0
    /// in a block.
    pub ratio: Option<Interval>,
    /// Whether they are alike, or one is more, at that level.
    pub is_decided: bool,
}

/// All pairs of a plan, in the order of its cells.
#[must_use]
pub fn pairs(plan: &Plan, expansion: &Expansion) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, cell) in expansion.cells.iter().enumerate() {
        let Some(asked) = &plan.series[cell.series].compare else {
            continue;
        };
        let mut levels = cell.levels.clone();
        levels.extend(asked.with.clone());
        let is_with = |other: &&crate::cells::Cell| {
            other.series == cell.series && other.levels == levels && levels != cell.levels
        };
        let with = expansion.cells.iter().position(|other| is_with(&other));
        pairs.extend(with.map(|with| Pair {
            cell: index,
            with,
            metric: asked.metric,
        }));
    }
    pairs
}

/// Judges a pair by the trials of a run, with an interval of that level.
#[must_use]
pub fn judge(pair: &Pair, plan: &Plan, expansion: &Expansion, run: &Run, level: f64) -> Verdict {
    let of_cell = |index: usize| -> BTreeMap<u32, Range> {
        let cell = &expansion.cells[index];
        let series = &plan.series[cell.series].name;
        let is_of = |trial: &&Measured| {
            trial.series == *series && trial.levels == cell.levels && !trial.is_a_a
        };
        let trials = run.trials.iter().filter(is_of);
        to_map(trials.filter_map(|trial| Some((trial.block, trial.range(pair.metric)?))))
    };
    let (one, other) = (of_cell(pair.cell), of_cell(pair.with));
    let ratios: Vec<Range> = one
        .iter()
        .filter_map(|(block, range)| Some(range.over(other.get(block)?)))
        .collect();
    let end = |of: fn(&Range) -> f64| {
        let logs: Vec<f64> = ratios.iter().map(|ratio| of(ratio).ln()).collect();
        mean_interval(&logs, level)
    };
    // Without blocks in which one has 0, it would be the ratio of those alone in which both do something.
    let is_ratio = |ratio: &Range| ratio.low > 0.0 && ratio.high.is_finite();
    let ends = end(|ratio| ratio.low).zip(end(|ratio| ratio.high));
    let ends = ends.filter(|_| ratios.iter().all(is_ratio));
    let ratio = ends.map(|(low, high)| Interval {
        low: low.low.exp(),
        high: high.high.exp(),
        level,
    });
    Verdict {
        is_decided: ratio.as_ref().is_some_and(is_decided),
        ratio,
    }
}

/// The whole interval is within what does not matter, or on one side of 1 with its middle beyond that.
fn is_decided(ratio: &Interval) -> bool {
    let (least, most) = (1.0 / (1.0 + MATTERS_MIN), 1.0 + MATTERS_MIN);
    let middle = (ratio.low * ratio.high).sqrt();
    let is_alike = ratio.low >= least && ratio.high <= most;
    let is_other = !ratio.contains(1.0) && !(least..=most).contains(&middle);
    is_alike || is_other
}

/// What a pair is, in words: "loops=2, server=x against loops=1, server=x in good_per_s".
#[must_use]
pub fn named(pair: &Pair, expansion: &Expansion) -> String {
    let levels = |index: usize| levels_text(&expansion.cells[index].levels);
    format!(
        "{} against {} in {}",
        levels(pair.cell),
        levels(pair.with),
        pair.metric.name()
    )
}

/// The cells of some pairs, each once, in their order.
#[must_use]
pub fn cells(pairs: &[Pair]) -> Vec<u32> {
    let both = pairs.iter().flat_map(|pair| [pair.cell, pair.with]);
    let each = to_set(both.map(|cell| cell as u32));
    each.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64;

    use super::*;
    use crate::expand::expand;

    const PLAN: &str = "name = \"t\"\n[servers.x]\nkind = \"loadline\"\n[[series]]\nname = \"s\"\n\
        replicates = 4\na_a = false\ncompare = { metric = \"good_per_s\", with = { loops = 1 } }\n\
        factors = { loops = [1, 2, 3], connections = [10, 20] }\n[[series]]\nname = \"other\"";

    fn plan() -> (Plan, Expansion) {
        let plan = Plan::parse(PLAN, "plan", Path::new("/")).unwrap();
        let expansion = expand(&plan, 1, &[0], &[]).unwrap();
        (plan, expansion)
    }

    /// Trials of blocks in which the second cell of a pair has 1000 and the first so many times that.
    fn run(expansion: &Expansion, pair: &Pair, ratios: &[f64]) -> Run {
        let mut trials = Vec::new();
        for (block, ratio) in (0..).zip(ratios) {
            for (cell, value) in [(pair.cell, 1000.0 * ratio), (pair.with, 1000.0)] {
                trials.push(Measured {
                    series: "s".to_owned(),
                    block,
                    levels: expansion.cells[cell].levels.clone(),
                    values: [(pair.metric, value)].into(),
                    ..Measured::default()
                });
            }
        }
        Run {
            trials,
            ..Run::default()
        }
    }

    #[test]
    fn looks_are_fixed_and_share_the_error() {
        let looks = Looks::new(4, 20).unwrap();
        assert_eq!(looks.blocks, [4, 6, 9, 14, 20]);
        assert!((looks.level() - 0.99).abs() < 1e-9);
        assert_eq!(
            (looks.after(4), looks.after(7), looks.after(20)),
            (Some(6), Some(9), None)
        );
        assert_eq!(Looks::new(1, 3).unwrap().blocks, [1, 2, 3]);
        assert_eq!(Looks::new(5, 5).unwrap().blocks, [5]);
        let refused = Looks::new(5, 4).unwrap_err().to_string();
        assert!(
            refused.contains("the plan has 5 blocks; right would be"),
            "{refused}"
        );
    }

    #[test]
    fn each_cell_is_compared_with_the_one_that_differs_in_what_is_named() {
        let (plan, expansion) = plan();
        let pairs = pairs(&plan, &expansion);
        let names: Vec<String> = pairs.iter().map(|pair| named(pair, &expansion)).collect();
        assert_eq!(
            names,
            [
                "connections=10, loops=2, server=x against connections=10, loops=1, server=x in good_per_s",
                "connections=10, loops=3, server=x against connections=10, loops=1, server=x in good_per_s",
                "connections=20, loops=2, server=x against connections=20, loops=1, server=x in good_per_s",
                "connections=20, loops=3, server=x against connections=20, loops=1, server=x in good_per_s",
            ]
        );
        assert_eq!(cells(&pairs[..2]), [0, 1, 2]);
    }

    #[test]
    fn what_is_decided_is_alike_or_different_beyond_what_matters() {
        let (plan, expansion) = plan();
        let pair = &pairs(&plan, &expansion)[0];
        let judged = |ratios: &[f64]| {
            let run = run(&expansion, pair, ratios);
            judge(pair, &plan, &expansion, &run, 0.99)
        };
        for (ratios, is_decided) in [
            (&[1.5, 1.52, 1.48, 1.51][..], true),
            (&[1.0, 1.002, 0.999, 1.001], true),
            // Not 1, and not beyond what matters either; and one of which nothing is known.
            (&[1.019, 1.021, 1.020, 1.0195], false),
            (&[1.4, 0.8, 1.3, 1.1], false),
            // One did nothing in a block: the others alone do not decide.
            (&[1.5, 1.52, 0.0, 1.48, 1.51], false),
            (&[1.5], false),
            (&[], false),
        ] {
            let verdict = judged(ratios);
            assert_eq!(verdict.is_decided, is_decided, "{ratios:?}: {verdict:?}");
        }
        let ratio = judged(&[1.5, 1.52, 1.48, 1.51]).ratio.unwrap();
        assert!(ratio.contains(1.5) && ratio.level == 0.99, "{ratio:?}");
    }

    /// Two that are the same, looked at again and again: wrongly called different in 5 % at most. With the
    /// interval of a single look it would be some 16 %.
    #[test]
    fn over_all_looks_the_same_is_rarely_called_different() {
        let (plan, expansion) = plan();
        let pair = &pairs(&plan, &expansion)[0];
        let looks = Looks::new(4, 20).unwrap();
        let mut random = Pcg64::seed_from_u64(7);
        const RUNS: usize = 1000;
        let mut wrong = 0;
        for _ in 0..RUNS {
            // Noise of 10 % of either side: sums of twelve uniform ones are nearly normal.
            let mut noise = || {
                let sum: f64 = (0..12).map(|_| random.random::<f64>()).sum();
                (0.14 * (sum - 6.0)).exp()
            };
            let ratios: Vec<f64> = (0..20).map(|_| noise()).collect();
            let is_wrong = |blocks: &u32| {
                let run = run(&expansion, pair, &ratios[..*blocks as usize]);
                judge(pair, &plan, &expansion, &run, looks.level()).is_decided
            };
            wrong += usize::from(looks.blocks.iter().any(is_wrong));
        }
        // 5 % are 50; three standard deviations of that are 21.
        assert!(wrong <= 71, "{wrong} of {RUNS}");
        assert!(wrong >= 1, "a test that cannot fail");
    }
}
