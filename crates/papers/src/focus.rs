//! A plan narrowed to the cells that some claims take.
//!
//! Levels that no wanted cell has go, and so do series without any. What is left of the combinations is
//! excepted cell by cell, so that whatever a claim selects, the plan has that and nothing else.

use std::path::Path;

use loadline_lab::cells::{Cell, Cells};
use loadline_lab::journal::Level;
use loadline_lab::plan::{Factor, Plan, Series};
use toml::{Table, Value};

use crate::claims::{self, Taken};
use crate::error::GridError;
use crate::{Grid, Paper, PaperError};

/// Which CPUs there are makes no difference to which cells there are, but named ones have to exist.
const CPUS: [usize; 2] = [0, 1];

/// The plan of a paper, without what no claim takes whose text contains `wanted`, in either case. What
/// is drawn of it is left to what varies.
///
/// # Errors
/// No claim has the text, or what claims take is not in this grid.
pub fn focused(paper: &Paper, grid: &Grid, wanted: &str) -> Result<String, PaperError> {
    let text = grid.plan_text(&paper.text(), paper.name)?;
    narrowed(&text, paper.name, wanted).map_err(|problem| PaperError::Plan {
        file: paper.name.to_owned(),
        problem,
    })
}

fn narrowed(text: &str, paper: &str, wanted: &str) -> Result<String, GridError> {
    let mut plan: Table = text.parse()?;
    let claims = claims::taken(paper).into_iter();
    let taken: Vec<Taken> = claims
        .filter(|(text, _)| claims::contains(text, wanted))
        .flat_map(|(_, cells)| cells)
        .collect();
    if taken.is_empty() {
        return Err(GridError::NoClaim(wanted.escape_debug().to_string()));
    }
    let parsed = Plan::parse(text, paper, Path::new("."))?;
    let cells = Cells::of(&parsed, &CPUS, &[])?.cells;
    let is_taken = |cell: &&Cell| {
        let series = &parsed.series[cell.series].name;
        taken.iter().any(|one| one.takes(series, &cell.levels))
    };
    let Some(Value::Array(tables)) = plan.get_mut("series") else {
        return Err(GridError::NoSeries);
    };
    let mut all = parsed.series.iter().enumerate();
    tables.retain_mut(|table| {
        let (Some((index, series)), Some(table)) = (all.next(), table.as_table_mut()) else {
            return false;
        };
        let own = cells.iter().filter(|cell| cell.series == index);
        let (wanted, others): (Vec<&Cell>, Vec<&Cell>) = own.partition(is_taken);
        FocusedSeries { series, wanted }.narrow(table, &others)
    });
    if tables.is_empty() {
        return Err(GridError::NoCells(wanted.escape_debug().to_string()));
    }
    plan.remove("chart");
    plan.remove("goal");
    Ok(toml::to_string(&plan)?)
}

/// A series, and the cells of it that are wanted.
struct FocusedSeries<'p> {
    series: &'p Series,
    wanted: Vec<&'p Cell>,
}

impl FocusedSeries<'_> {
    /// Whether anything is left of it.
    fn narrow(&self, table: &mut Table, others: &[&Cell]) -> bool {
        if self.wanted.is_empty() {
            return false;
        }
        table.insert("a_a".to_owned(), Value::Boolean(false));
        let mut servers = self.series.servers.clone();
        servers.retain(|name| self.wanted.iter().any(|cell| cell.server == *name));
        if servers.is_empty() {
            // A level names the server.
            servers.extend(self.series.servers.first().cloned());
        }
        let servers = servers.into_iter().map(Value::String).collect();
        table.insert("servers".to_owned(), Value::Array(servers));
        if let Some(Value::Table(factors)) = table.get_mut("factors") {
            for factor in &self.series.factors {
                if let Some(levels) = factors.get_mut(&factor.name) {
                    self.keep_levels(factor, levels);
                }
            }
        }
        let excepted = others.iter().filter(|cell| self.is_combined(cell));
        let excepted = excepted.map(|cell| {
            let levels = cell.levels.iter();
            let levels = levels.map(|(name, level)| (name.clone(), value(level)));
            Value::Table(levels.collect())
        });
        let excepted: Vec<Value> = excepted.collect();
        if !excepted.is_empty() {
            let except = table.entry("except").or_insert(Value::Array(Vec::new()));
            if let Value::Array(except) = except {
                except.extend(excepted);
            }
        }
        true
    }

    fn has_level(&self, factor: &str, level: &Level) -> bool {
        let mut wanted = self.wanted.iter();
        wanted.any(|cell| cell.levels.get(factor) == Some(level))
    }

    /// Whether its levels are all levels of wanted cells, so that the narrowed factors make it.
    fn is_combined(&self, cell: &Cell) -> bool {
        let mut levels = cell.levels.iter();
        levels.all(|(factor, level)| self.has_level(factor, level))
    }

    fn keep_levels(&self, factor: &Factor, value_of_file: &mut Value) {
        let is_kept = |level: &Level| self.has_level(&factor.name, level);
        let levels = factor.levels.iter().map(|level| &level.level);
        let kept = || levels.clone().filter(|level| is_kept(level)).map(value);
        match value_of_file {
            Value::Array(array) => {
                let mut levels = levels;
                array.retain(|_| levels.next().is_some_and(is_kept));
            }
            // An option with its levels.
            Value::Table(table) => {
                table.insert("levels".to_owned(), Value::Array(kept().collect()));
            }
            // A row of numbers.
            row => *row = Value::Array(kept().collect()),
        }
    }
}

fn value(level: &Level) -> Value {
    match level {
        Level::Number(number) if number.fract() == 0.0 => Value::Integer(*number as i64),
        Level::Number(number) => Value::Float(*number),
        Level::Text(text) => Value::String(text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use loadline_lab::analysis::{Measured, Run};

    use super::*;
    use crate::PAPERS;
    use crate::tests::{full, plan};

    /// The cells of a plan, as series and levels in words.
    fn cells(plan: &Plan) -> Vec<(String, loadline_lab::journal::Levels)> {
        let cells = Cells::of(plan, &CPUS, &[]).unwrap().cells.into_iter();
        let mut cells: Vec<_> = cells
            .map(|cell| (plan.series[cell.series].name.clone(), cell.levels))
            .collect();
        cells.sort_by_key(|(series, levels)| format!("{series} {levels:?}"));
        cells
    }

    /// A run with a trial of each cell, in which nothing was measured.
    fn run(paper: &Paper, plan: &Plan) -> Run {
        let mut run = Run::default();
        run.head.name = paper.name.to_owned();
        run.head.plan_toml.clone_from(&plan.text);
        let trials = (0..).zip(cells(plan));
        run.trials = trials
            .map(|(number, (series, levels))| Measured {
                number,
                series,
                levels,
                ..Measured::default()
            })
            .collect();
        run
    }

    #[test]
    fn a_focused_plan_has_what_its_claim_takes_and_nothing_else() {
        check_focused_plans(&Grid::default());
    }

    #[test]
    fn so_has_one_of_the_full_grid() {
        check_focused_plans(&full());
    }

    fn check_focused_plans(whole: &Grid) {
        for paper in &PAPERS {
            let all = cells(&plan(paper, whole));
            for (index, (text, taken)) in claims::taken(paper.name).into_iter().enumerate() {
                let plan = focused(paper, whole, &text.to_uppercase()).unwrap();
                let plan = Plan::parse(&plan, paper.name, Path::new("/")).unwrap();
                let found = cells(&plan);
                // Texts that are the same take what any of them does.
                let same = claims::taken(paper.name).into_iter();
                let same = same.filter(|(other, _)| other.contains(text));
                let taken_by_any: Vec<Taken> = same.flat_map(|(_, cells)| cells).collect();
                let is_taken = |by: &[Taken], series: &str, levels: &_| {
                    by.iter().any(|one| one.takes(series, levels))
                };
                let mut expected = all.clone();
                expected.retain(|(series, levels)| is_taken(&taken_by_any, series, levels));
                assert_eq!(found, expected, "{} {text}", paper.name);
                assert!(
                    found
                        .iter()
                        .any(|(it, levels)| is_taken(&taken, it, levels))
                );
                let claim = &claims::judged(&run(paper, &plan))[index];
                let is_without = claim.why.contains("This run has no trial");
                assert!(!is_without, "{} {claim:?}", paper.name);
            }
        }
    }

    #[test]
    fn what_no_claim_says_cannot_be_focused_on() {
        let paper = Paper::named("P4").unwrap();
        let message = |grid: &Grid, wanted: &str| {
            let plan = focused(paper, grid, wanted);
            plan.unwrap_err().to_string()
        };
        assert_eq!(
            message(&Grid::default(), "unicorns"),
            "P4: no claim says unicorns; right would be a part of the text of one, as in \
             docs/papers-results.md"
        );
        let grid = Grid {
            only: vec!["connections".to_owned()],
            ..Grid::default()
        };
        let found = message(&grid, "round robin");
        assert!(found.starts_with("P4: the claims that say round robin are about series"));
    }
}
