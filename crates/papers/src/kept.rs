//! What was measured of a paper in full, in a file that can be committed and carried to other machines.
//!
//! A paper's series can be measured by runs of their own: parts. The file has a line for each part, which
//! says where and when it was measured, followed by a line for each of its trials with all its metrics.

mod parts;
#[cfg(test)]
mod tests;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use loadline_lab::analysis::{Metric, Run};
use loadline_lab::file_error::FileError;
use loadline_lab::journal::RunHead;
use loadline_lab::plan::Plan;
use loadline_lab::report::Report;
use loadline_record::from_json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::GridError;
use crate::grid::name_of;
use crate::source::{Source, command, commit, facts, measured_on};
use crate::{Grid, Paper, PaperError, distinct};
use trial::KeptTrial;

pub use parts::{check_whole, parts_said};

/// Name and version of the form.
const SCHEMA: &str = "loadline-paper/1";

/// The parts of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    paper: &'static Paper,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Part {
    head: PartHead,
    trials: Vec<KeptTrial>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartHead {
    /// [`SCHEMA`].
    schema: String,
    /// "P1".
    paper: String,
    /// Those of which trials are kept, in the order of the plan.
    series: Vec<String>,
    /// Those that were measured again since, by other runs.
    replaced: Vec<String>,
    /// Machine, versions, day, and how much was measured.
    facts: String,
    /// What it was measured on, as the run's trials say it; empty: they do not.
    commit: String,
    /// The command that measures it again.
    command: String,
    /// The plan without its charts.
    plan_toml: String,
    /// What the values of trials are: all that any of them has.
    metrics: Vec<Metric>,
    /// How many follow.
    trials: usize,
}

impl Kept {
    /// Its place in a folder.
    #[must_use]
    pub fn file(folder: &Path, paper: &Paper) -> PathBuf {
        folder.join(format!("{}.jsonl", paper.name))
    }

    /// Nothing yet.
    #[must_use]
    pub fn new(paper: &'static Paper) -> Self {
        Self {
            paper,
            parts: Vec::new(),
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is not what it should be.
    pub fn read(path: &Path) -> Result<Self, PaperError> {
        let text = fs::read_to_string(path).map_err(FileError::of(path))?;
        Self::parse(&text).map_err(|problem| PaperError::Kept {
            file: path.display().to_string(),
            problem,
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        let mut parts: Vec<Part> = Vec::new();
        while let Some((index, line)) = lines.next() {
            let wrong = |problem: String| format!("line {}: {problem}", index + 1);
            let head: PartHead = of_line(index, line)?;
            if head.schema != SCHEMA {
                let schema = head.schema.escape_debug();
                return Err(wrong(format!(
                    "its form is {schema}; right would be {SCHEMA}"
                )));
            }
            if parts.iter().any(|part| part.head.paper != head.paper) {
                return Err(wrong("it is of another paper".to_owned()));
            }
            let trials = lines.by_ref().take(head.trials);
            let trials = trials.map(|(index, line)| of_line::<KeptTrial>(index, line));
            let trials = trials.collect::<Result<Vec<_>, _>>()?;
            if trials.len() < head.trials {
                let (found, all) = (trials.len(), head.trials);
                return Err(wrong(format!("{found} of its {all} trials follow")));
            }
            parts.push(Part { head, trials });
        }
        let first = parts.first().ok_or("no part is kept here")?;
        let paper = Paper::named(&first.head.paper).map_err(|error| error.to_string())?;
        Ok(Self { paper, parts })
    }

    /// The file's text.
    ///
    /// # Errors
    /// Something has no form as JSON.
    pub fn text(&self) -> Result<String, PaperError> {
        let fail = |error: serde_json::Error| PaperError::Kept {
            file: self.paper.name.to_owned(),
            problem: error.to_string(),
        };
        let mut text = String::new();
        for Part { head, trials } in &self.parts {
            text += &serde_json::to_string(head).map_err(fail)?;
            text.push('\n');
            for trial in trials {
                text += &serde_json::to_string(trial).map_err(fail)?;
                text.push('\n');
            }
        }
        Ok(text)
    }

    /// Adds a run, in place of what was kept of its series.
    ///
    /// # Errors
    /// Its plan cannot be read.
    pub fn put(&mut self, run: &Run, report: &Report) -> Result<(), PaperError> {
        let part = Part::of(run, report).map_err(|problem| self.failed(problem))?;
        for before in &mut self.parts {
            before.give_way(&part.head.series);
        }
        self.parts.retain(|part| !part.head.series.is_empty());
        self.parts.push(part);
        Ok(())
    }

    /// All parts as one run by the plan in full. Blocks are those of each part: no claim takes trials of
    /// two ([`check_whole`]).
    ///
    /// # Errors
    /// The plan cannot be read.
    pub fn run(&self) -> Result<Run, PaperError> {
        let plan_toml = self.plan_in_full()?;
        let plan = Plan::parse(&plan_toml, self.paper.name, Path::new("."))?;
        let head = RunHead {
            name: self.paper.name.to_owned(),
            plan_toml,
            seed: plan.seed,
            ..RunHead::default()
        };
        let mut trials = Vec::new();
        for part in &self.parts {
            for trial in &part.trials {
                let number = trials.len() as u32;
                trials.push(trial.measured(number, &part.head.metrics));
            }
        }
        Ok(Run {
            head,
            trials,
            ..Run::default()
        })
    }

    /// Where each part was measured, and which series are missing.
    ///
    /// # Errors
    /// A plan cannot be read.
    pub(crate) fn sources(&self) -> Result<Vec<Source>, PaperError> {
        let plan = self.plan_in_full()?;
        let mut sources = Vec::new();
        for part in &self.parts {
            let source = part.source(&plan);
            sources.push(source.map_err(|problem| self.failed(problem))?);
        }
        let is_kept = |name: &String| {
            let mut parts = self.parts.iter();
            parts.any(|part| part.head.series.contains(name))
        };
        let mut missing = series_of(&plan).map_err(|problem| self.failed(problem))?;
        missing.retain(|name| !is_kept(name));
        if let (false, Some(last)) = (missing.is_empty(), sources.last_mut()) {
            last.facts += &format!("\n\nNot measured: {}.", missing.join(", "));
        }
        Ok(sources)
    }

    fn plan_in_full(&self) -> Result<String, PaperError> {
        in_full().plan_text(&self.paper.text(), self.paper.name)
    }

    fn failed(&self, problem: GridError) -> PaperError {
        PaperError::Plan {
            file: self.paper.name.to_owned(),
            problem,
        }
    }
}

impl Part {
    fn of(run: &Run, report: &Report) -> Result<Self, GridError> {
        let mut series = series_of(&run.head.plan_toml)?;
        // A server that is not installed has no trials.
        series.retain(|name| run.trials.iter().any(|trial| trial.series == *name));
        let plan = experiment(&run.head.plan_toml, &series)?;
        let is_measured = |metric| run.trials.iter().any(|it| it.measured(metric).is_some());
        let metrics = Metric::ALL.iter().copied();
        let metrics: Vec<Metric> = metrics.filter(|it| is_measured(*it)).collect();
        let trials = run.trials.iter();
        let trials: Vec<_> = trials.map(|it| KeptTrial::of(it, &metrics)).collect();
        let head = PartHead {
            schema: SCHEMA.to_owned(),
            paper: run.head.name.clone(),
            series,
            replaced: Vec::new(),
            facts: facts(run, report),
            commit: commit(run),
            command: command(report),
            plan_toml: toml::to_string(&plan)?,
            metrics,
            trials: trials.len(),
        };
        Ok(Self { head, trials })
    }

    /// Leaves some series to another part.
    fn give_way(&mut self, series: &[String]) {
        let head = &mut self.head;
        let all = head.series.drain(..);
        let (given, kept): (Vec<String>, Vec<String>) = all.partition(|name| series.contains(name));
        head.series = kept;
        head.replaced.extend(given);
        self.trials.retain(|trial| !series.contains(&trial.series));
        head.trials = self.trials.len();
    }

    fn source(&self, plan: &str) -> Result<Source, GridError> {
        let head = &self.head;
        let series = head.series.join(", ");
        let mut facts = format!("**{series}**: {}{}", head.facts, measured_on(&head.commit));
        if !head.replaced.is_empty() {
            let again = head.replaced.join(", ");
            facts += &format!(" Measured again since: {again}.");
        }
        let of_part = experiment(&head.plan_toml, &head.series)?;
        if of_part != experiment(plan, &head.series)? {
            facts += " **Its plan has changed since.**";
        }
        Ok(Source {
            facts,
            command: head.command.clone(),
        })
    }
}

/// The grid that parts are of.
fn in_full() -> Grid {
    Grid {
        full: true,
        ..Grid::default()
    }
}

fn of_line<T: DeserializeOwned>(index: usize, line: &str) -> Result<T, String> {
    from_json(line.as_bytes()).map_err(|error| format!("line {}: {error}", index + 1))
}

/// The names of a plan's series, each once.
fn series_of(plan: &str) -> Result<Vec<String>, GridError> {
    let plan: Table = plan.parse()?;
    let series = plan.get("series").and_then(Value::as_array);
    Ok(distinct(series.into_iter().flatten().map(name_of)))
}

/// What makes the trials of some series what they are: a plan without its texts and charts.
fn experiment(plan: &str, series: &[String]) -> Result<Table, GridError> {
    let mut plan: Table = plan.parse()?;
    for drawn in ["title", "chart", "goal"] {
        plan.remove(drawn);
    }
    if let Some(Value::Array(all)) = plan.get_mut("series") {
        all.retain(|one| series.contains(&name_of(one)));
        for one in all.iter_mut().filter_map(Value::as_table_mut) {
            one.remove("title");
        }
    }
    Ok(plan)
}
