//! Runs a plan: trial after trial, each recorded before the next begins.
//!
//! This is the part of the lab that acts. The loop here knows no processes: what a trial is stands
//! behind [`TrialRunner`], so tests make one up. [`Processes`] is the real one: a fresh server and a client
//! for each trial, both under a [`guard`].

mod child;
mod client;
mod configurations;
mod databases;
mod error;
pub mod guard;
mod judge;
mod judge_link;
mod launch_context;
pub mod link_check;
mod machine;
mod namespaces;
mod network;
mod own_capacity;
mod prepare;
mod quota;
mod reach;
pub mod relay;
mod relayed;
mod report;
mod servers;
mod site;
mod start;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) use child::Bounds;
pub(crate) use client::{client_s, judge_answer, run_client};
pub use error::RunnerError;
pub(crate) use judge::stolen;
pub use network::check as check_network;
pub(crate) use network::check_link;
pub use own_capacity::OwnCapacities;
pub use prepare::{Prepared, RunRequest, prepare};
pub use quota::check as check_quota;
pub use start::{Start, Where, starts};
pub use trial::Processes;
pub(crate) use trial::seen;

use loadline_record::MachineRecord;
use thiserror::Error;

use crate::expand::{Expansion, OVERHEAD_S, PlannedTrial};
use crate::journal::{CapacityTrial, Line, Store, Trial};
use crate::observer::{IDLE_WAIT_MAX, RunObserver, RunProgress};
use crate::plan::Plan;

/// Runs single trials.
pub trait TrialRunner {
    /// Runs one from begin to end, which was run so often before and disturbed. A trial that went
    /// wrong is discarded, with its reasons.
    ///
    /// # Errors
    /// It did not come to its end, and is not to be recorded.
    fn run(&mut self, planned: &PlannedTrial, repeat: u32) -> Result<Trial, Stop>;

    /// Waits, for about [`IDLE_WAIT_MAX`] at most, until no other program uses the CPUs; returns for how
    /// long it did.
    fn wait_until_idle(&mut self) -> Duration;
}

/// Why a trial did not come to its end.
#[derive(Clone, Debug, Error)]
pub enum Stop {
    /// The run is to end.
    #[error("interrupted")]
    Interrupted,
    /// Nothing can be measured or recorded here.
    #[error(transparent)]
    Failed(RunnerError),
}

impl<E: Into<RunnerError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every trial is recorded.
    Complete,
    /// Somebody wanted it to end.
    Interrupted,
    /// The next block does not fit into what is left of the plan's budget.
    BudgetSpent,
}

/// How often a trial that was disturbed is run again, at the end of its block.
const REPEATS_MAX: u32 = 2;
/// The share of the trials of a run that are run again at most: on a machine that is never idle, trials
/// are discarded.
const REPEATS_SHARE_MAX: f64 = 0.25;
/// Runs of few trials may repeat this number all the same.
const REPEATS_LEAST: usize = 4;

/// What was recorded of a trial.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    repeat: u32,
    disturbed: bool,
}

/// A run that can be begun or gone on with.
#[derive(Debug)]
pub struct Runner<'a> {
    plan: &'a Plan,
    expansion: &'a Expansion,
    store: &'a mut Store,
    /// The last of each number.
    recorded: BTreeMap<u32, Recorded>,
    /// Blocks with trials that are missing, and the last one that was begun. What was disturbed in others
    /// is not run again: it would be far from the trials that it is compared with.
    open_blocks: BTreeSet<u32>,
    /// Trials that were run again.
    repeats: usize,
    /// How long they took, and what was waited for an idle machine since the run was begun or gone on
    /// with.
    took_s: f64,
    /// How long they took beside their load.
    overhead_s: f64,
    /// What the first of them ran on.
    machine: Option<MachineRecord>,
    /// The first version of each server, by its name.
    versions: BTreeMap<String, String>,
}

impl<'a> Runner<'a> {
    /// Of a plan, with the trials that the journal has already, and those that measured capacities.
    #[must_use]
    pub fn new(
        plan: &'a Plan,
        expansion: &'a Expansion,
        store: &'a mut Store,
        recorded: &[Trial],
        capacities: &[CapacityTrial],
    ) -> Self {
        let mut runner = Self {
            plan,
            expansion,
            store,
            recorded: BTreeMap::new(),
            open_blocks: BTreeSet::new(),
            repeats: 0,
            took_s: 0.0,
            overhead_s: 0.0,
            machine: None,
            versions: BTreeMap::new(),
        };
        for capacity in capacities {
            runner.note_conditions(&capacity.trial);
        }
        for trial in recorded {
            runner.count(trial);
        }
        let is_missing = |trial: &&PlannedTrial| !runner.recorded.contains_key(&trial.number);
        let missing = expansion.trials.iter().filter(is_missing);
        let last_begun = recorded.iter().map(|trial| trial.block).max();
        let open_blocks = missing.map(|trial| trial.block).chain(last_begun).collect();
        runner.open_blocks = open_blocks;
        runner
    }

    /// Runs what is missing.
    ///
    /// # Errors
    /// A trial cannot be run or recorded at all, or not one block fits into the budget.
    pub fn run(
        &mut self,
        trial_runner: &mut dyn TrialRunner,
        observer: &mut dyn RunObserver,
    ) -> Result<Ending, RunnerError> {
        for block in 0..self.expansion.block_count() {
            let of_block = |trial: &&PlannedTrial| trial.block == block;
            let trials = self.expansion.trials.iter().filter(of_block);
            let (recorded, missing): (Vec<PlannedTrial>, Vec<PlannedTrial>) =
                trials.partition(|trial| self.recorded.contains_key(&trial.number));
            if recorded.is_empty() && !self.fits(&missing)? {
                return Ok(Ending::BudgetSpent);
            }
            for planned in &missing {
                if let Some(ending) = self.run_one(planned, trial_runner, observer)? {
                    return Ok(ending);
                }
            }
            while let Some(planned) = self.disturbed_of(block) {
                observer.waits(&planned, &self.progress());
                self.took_s += trial_runner.wait_until_idle().as_secs_f64();
                if let Some(ending) = self.run_one(&planned, trial_runner, observer)? {
                    return Ok(ending);
                }
            }
        }
        Ok(Ending::Complete)
    }

    /// One trial, or one once more; says how the run ends, if it does.
    fn run_one(
        &mut self,
        planned: &PlannedTrial,
        trial_runner: &mut dyn TrialRunner,
        observer: &mut dyn RunObserver,
    ) -> Result<Option<Ending>, RunnerError> {
        let before = self.recorded.get(&planned.number);
        let repeat = before.map_or(0, |before| before.repeat + 1);
        observer.begins(planned, &self.progress());
        let mut trial = match trial_runner.run(planned, repeat) {
            Ok(trial) => Trial { repeat, ..trial },
            Err(Stop::Interrupted) => return Ok(Some(Ending::Interrupted)),
            Err(Stop::Failed(why)) => return Err(why),
        };
        if let (Some(first), Some(load)) = (&self.machine, &trial.load) {
            trial
                .discarded
                .extend(machine::changed(first, &load.machine));
        }
        let first = self.versions.get(&trial.server.name);
        let other = first.and_then(|first| machine::other_version(first, &trial.server));
        trial.discarded.extend(other);
        self.store.append(&Line::Trial(Box::new(trial.clone())))?;
        self.count(&trial);
        observer.recorded(&trial, &self.progress());
        Ok(None)
    }

    /// The next trial of a block that is to be run again.
    fn disturbed_of(&self, block: u32) -> Option<PlannedTrial> {
        if self.repeats_left() == 0 {
            return None;
        }
        let of_block = self.disturbed().filter(|it| it.block == block);
        // One that was repeated least, so that the next attempt is later.
        let by_repeat = |trial: &&PlannedTrial| self.recorded[&trial.number].repeat;
        of_block.min_by_key(by_repeat).copied()
    }

    /// How many trials may still be run again.
    fn repeats_left(&self) -> usize {
        let share = self.expansion.trials.len() as f64 * REPEATS_SHARE_MAX;
        REPEATS_LEAST
            .max(share as usize)
            .saturating_sub(self.repeats)
    }

    /// Trials that are to be run again.
    fn disturbed(&self) -> impl Iterator<Item = &PlannedTrial> {
        self.expansion.trials.iter().filter(|trial| {
            let recorded = self.recorded.get(&trial.number);
            let is_disturbed = recorded.is_some_and(|it| it.disturbed && it.repeat < REPEATS_MAX);
            is_disturbed && self.open_blocks.contains(&trial.block)
        })
    }

    /// How long what is missing will take, with what is to be run again and the wait for an idle machine
    /// before each of that.
    #[must_use]
    pub fn left_s(&self) -> f64 {
        let is_missing = |trial: &&PlannedTrial| !self.recorded.contains_key(&trial.number);
        let missing = self.expansion.trials.iter().filter(is_missing);
        let missing: Vec<PlannedTrial> = missing.copied().collect();
        let again = self.disturbed().take(self.repeats_left());
        let again: Vec<PlannedTrial> = again.copied().collect();
        let waits_s = IDLE_WAIT_MAX.as_secs_f64() * again.len() as f64;
        self.estimate_s(&missing) + self.estimate_s(&again) + waits_s
    }

    fn count(&mut self, trial: &Trial) {
        let planned = self.expansion.trials.get(trial.number as usize);
        let recorded = Recorded {
            repeat: trial.repeat,
            disturbed: trial.disturbed,
        };
        self.took_s += trial.took_s;
        self.note_conditions(trial);
        if self.recorded.insert(trial.number, recorded).is_some() {
            self.repeats += 1;
            return;
        }
        if let Some(planned) = planned {
            // One that had no load at all, since its server did not start, is no example.
            let load_s = self.expansion.load_s(self.plan, planned);
            self.overhead_s += match trial.load {
                Some(_) => (trial.took_s - load_s).max(0.0),
                None => OVERHEAD_S,
            };
        }
    }

    /// What later trials are compared with, where it is not known yet.
    fn note_conditions(&mut self, trial: &Trial) {
        if let (None, Some(load)) = (&self.machine, &trial.load) {
            self.machine = Some(load.machine.clone());
        }
        let server = &trial.server;
        if !server.version.is_empty() {
            let known = self.versions.entry(server.name.clone());
            known.or_insert_with(|| server.version.clone());
        }
    }

    /// Whether a block may be begun.
    fn fits(&self, block: &[PlannedTrial]) -> Result<bool, RunnerError> {
        let Some(budget_s) = self.plan.budget_s else {
            return Ok(true);
        };
        let needed_s = self.estimate_s(block);
        if self.took_s + needed_s <= budget_s {
            return Ok(true);
        }
        if self.recorded.is_empty() {
            return Err(format!(
                "budget_s {budget_s} is not enough for one block, which takes about {needed_s:.0} s; \
                 right would be more, or fewer levels, or a shorter duration_s"
            )
            .into());
        }
        Ok(false)
    }

    fn estimate_s(&self, trials: &[PlannedTrial]) -> f64 {
        let overhead_s = match self.recorded.len() {
            0 => OVERHEAD_S,
            count => self.overhead_s / count as f64,
        };
        self.expansion.estimate_s(self.plan, trials, overhead_s)
    }

    fn progress(&self) -> RunProgress {
        RunProgress {
            recorded: self.recorded.len(),
            left_s: self.left_s(),
        }
    }
}
