//! Which server to use for a workload, from the trials of a run: a pure function of its journal.
//!
//! Factors are of two kinds. Those of the *workload* (service time, connections, rate, file size, ...)
//! are what a user has; *choices* (the server, and whatever sets its options) are what a user can
//! decide. Advice is given for a workload that was measured, or one between two that were measured and
//! agree; beyond that there is none.

mod choices;
mod table;
#[cfg(test)]
mod tests;

use loadline_base::choice;
use loadline_base::sorting::sort;
use serde::{Deserialize, Serialize};

use crate::analysis::{Metric, Run};
use crate::journal::{Level, Levels};
use crate::plan::PlanError;
use loadline_capacity::stats::Comparison;
use table::Table;
use thiserror::Error;

/// A difference below this is none, whatever the interval says: machines of the same kind differ by
/// more. Where A/A cells differ by more, that counts.
pub const MATTERS_MIN: f64 = 0.02;

choice! {
    /// What is better.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Goal {
        /// More good answers a second.
        #[default]
        Throughput "throughput",
        /// A lower 99th percentile of the latency.
        TailLatency "latency",
        /// Less CPU time of the server for an answer.
        CpuTime "cpu",
        /// Less memory of the server.
        Memory "memory",
    }
}

impl Goal {
    /// What it looks at.
    #[must_use]
    pub fn metric(self) -> Metric {
        match self {
            Self::Throughput => Metric::GoodPerS,
            Self::TailLatency => Metric::P99Us,
            Self::CpuTime => Metric::CpuUsPerRequest,
            Self::Memory => Metric::MemoryBytes,
        }
    }

    /// Whether a client at its end makes it worse than the server is: what the server uses for an
    /// answer is what it is.
    #[must_use]
    pub fn is_limited_by_clients(self) -> bool {
        matches!(self, Self::Throughput | Self::TailLatency)
    }
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The series; `None`: the run has one only.
    pub series: Option<String>,
    /// Levels of the workload: factors that are not named must have been the same in all trials. A
    /// choice that is named is one that has been made.
    pub workload: Levels,
    /// What is better.
    pub goal: Goal,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is better.
    pub goal: Goal,
    /// The series that it rests on.
    pub series: String,
    /// The workload that was asked about.
    pub workload: Levels,
    /// The measured workloads that it rests on: one, or the two around it.
    pub rests_on: Vec<Levels>,
    /// What to use. Its value is that of the first workload that the advice rests on.
    pub best: Choice,
    /// The next best, and how the best one compares with it (above 1: the best is better); `None`:
    /// there was no other.
    pub runner_up: Option<(Choice, Comparison)>,
    /// Choices that cannot be distinguished from the best.
    pub tied: Vec<Choice>,
    /// The smallest difference that counted, as a part of 1.
    pub matters: f64,
    /// Workloads that differ in one factor, for which something else is better.
    pub would_change: Vec<Change>,
    /// Trials of the series that were discarded, and say nothing here.
    #[serde(alias = "void")]
    pub discarded: usize,
}

/// A server as it was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Levels of what was chosen.
    pub levels: Levels,
    /// One of its command lines, as it was started.
    pub command: Vec<String>,
    /// The file that it was configured by, if one was written.
    pub configuration: Option<String>,
    /// CPUs that it had: "0,2-3".
    pub cpus: String,
    /// CPU time that it could use, in CPUs, where it had a quota.
    #[serde(default)]
    pub cpu_quota: Option<f64>,
    /// Geometric mean over blocks: answers per second, microseconds, microseconds of CPU time, or
    /// bytes.
    pub value: f64,
    /// Blocks that it rests on.
    pub blocks: usize,
    /// Whether the client was the limit in some of them, so that its throughput is the least that it
    /// can carry, where that or latency is the goal.
    pub is_client_limited: bool,
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

/// Why nothing can be said: one line.
#[derive(Clone, Debug, Error)]
pub enum AdviceError {
    /// The plan does not say which factors are choices.
    #[error("the plan of the run cannot be read by this version: {0}")]
    Plan(#[from] PlanError),
    /// There are no trials, or too few.
    #[error("{0}")]
    TooFew(String),
    /// The question is not one that this run can be asked.
    #[error("{0}")]
    Question(String),
    /// The workload lies outside of what was measured, or between what disagrees.
    #[error("{0}")]
    NotMeasured(String),
}

/// Advises.
///
/// # Errors
/// Why nothing can be said.
pub fn advise(run: &Run, question: &Question) -> Result<Advice, AdviceError> {
    let series = series(run, question.series.as_deref())?;
    let table = Table::of(run, series, question)?;
    let workload = table.completed(&question.workload)?;
    let matters = table.noise().max(MATTERS_MIN);
    let around = table.around(&workload)?;
    let answers = around.iter().map(|it| table.answer(it, matters));
    let mut answers = answers.collect::<Result<Vec<_>, _>>()?.into_iter();
    let (mut best, runner_up, mut tied) = answers
        .next()
        .ok_or_else(|| AdviceError::TooFew("nothing was measured".to_owned()))?;
    for (other, _, other_tied) in answers {
        let is_best = |choice: &Choice| choice.levels == best.levels;
        if !is_best(&other) && !other_tied.iter().any(is_best) {
            return Err(AdviceError::NotMeasured(format!(
                "between the workloads that were measured around it the best choice changes, from {} \
                 to {}: right would be to measure {} itself",
                text(&best.levels),
                text(&other.levels),
                text(&workload)
            )));
        }
        tied.retain(|choice| {
            choice.levels == other.levels
                || other_tied.iter().any(|one| one.levels == choice.levels)
        });
        best.blocks = best.blocks.min(other.blocks);
    }
    let is_discarded =
        |trial: &&crate::analysis::Measured| trial.series == series && !trial.counts();
    Ok(Advice {
        goal: question.goal,
        series: series.to_owned(),
        would_change: table.changes(&around[0], &best, matters),
        workload,
        rests_on: around,
        best,
        runner_up,
        tied,
        matters,
        discarded: run.trials.iter().filter(is_discarded).count(),
    })
}

/// The series that was asked for, or the only one: cells of different series differ in more than their
/// levels.
fn series<'r>(run: &'r Run, asked: Option<&str>) -> Result<&'r str, AdviceError> {
    let mut names: Vec<&str> = run.trials.iter().map(|it| it.series.as_str()).collect();
    sort(&mut names);
    names.dedup();
    match (asked, names.as_slice()) {
        (_, []) => Err(AdviceError::TooFew(
            "the run has no trial yet: there is nothing to advise from".to_owned(),
        )),
        (Some(asked), names) => {
            let found = names.iter().find(|name| **name == asked);
            let (asked, names) = (asked.escape_debug(), names.join(", "));
            let problem = format!("no series {asked}; right would be one of {names}");
            found.copied().ok_or(AdviceError::Question(problem))
        }
        (None, [only]) => Ok(only),
        (None, names) => Err(AdviceError::Question(format!(
            "the run has several series, which differ in more than their levels; right would be \
             --series with one of {}",
            names.join(", ")
        ))),
    }
}

/// `connections = 64, service_us = 0`.
#[must_use]
pub fn text(levels: &Levels) -> String {
    if levels.is_empty() {
        return "the only workload".to_owned();
    }
    let pairs = levels.iter();
    let texts = pairs.map(|(factor, level)| format!("{factor} = {level}"));
    texts.collect::<Vec<_>>().join(", ")
}
