//! From a plan with two grids to a plain plan.

use std::path::Path;

use loadline_lab::plan::Plan;
use loadline_lab::unmatched::{Unmatched, unmatched as unmatched_in};
use toml::{Table, Value};

use crate::error::{GridError, PaperError};

/// Which part of a plan is run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// The tables named `full` count: the paper's own parameters.
    pub full: bool,
    /// Only series of these names; empty: all.
    pub only: Vec<String>,
    /// How long each trial is measured, in place of what the plan says.
    pub duration_s: Option<f64>,
    /// How often each cell is run, in place of what the plan says.
    pub replicates: Option<u32>,
    /// Without series whose server has a CPU quota: this machine grants none.
    pub no_quota: bool,
    /// Without series in which each side has a network of its own: this machine makes none.
    pub no_namespaces: bool,
}

/// What gives a series' server a CPU quota.
const CPU_QUOTA: &str = "cpu_quota";
/// What gives each side of a series a network of its own, at this level.
const NETWORK: (&str, &str) = ("network", "namespaces");

/// The table that stands for `--full`, in the plan and in each series.
const FULL: &str = "full";

impl Grid {
    /// The plan of this grid, as a plan file without `full`. `name` stands for the file in messages.
    ///
    /// # Errors
    /// What is wrong with the file, or no series is left, and what would be right.
    pub fn plan_text(&self, text: &str, name: &str) -> Result<String, PaperError> {
        self.plain(text).map_err(|problem| PaperError::Plan {
            file: name.to_owned(),
            problem,
        })
    }

    fn plain(&self, text: &str) -> Result<String, GridError> {
        let mut plan: Table = text.parse()?;
        self.take_full(&mut plan)?;
        let Some(Value::Array(series)) = plan.get_mut("series") else {
            return Err(GridError::NoSeries);
        };
        let names: Vec<String> = series.iter().map(name_of).collect();
        if let Some(unknown) = self.only.iter().find(|name| !names.contains(name)) {
            let mut names = names;
            names.dedup();
            let unknown = unknown.escape_debug().to_string();
            return Err(GridError::UnknownSeries(unknown, names.join(", ")));
        }
        if !self.only.is_empty() {
            series.retain(|one| self.only.contains(&name_of(one)));
        }
        if self.no_quota {
            series.retain(|one| one.get(CPU_QUOTA).is_none());
        }
        if self.no_namespaces {
            let network =
                |one: &Value| one.get(NETWORK.0).and_then(Value::as_str) == Some(NETWORK.1);
            series.retain(|one| !network(one));
        }
        for one in series.iter_mut().filter_map(Value::as_table_mut) {
            self.take_full(one)?;
            self.override_times(one);
        }
        let left: Vec<String> = series.iter().map(name_of).collect();
        if let Some(Value::Array(charts)) = plan.get_mut("chart") {
            charts.retain(|chart| chart.get("series").is_none_or(|name| is_one(name, &left)));
        }
        if let Some(Value::Array(goals)) = plan.get_mut("goal") {
            let is_left = |goal: &Value, key| goal.get(key).is_none_or(|name| is_one(name, &left));
            goals.retain(|goal| is_left(goal, "series") && is_left(goal, "over_series"));
        }
        Ok(toml::to_string(&plan)?)
    }

    /// Removes the table `full`; under `--full`, what stands there goes over what stands beside it.
    fn take_full(&self, table: &mut Table) -> Result<(), GridError> {
        match table.remove(FULL) {
            None => Ok(()),
            Some(Value::Table(full)) => {
                if self.full {
                    merge(table, full);
                }
                Ok(())
            }
            Some(_) => Err(GridError::Full),
        }
    }

    fn override_times(&self, series: &mut Table) {
        if let Some(duration_s) = self.duration_s {
            series.insert("duration_s".to_owned(), Value::Float(duration_s));
        }
        if let Some(replicates) = self.replicates {
            series.insert("replicates".to_owned(), Value::Integer(replicates.into()));
        }
    }
}

/// What exceptions, comparisons and goals of a plan name that neither of its grids has, on a machine with
/// these CPUs. Nothing, if one of the grids is no plan: running that one says why.
#[must_use]
pub fn unmatched(text: &str, cpus: &[usize]) -> Vec<Unmatched> {
    let of_grid = |full: bool| {
        let grid = Grid {
            full,
            ..Grid::default()
        };
        let text = grid.plain(text).ok()?;
        let plan = Plan::parse(&text, "plan", Path::new(".")).ok()?;
        unmatched_in(&plan, cpus).ok()
    };
    let (Some(mut reduced), Some(full)) = (of_grid(false), of_grid(true)) else {
        return Vec::new();
    };
    let key = |one: &Unmatched| (one.place, one.problem.clone());
    reduced.retain(|one| full.iter().any(|other| key(one) == key(other)));
    reduced
}

/// Tables are merged; anything else is replaced.
fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

pub(crate) fn name_of(series: &Value) -> String {
    let name = series.get("name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn is_one(name: &Value, names: &[String]) -> bool {
    name.as_str()
        .is_some_and(|name| names.iter().any(|one| one == name))
}
