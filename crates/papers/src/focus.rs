//! A plan narrowed to the cells that some claims take.
//!
//! Levels that no wanted cell has go, and so do series without any. What is left of the combinations is
//! excepted cell by cell, so that whatever a claim selects, the plan has that and nothing else.
//!
//! A claim by itself is to take some minutes. It is corrected for no others, so that an interval of three
//! blocks is as wide as one of five that is corrected for ten.

use std::path::Path;

use loadline_lab::cells::{Cell, Cells};
use loadline_lab::journal::Level;
use loadline_lab::plan::{Factor, Plan, Series};
use toml::{Table, Value};

use crate::claims::{self, Taken};
use crate::error::GridError;
use crate::{Grid, Paper, PaperError, PaperTime};

/// Which CPUs there are makes no difference to which cells there are, but named ones have to exist.
const CPUS: [usize; 2] = [0, 1];
/// A claim that takes longer has fewer blocks, ...
const CLAIM_S: f64 = 300.0;
/// ... but not fewer than this: they would say little.
const BLOCKS_LEAST: u32 = 3;

/// A plan narrowed to some claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Focused {
    /// As a plan file.
    pub text: String,
    /// How many blocks there are instead of how many, if they are fewer than those of the grid.
    pub fewer_blocks: Option<(u32, u32)>,
}

/// The plan of a paper, without what no claim takes whose text contains `wanted`, in either case. What
/// is drawn of it is left to what varies. Unless the grid is the full one, or says how often each cell is run, it
/// has as few blocks as claims need that are to take five minutes each.
///
/// # Errors
/// No claim has the text, or what claims take is not in this grid.
pub fn focused(paper: &Paper, grid: &Grid, wanted: &str) -> Result<Focused, PaperError> {
    let fail = |problem: GridError| PaperError::Plan {
        file: paper.name.to_owned(),
        problem,
    };
    let text = grid.plan_text(&paper.text(), paper.name)?;
    let plan = narrowed(&text, paper.name, wanted).map_err(fail)?;
    let as_text = |plan: &Table| toml::to_string(plan).map_err(|error| fail(error.into()));
    let text = as_text(&plan)?;
    let replicates: Vec<u32> = match grid.full || grid.replicates.is_some() {
        true => Vec::new(),
        false => {
            let parsed = Plan::parse(&text, paper.name, Path::new("."))?;
            parsed.series.iter().map(|it| it.replicates).collect()
        }
    };
    let planned = replicates.iter().copied().max().unwrap_or(0);
    let claims = claims::taken(paper.name).into_iter();
    let claims = claims.filter(|(text, _)| claims::contains(text, wanted));
    let most_s = CLAIM_S * claims.count() as f64;
    let mut focused = Focused {
        text,
        fewer_blocks: None,
    };
    for blocks in (BLOCKS_LEAST..planned).rev() {
        if PaperTime::of_plan(paper.name, &focused.text)?.all_s <= most_s {
            break;
        }
        focused = Focused {
            text: as_text(&with_blocks(&plan, &replicates, blocks))?,
            fewer_blocks: Some((blocks, planned)),
        };
    }
    Ok(focused)
}

/// The same with so many trials of each cell at most; they are by series.
fn with_blocks(plan: &Table, replicates: &[u32], most: u32) -> Table {
    let mut plan = plan.clone();
    if let Some(Value::Array(series)) = plan.get_mut("series") {
        let series = series.iter_mut().filter_map(Value::as_table_mut);
        for (one, own) in series.zip(replicates) {
            let replicates = Value::Integer((*own).min(most).into());
            one.insert("replicates".to_owned(), replicates);
        }
    }
    plan
}

fn narrowed(text: &str, paper: &str, wanted: &str) -> Result<Table, GridError> {
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
    Ok(plan)
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
                let plan = Plan::parse(&plan.text, paper.name, Path::new("/")).unwrap();
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
    fn a_claim_that_takes_long_has_fewer_blocks_unless_more_are_asked_for() {
        let paper = Paper::named("P5").unwrap();
        let bends = "The event loop bends later than the threads (results)";
        let blocks = |grid: &Grid, wanted: &str| {
            let focused = focused(paper, grid, wanted).unwrap();
            let plan = Plan::parse(&focused.text, paper.name, Path::new("/")).unwrap();
            let blocks = plan.series.iter().map(|it| it.replicates).max();
            (blocks.unwrap(), focused.fewer_blocks)
        };
        assert_eq!(blocks(&Grid::default(), bends), (3, Some((3, 5))));
        let five = Grid {
            replicates: Some(5),
            ..Grid::default()
        };
        assert_eq!(blocks(&five, bends), (5, None));
        assert_eq!(blocks(&full(), bends).1, None);
        // With all of its blocks it takes about a minute.
        let apache = "Apache goes on";
        assert_eq!(blocks(&Grid::default(), apache), (5, None));
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
