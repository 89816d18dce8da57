//! The trials of a series as values by workload, by choice and by block; and what they say.

use std::collections::{BTreeMap, BTreeSet};

use loadline_base::sorting::sort_by;

use super::choices::{Known, known};
use super::{AdviceError, Change, Choice, Goal, Question, text};
use crate::analysis::{Measured, Run, compare};
use crate::journal::{Level, Levels};
use loadline_capacity::stats::{
    Comparison, Difference, Range, compare_ranges, geometric_mean, rank,
};

/// Blocks that choices need in common to be compared.
const BLOCKS_MIN: usize = 3;
/// Workloads that a refusal names.
const WORKLOADS_NAMED_MAX: usize = 8;

/// The best choice of a workload, the next best with how the best compares with it, and those that
/// cannot be distinguished from the best.
pub(super) type Answer = (Choice, Option<(Choice, Comparison)>, Vec<Choice>);

pub(super) struct Table<'r> {
    goal: Goal,
    cells: BTreeMap<String, OfWorkload<'r>>,
    choices: BTreeSet<String>,
    /// The second of A/A trials, by all levels and block.
    repeated: BTreeMap<String, BTreeMap<u32, f64>>,
}

#[derive(Default)]
struct OfWorkload<'r> {
    levels: Levels,
    cells: BTreeMap<String, Cell<'r>>,
}

struct Cell<'r> {
    levels: Levels,
    last: &'r Measured,
    is_client_limited: bool,
    by_block: BTreeMap<u32, Range>,
}

impl<'r> Table<'r> {
    pub(super) fn of(run: &'r Run, series: &str, question: &Question) -> Result<Self, AdviceError> {
        let Known {
            choices,
            references,
        } = known(run, series)?;
        let metric = question.goal.metric();
        let is_made = |trial: &&Measured| {
            let asked = question.workload.iter();
            let mut made = asked.filter(|(factor, _)| choices.contains(*factor));
            made.all(|(factor, level)| trial.levels.get(factor) == Some(level))
        };
        let trials = run
            .trials
            .iter()
            .filter(|it| it.series == series && it.counts())
            .filter(|it| !references.contains(&it.server.name))
            .filter(is_made);
        let mut cells: BTreeMap<String, OfWorkload<'r>> = BTreeMap::new();
        let mut repeated: BTreeMap<String, BTreeMap<u32, f64>> = BTreeMap::new();
        for trial in trials {
            // A choice with 0 in a block is in no rank: without that trial it would look as good as in the others.
            let Some(range) = trial.range(metric) else {
                continue;
            };
            if trial.is_a_a {
                let again = repeated.entry(text(&trial.levels)).or_default();
                again.insert(trial.block, range.value);
                continue;
            }
            let (choice, workload): (Levels, Levels) = (trial.levels.clone().into_iter())
                .partition(|(factor, _)| choices.contains(factor));
            let of_workload = cells.entry(text(&workload)).or_default();
            of_workload.levels = workload;
            let cell = of_workload.cells.entry(text(&choice));
            let cell = cell.or_insert_with(|| Cell {
                levels: choice,
                last: trial,
                is_client_limited: false,
                by_block: BTreeMap::new(),
            });
            cell.is_client_limited |= trial.client_limited;
            cell.by_block.insert(trial.block, range);
        }
        Ok(Self {
            goal: question.goal,
            cells,
            choices,
            repeated,
        })
    }

    /// The largest typical difference of two trials that are the same, in the same block, as a part
    /// of 1.
    pub(super) fn noise(&self) -> f64 {
        let mut most = 0.0_f64;
        for of_workload in self.cells.values() {
            for cell in of_workload.cells.values() {
                let Some(again) = self.repeated.get(&text(&cell.last.levels)) else {
                    continue;
                };
                let pairs = cell.by_block.iter();
                let ratios: Vec<f64> = pairs
                    .filter_map(|(block, first)| Some(first.value / again.get(block)?))
                    .collect();
                most = geometric_mean(&ratios).map_or(most, |ratio| most.max(ratio.ln().abs()));
            }
        }
        most.exp_m1()
    }

    /// The workload with the factors that were not named, if they never varied.
    pub(super) fn completed(&self, asked: &Levels) -> Result<Levels, AdviceError> {
        let mut levels: BTreeMap<&String, Vec<&Level>> = BTreeMap::new();
        for (factor, level) in self.cells.values().flat_map(|it| &it.levels) {
            let of_factor = levels.entry(factor).or_default();
            if !of_factor.contains(&level) {
                of_factor.push(level);
            }
        }
        if self.cells.is_empty() {
            return Err(AdviceError::TooFew(
                "no trial of this series counts with these levels: there is nothing to advise from"
                    .to_owned(),
            ));
        }
        let is_known =
            |factor: &String| levels.contains_key(factor) || self.choices.contains(factor);
        if let Some(strange) = asked.keys().find(|factor| !is_known(factor)) {
            let known = levels.keys().map(|one| one.as_str());
            let known: Vec<&str> = known
                .chain(self.choices.iter().map(String::as_str))
                .collect();
            return Err(AdviceError::Question(format!(
                "{strange} was not varied in this series; right would be one of {}",
                known.join(", ")
            )));
        }
        let mut workload = asked.clone();
        workload.retain(|factor, _| levels.contains_key(factor));
        for (factor, of_factor) in levels {
            if workload.contains_key(factor) {
                continue;
            }
            let [only] = of_factor.as_slice() else {
                let mut several = of_factor;
                sort_by(&mut several, compare);
                let several: Vec<String> = several.iter().map(ToString::to_string).collect();
                return Err(AdviceError::Question(format!(
                    "{factor} was varied: right would be to name it, one of {}",
                    several.join(", ")
                )));
            };
            workload.insert(factor.clone(), (*only).clone());
        }
        Ok(workload)
    }

    /// The measured workload, or the two around it where one number lies between.
    pub(super) fn around(&self, workload: &Levels) -> Result<Vec<Levels>, AdviceError> {
        if self.cells.contains_key(&text(workload)) {
            return Ok(vec![workload.clone()]);
        }
        for (factor, level) in workload {
            let Level::Number(asked) = level else {
                continue;
            };
            let rest = |levels: &Levels| {
                let mut rest = levels.clone();
                rest.remove(factor);
                rest
            };
            let same = self.cells.values().map(|it| &it.levels);
            let same = same.filter(|measured| rest(measured) == rest(workload));
            let numbers = same.filter_map(|measured| match measured.get(factor) {
                Some(Level::Number(number)) => Some((*number, measured.clone())),
                _ => None,
            });
            let (mut below, mut above): (Vec<_>, Vec<_>) =
                numbers.partition(|(number, _)| number < asked);
            sort_by(&mut below, |one, other| other.0.total_cmp(&one.0));
            sort_by(&mut above, |one, other| one.0.total_cmp(&other.0));
            if let (Some(below), Some(above)) = (below.first(), above.first()) {
                return Ok(vec![below.1.clone(), above.1.clone()]);
            }
        }
        Err(AdviceError::NotMeasured(format!(
            "{} was not measured and does not lie between workloads that were: nothing can be said; \
             measured were {}",
            text(workload),
            self.measured()
        )))
    }

    /// The workloads that were measured, the first of them by name.
    fn measured(&self) -> String {
        let mut all: Vec<&Levels> = self.cells.values().map(|it| &it.levels).collect();
        sort_by(&mut all, compare);
        let named = all.iter().take(WORKLOADS_NAMED_MAX);
        let named: Vec<String> = named.copied().map(text).collect();
        let named = named.join("; ");
        match all.len().saturating_sub(WORKLOADS_NAMED_MAX) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    pub(super) fn answer(&self, workload: &Levels, matters: f64) -> Result<Answer, AdviceError> {
        let cells: Vec<&Cell<'_>> = self.of_workload(workload).collect();
        let blocks = common_blocks(&cells);
        if cells.len() > 1 && blocks.len() < BLOCKS_MIN {
            return Err(AdviceError::TooFew(format!(
                "blocks of {} in which every choice was measured: {}; right would be at least \
                 {BLOCKS_MIN}",
                text(workload),
                blocks.len()
            )));
        }
        // Ranks are by the largest: times are turned over.
        let of_cell = |cell: &&Cell<'_>| -> Vec<Range> {
            let ranges = blocks.iter().map(|block| cell.by_block[block]);
            ranges.map(|range| self.turned(range)).collect()
        };
        let ranges: Vec<Vec<Range>> = cells.iter().map(of_cell).collect();
        let values: Vec<Vec<f64>> = ranges
            .iter()
            .map(|of_one| of_one.iter().map(|range| range.value).collect())
            .collect();
        let ranks = rank(&values, matters);
        let choice = |index: usize, value: f64| Choice {
            levels: cells[index].levels.clone(),
            command: cells[index].last.server.command.clone(),
            configuration: cells[index].last.server.configuration.clone(),
            cpus: cells[index].last.server.cpus.clone(),
            cpu_quota: (cells[index].last.server.cpu_quota.as_ref()).map(|quota| quota.cpus),
            value: self.turned(Range::exact(value)).value,
            blocks: blocks.len(),
            is_client_limited: cells[index].is_client_limited && self.goal.is_limited_by_clients(),
        };
        let first = ranks
            .first()
            .ok_or_else(|| AdviceError::TooFew("no choice has a value above 0".to_owned()))?;
        let best = choice(first.index, first.value);
        let to_best = |index: usize| {
            let pairs = ranges[first.index].iter().zip(&ranges[index]);
            let ratios: Vec<Range> = pairs.map(|(best, other)| best.over(other)).collect();
            compare_ranges(&ratios, matters)
        };
        let runner_up = ranks.get(1).and_then(|rank| {
            let comparison = to_best(rank.index)?;
            Some((choice(rank.index, rank.value), comparison))
        });
        let is_tied = |index: usize| {
            let is_limited = (best.is_client_limited || cells[index].is_client_limited)
                && self.goal.is_limited_by_clients();
            let is_more = |comparison: Comparison| comparison.difference == Difference::More;
            is_limited && !to_best(index).is_some_and(is_more)
        };
        let tied = ranks[1..]
            .iter()
            .filter(|rank| rank.is_tied_with_best || is_tied(rank.index));
        let tied = tied.map(|rank| choice(rank.index, rank.value)).collect();
        Ok((best, runner_up, tied))
    }

    fn of_workload(&self, workload: &Levels) -> impl Iterator<Item = &Cell<'r>> {
        let found = self.cells.get(&text(workload));
        found.into_iter().flat_map(|it| it.cells.values())
    }

    fn turned(&self, range: Range) -> Range {
        match self.goal {
            Goal::Throughput => range,
            Goal::TailLatency | Goal::CpuTime | Goal::Memory => Range::exact(1.0).over(&range),
        }
    }

    /// Workloads beside this one for which something else is clearly better.
    pub(super) fn changes(&self, workload: &Levels, best: &Choice, matters: f64) -> Vec<Change> {
        let mut changes = Vec::new();
        for other in self.cells.values().map(|it| &it.levels) {
            let differs = workload
                .iter()
                .filter(|(factor, level)| other.get(*factor) != Some(*level));
            let differs: Vec<&String> = differs.map(|(factor, _)| factor).collect();
            let ([factor], true) = (differs.as_slice(), other.len() == workload.len()) else {
                continue;
            };
            let Ok((there, _, tied)) = self.answer(other, matters) else {
                continue;
            };
            // The best of several seems better than a given one by chance, too: ties allow for that.
            let is_advised = |one: &Choice| one.levels == best.levels;
            if is_advised(&there) || tied.iter().any(is_advised) {
                continue;
            }
            let of = |levels: &Levels| self.of_workload(other).find(|it| it.levels == *levels);
            let (Some(better), Some(advised)) = (of(&there.levels), of(&best.levels)) else {
                continue;
            };
            let ratios = better.by_block.iter().filter_map(|(block, range)| {
                let advised = advised.by_block.get(block)?;
                let ratio = self.turned(*range).over(&self.turned(*advised));
                Some(ratio).filter(|ratio| ratio.low > 0.0 && ratio.high.is_finite())
            });
            let comparison = compare_ranges(&ratios.collect::<Vec<_>>(), matters);
            if let Some(comparison) = comparison
                && comparison.difference == Difference::More
            {
                changes.push(Change {
                    factor: (*factor).clone(),
                    level: other[*factor].clone(),
                    best: there.levels,
                    comparison,
                });
            }
        }
        let by_level = |one: &Change, other: &Change| {
            let by_factor = one.factor.cmp(&other.factor);
            by_factor.then_with(|| compare(&one.level, &other.level))
        };
        sort_by(&mut changes, by_level);
        changes
    }
}

fn common_blocks(cells: &[&Cell<'_>]) -> Vec<u32> {
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    let has_all = |block: &&u32| others.iter().all(|cell| cell.by_block.contains_key(block));
    first.by_block.keys().filter(has_all).copied().collect()
}
