//! Which server to use for a workload, from the trials of a run: a pure function of its journal.
//!
//! Factors are of two kinds. Those of the *workload* (service time, connections, rate, file size, ...)
//! are what a user has; those of the *server* ([`SERVER_FACTORS`]) are what a user can choose.
//! Advice is given for a workload that was measured, or one between two that were measured and agree;
//! beyond that there is none.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::journal::{Level, Levels, Trial};
use crate::stats::{Comparison, Difference, compare, geometric_mean, rank};

/// What can be chosen: everything else is the workload.
pub const SERVER_FACTORS: [&str; 12] = [
    "server",
    "architecture",
    "loops",
    "workers",
    "threads",
    "worker_pools",
    "accept",
    "balance",
    "queue",
    "queue_max",
    "socket_io",
    "idle_timers",
];

/// A difference below this is none, whatever the interval says: machines of the same kind differ by
/// more. Where A/A cells differ by more, that counts.
pub const MATTERS_MIN: f64 = 0.02;

/// Choices need so many blocks in common to be compared at all.
const BLOCKS_MIN: usize = 3;

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// More good answers a second.
    Throughput,
    /// A lower 99th percentile of the latency.
    TailLatency,
    /// Less CPU time of the server for an answer.
    CpuTime,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is better.
    pub goal: Goal,
    /// The workload that was asked about.
    pub workload: Levels,
    /// The measured workloads that it rests on: one, or the two around it.
    pub rests_on: Vec<Levels>,
    /// What to use.
    pub best: Choice,
    /// The next best, and how the best one compares with it; `None`: there was no other.
    pub runner_up: Option<(Choice, Comparison)>,
    /// Choices that cannot be told from the best.
    pub tied: Vec<Choice>,
    /// The smallest difference that counted, as a part of 1.
    pub matters: f64,
    /// Workloads that differ in one factor, for which something else is better.
    pub would_change: Vec<Change>,
}

/// A server as it was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Levels of the server's factors.
    pub levels: Levels,
    /// One of its command lines, as it was started.
    pub command: Vec<String>,
    /// Geometric mean over blocks: answers per second, microseconds, or microseconds of CPU time.
    pub value: f64,
    /// Blocks that it rests on.
    pub blocks: usize,
}

/// A workload for which the advice is another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The factor that differs.
    pub factor: String,
    /// Its level there.
    pub level: Level,
    /// What is better there.
    pub best: Levels,
    /// By how much it is better than what is advised here.
    pub comparison: Comparison,
}

/// Advises for a workload: levels of its factors; those that are not named must have been the same in
/// all trials.
///
/// # Errors
/// Why nothing can be said, in one line: the workload lies outside of what was measured, its
/// neighbours disagree, or there are too few trials.
pub fn advise(trials: &[Trial], asked: &Levels, goal: Goal, seed: u64) -> Result<Advice, String> {
    let table = Table::of(trials, goal);
    let workload = table.completed(asked)?;
    let matters = table.noise.max(MATTERS_MIN);
    let around = table.around(&workload)?;
    let mut answers = Vec::new();
    for measured in &around {
        answers.push(table.answer(measured, matters, seed)?);
    }
    let mut answers = answers.into_iter();
    let (mut best, runner_up, mut tied) = answers
        .next()
        .ok_or_else(|| "nothing was measured".to_owned())?;
    for (other, _, other_tied) in answers {
        let is_best = |choice: &Choice| choice.levels == best.levels;
        if !is_best(&other) && !other_tied.iter().any(is_best) {
            return Err(format!(
                "between the workloads that were measured around it the best choice changes, from {} \
                 to {}: right would be to measure {} itself",
                text(&best.levels),
                text(&other.levels),
                text(&workload)
            ));
        }
        tied.retain(|choice| {
            choice.levels == other.levels
                || other_tied.iter().any(|one| one.levels == choice.levels)
        });
        best.blocks = best.blocks.min(other.blocks);
    }
    Ok(Advice {
        goal,
        would_change: table.changes(&around[0], &best, matters, seed),
        workload,
        rests_on: around,
        best,
        runner_up,
        tied,
        matters,
    })
}

/// Values by workload, then by choice, then by block.
struct Table {
    goal: Goal,
    cells: BTreeMap<String, (Levels, BTreeMap<String, Cell>)>,
    /// By how much cells that are the same differ, as a part of 1.
    noise: f64,
}

#[derive(Clone, Default)]
struct Cell {
    levels: Levels,
    command: Vec<String>,
    by_block: BTreeMap<u32, f64>,
}

type Answer = (Choice, Option<(Choice, Comparison)>, Vec<Choice>);

impl Table {
    fn of(trials: &[Trial], goal: Goal) -> Self {
        let mut cells: BTreeMap<String, (Levels, BTreeMap<String, Cell>)> = BTreeMap::new();
        let mut repeated: BTreeMap<String, BTreeMap<u32, f64>> = BTreeMap::new();
        for trial in trials.iter().filter(|trial| trial.void.is_empty()) {
            let Some(value) = value(trial, goal) else {
                continue;
            };
            let (server, workload): (Levels, Levels) = (trial.levels.clone().into_iter())
                .partition(|(factor, _)| SERVER_FACTORS.contains(&factor.as_str()));
            if trial.is_a_a {
                let again = repeated.entry(text(&trial.levels)).or_default();
                again.insert(trial.block, value);
                continue;
            }
            let of_workload = cells.entry(text(&workload)).or_default();
            of_workload.0 = workload;
            let cell = of_workload.1.entry(text(&server)).or_default();
            cell.levels = server;
            cell.command.clone_from(&trial.server.command);
            cell.by_block.insert(trial.block, value);
        }
        let mut table = Self {
            goal,
            cells,
            noise: 0.0,
        };
        table.noise = table.noise(&repeated);
        table
    }

    /// The typical difference of two trials that are the same, in the same block.
    fn noise(&self, repeated: &BTreeMap<String, BTreeMap<u32, f64>>) -> f64 {
        let mut ratios = Vec::new();
        for (workload, choices) in self.cells.values() {
            for cell in choices.values() {
                let mut levels = workload.clone();
                levels.extend(cell.levels.clone());
                let Some(again) = repeated.get(&text(&levels)) else {
                    continue;
                };
                let pairs = cell.by_block.iter();
                let pairs = pairs.filter_map(|(block, first)| Some((*first, *again.get(block)?)));
                let pairs: Vec<f64> = pairs.map(|(first, again)| first / again).collect();
                ratios.extend(geometric_mean(&pairs).map(|ratio| ratio.ln().abs()));
            }
        }
        ratios
            .iter()
            .fold(0.0_f64, |most, one| most.max(*one))
            .exp_m1()
    }

    /// The workload with the factors that were not named, if they never varied.
    fn completed(&self, asked: &Levels) -> Result<Levels, String> {
        let mut levels: BTreeMap<&String, Vec<&Level>> = BTreeMap::new();
        for (factor, level) in self.cells.values().flat_map(|(workload, _)| workload) {
            let of_factor = levels.entry(factor).or_default();
            if !of_factor.contains(&level) {
                of_factor.push(level);
            }
        }
        let known = || {
            levels
                .keys()
                .map(|one| one.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        if self.cells.is_empty() {
            return Err("no trial of this run counts: there is nothing to advise from".to_owned());
        }
        if let Some(strange) = asked.keys().find(|factor| !levels.contains_key(factor)) {
            return Err(format!(
                "{strange} was not varied in this run; right would be one of {}",
                known()
            ));
        }
        let mut workload = asked.clone();
        for (factor, of_factor) in levels {
            if workload.contains_key(factor) {
                continue;
            }
            match of_factor.as_slice() {
                [only] => _ = workload.insert(factor.clone(), (*only).clone()),
                several => {
                    let several = several.iter().map(|one| level_text(one));
                    let several: Vec<String> = several.collect();
                    return Err(format!(
                        "{factor} was varied: right would be to name it, one of {}",
                        several.join(", ")
                    ));
                }
            }
        }
        Ok(workload)
    }

    /// The measured workload, or the two around it where one number lies between.
    fn around(&self, workload: &Levels) -> Result<Vec<Levels>, String> {
        if self.cells.contains_key(&text(workload)) {
            return Ok(vec![workload.clone()]);
        }
        for (factor, level) in workload {
            let Level::Number(asked) = level else {
                continue;
            };
            let same = (self.cells.values()).filter(|(measured, _)| {
                let rest = |levels: &Levels| {
                    let mut rest = levels.clone();
                    rest.remove(factor);
                    rest
                };
                rest(measured) == rest(workload)
            });
            let numbers = same.filter_map(|(measured, _)| match measured.get(factor) {
                Some(Level::Number(number)) => Some((*number, measured.clone())),
                _ => None,
            });
            let (mut below, mut above): (Vec<_>, Vec<_>) =
                numbers.partition(|(number, _)| number < asked);
            below.sort_by(|one, other| other.0.total_cmp(&one.0));
            above.sort_by(|one, other| one.0.total_cmp(&other.0));
            if let (Some(below), Some(above)) = (below.first(), above.first()) {
                return Ok(vec![below.1.clone(), above.1.clone()]);
            }
        }
        let measured: Vec<String> = (self.cells.values())
            .take(WORKLOADS_NAMED_MAX)
            .map(|(measured, _)| text(measured))
            .collect();
        Err(format!(
            "{} was not measured and does not lie between workloads that were: nothing can be said; \
             measured were {}",
            text(workload),
            measured.join("; ")
        ))
    }

    fn answer(&self, workload: &Levels, matters: f64, seed: u64) -> Result<Answer, String> {
        let cells: Vec<&Cell> = self.choices(workload).collect();
        let blocks = common_blocks(&cells);
        if cells.len() > 1 && blocks.len() < BLOCKS_MIN {
            return Err(format!(
                "only {} blocks of {} have every choice: right would be at least {BLOCKS_MIN}",
                blocks.len(),
                text(workload)
            ));
        }
        // Ranks are by the largest: times are turned over.
        let of_cell = |cell: &&Cell| -> Vec<f64> {
            let values = blocks.iter().map(|block| cell.by_block[block]);
            values.map(|value| self.turned(value)).collect()
        };
        let values: Vec<Vec<f64>> = cells.iter().map(of_cell).collect();
        let places = rank(&values, matters, seed);
        let choice = |index: usize, value: f64| Choice {
            levels: cells[index].levels.clone(),
            command: cells[index].command.clone(),
            value: self.turned(value),
            blocks: blocks.len(),
        };
        let first = places.first().ok_or("no choice has a value above 0")?;
        let best = choice(first.index, first.value);
        let runner_up = places.get(1).and_then(|place| {
            let pairs = values[first.index].iter().zip(&values[place.index]);
            let pairs: Vec<(f64, f64)> = pairs.map(|(best, other)| (*best, *other)).collect();
            Some((
                choice(place.index, place.value),
                compare(&pairs, matters, seed)?,
            ))
        });
        let tied = places[1..].iter().filter(|place| place.is_tied_with_best);
        let tied = tied.map(|place| choice(place.index, place.value)).collect();
        Ok((best, runner_up, tied))
    }

    fn choices(&self, workload: &Levels) -> impl Iterator<Item = &Cell> {
        let of_workload = self.cells.get(&text(workload));
        of_workload
            .into_iter()
            .flat_map(|(_, choices)| choices.values())
    }

    fn turned(&self, value: f64) -> f64 {
        match self.goal {
            Goal::Throughput => value,
            Goal::TailLatency | Goal::CpuTime => 1.0 / value,
        }
    }

    /// Workloads beside this one for which something else is clearly better.
    fn changes(&self, workload: &Levels, best: &Choice, matters: f64, seed: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for (other, _) in self.cells.values() {
            let differs = workload
                .iter()
                .filter(|(factor, level)| other.get(*factor) != Some(*level));
            let differs: Vec<&String> = differs.map(|(factor, _)| factor).collect();
            let ([factor], true) = (differs.as_slice(), other.len() == workload.len()) else {
                continue;
            };
            let Ok((there, ..)) = self.answer(other, matters, seed) else {
                continue;
            };
            if there.levels == best.levels {
                continue;
            }
            let of = |levels: &Levels| self.choices(other).find(|cell| cell.levels == *levels);
            let (Some(better), Some(advised)) = (of(&there.levels), of(&best.levels)) else {
                continue;
            };
            let pairs = better.by_block.iter().filter_map(|(block, value)| {
                let advised = advised.by_block.get(block)?;
                Some((self.turned(*value), self.turned(*advised)))
            });
            let comparison = compare(&pairs.collect::<Vec<_>>(), matters, seed);
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
        changes
    }
}

/// Workloads that a refusal names.
const WORKLOADS_NAMED_MAX: usize = 8;

fn common_blocks(cells: &[&Cell]) -> Vec<u32> {
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    let has_all = |block: &&u32| others.iter().all(|cell| cell.by_block.contains_key(block));
    first.by_block.keys().filter(has_all).copied().collect()
}

/// What the goal looks at; `None`: it was not measured, or is 0.
fn value(trial: &Trial, goal: Goal) -> Option<f64> {
    let group = trial.load.as_ref()?.headline()?;
    let value = match goal {
        Goal::Throughput => group.total.rates.good_per_s,
        Goal::TailLatency => group.total.latency.percentile_us(99.0)? as f64,
        Goal::CpuTime => {
            let cpu_s = trial.server.cpu_user_s + trial.server.cpu_kernel_s;
            cpu_s * 1e6 / group.total.tally.completed as f64
        }
    };
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// `connections = 64, service_us = 0`.
fn text(levels: &Levels) -> String {
    if levels.is_empty() {
        return "the only workload".to_owned();
    }
    let mut text = String::new();
    for (factor, level) in levels {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{factor} = {}", level_text(level)); // to memory
    }
    text
}

fn level_text(level: &Level) -> String {
    match level {
        Level::Number(number) => number.to_string(),
        Level::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use loadline_load::trial::{GroupRecord, Results, TrialRecord};

    use super::*;

    /// Answers a second of each architecture at each service time, five blocks that differ by a half.
    fn run(values: &[(&str, f64, f64)]) -> Vec<Trial> {
        let mut trials = Vec::new();
        for block in 0..5_u32 {
            for (index, (architecture, service_us, per_s)) in values.iter().enumerate() {
                let wobble = 1.0 + 0.004 * f64::from((block * 7 + index as u32 * 3) % 5);
                let mut total = Results::default();
                total.rates.good_per_s = per_s * wobble * (1.0 + 0.1 * f64::from(block));
                total.tally.offered = 1;
                let record = TrialRecord {
                    groups: vec![GroupRecord {
                        total,
                        ..GroupRecord::default()
                    }],
                    ..TrialRecord::default()
                };
                let mut trial = Trial {
                    block,
                    levels: levels(&[("service_us", Level::Number(*service_us))]),
                    load: Some(Box::new(record)),
                    ..Trial::default()
                };
                let name = Level::Text((*architecture).to_owned());
                trial.levels.insert("architecture".to_owned(), name);
                trial.server.command = vec!["loadline".to_owned(), (*architecture).to_owned()];
                trials.push(trial);
            }
        }
        trials
    }

    fn levels(of: &[(&str, Level)]) -> Levels {
        let pairs = of
            .iter()
            .map(|(name, level)| ((*name).to_owned(), level.clone()));
        pairs.collect()
    }

    fn ask(trials: &[Trial], service_us: f64) -> Result<Advice, String> {
        let asked = levels(&[("service_us", Level::Number(service_us))]);
        advise(trials, &asked, Goal::Throughput, 1)
    }

    const RUN: [(&str, f64, f64); 6] = [
        ("reactor", 0.0, 60_000.0),
        ("proactor", 0.0, 59_700.0),
        ("thread-pool", 0.0, 40_000.0),
        ("reactor", 500.0, 2_000.0),
        ("proactor", 500.0, 2_000.0),
        ("thread-pool", 500.0, 8_000.0),
    ];

    #[test]
    fn the_best_its_ties_and_what_would_change_it() {
        let advice = ask(&run(&RUN), 0.0).unwrap();
        let name = |choice: &Choice| text(&choice.levels);
        assert_eq!(name(&advice.best), "architecture = reactor");
        assert_eq!(advice.best.command, ["loadline", "reactor"]);
        let tied: Vec<String> = advice.tied.iter().map(name).collect();
        assert_eq!(tied, ["architecture = proactor"]);
        let (runner_up, comparison) = advice.runner_up.unwrap();
        assert_eq!(name(&runner_up), "architecture = proactor");
        assert!(!comparison.difference.is_distinguishable());
        let change = &advice.would_change[0];
        assert_eq!(
            (change.factor.as_str(), &change.level),
            ("service_us", &Level::Number(500.0))
        );
        assert_eq!(text(&change.best), "architecture = thread-pool");
        assert!((change.comparison.ratio - 4.0).abs() < 0.1);
    }

    #[test]
    fn nothing_is_said_beyond_what_was_measured() {
        let trials = run(&RUN);
        let refused = ask(&trials, 1000.0).unwrap_err();
        assert!(refused.contains("nothing can be said"), "{refused}");
        // Between the two the best one changes.
        let refused = ask(&trials, 100.0).unwrap_err();
        assert!(refused.contains("the best choice changes"), "{refused}");
        let strange = levels(&[("moon", Level::Number(1.0))]);
        let refused = advise(&trials, &strange, Goal::Throughput, 1).unwrap_err();
        assert!(refused.contains("moon was not varied"), "{refused}");
        let refused = advise(&trials, &Levels::new(), Goal::Throughput, 1).unwrap_err();
        assert!(refused.contains("service_us was varied"), "{refused}");
        assert!(advise(&[], &Levels::new(), Goal::Throughput, 1).is_err());
        // Two blocks are not enough.
        let few: Vec<Trial> = trials.into_iter().filter(|trial| trial.block < 2).collect();
        assert!(ask(&few, 0.0).unwrap_err().contains("only 2 blocks"));
    }

    #[test]
    fn between_two_that_agree() {
        let agreeing = [
            ("reactor", 0.0, 60_000.0),
            ("thread-pool", 0.0, 40_000.0),
            ("reactor", 100.0, 30_000.0),
            ("thread-pool", 100.0, 20_000.0),
        ];
        let advice = ask(&run(&agreeing), 50.0).unwrap();
        assert_eq!(text(&advice.best.levels), "architecture = reactor");
        assert_eq!(advice.rests_on.len(), 2);
    }

    #[test]
    fn void_trials_say_nothing_and_noise_is_believed() {
        let mut trials = run(&RUN);
        for trial in &mut trials {
            let is_reactor = trial.levels["architecture"] == Level::Text("reactor".to_owned());
            if is_reactor && trial.levels["service_us"] == Level::Number(0.0) {
                trial.void.push("disturbed".to_owned());
            }
        }
        let advice = ask(&trials, 0.0).unwrap();
        assert_eq!(text(&advice.best.levels), "architecture = proactor");
        // A/A cells that differ by a half make a third no difference.
        let again: Vec<Trial> = run(&[("thread-pool", 0.0, 25_000.0)])
            .into_iter()
            .map(|mut trial| {
                trial.is_a_a = true;
                trial
            })
            .collect();
        trials.extend(again);
        let advice = ask(&trials, 0.0).unwrap();
        assert!(advice.matters > 0.4, "{}", advice.matters);
        assert_eq!(advice.tied.len(), 1);
    }
}
