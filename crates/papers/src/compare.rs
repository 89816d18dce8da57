//! Servers beside each other: the plan of `loadline lab compare`, and what its run, or one of any other
//! plan, comes to.
//!
//! A run is a number of [`Load`]s; in each stand the servers that had it, with every [`Quantity`] of
//! interest and its ratios within the same blocks: to nginx tuned and to a bare loop, and to what the plan
//! says (`compare`). [`text`] is for
//! terminals, [`page`] and [`summary`] are Markdown, [`json`] is for programs.

mod page;
mod quantity;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use loadline_base::sorting::to_map;
use serde::Serialize;

pub use page::{page, summary};
pub use quantity::Quantity;
pub(crate) use text::table;
pub use text::text;

use loadline_capacity::stats::{self, Comparison, Difference, Range};
use loadline_lab::analysis::{self, Cell, Metric, Run};
use loadline_lab::goals::{Judged, judged};
use loadline_lab::journal::{Level, Levels, RunHead};
use loadline_lab::plan::{Plan, Series};
use loadline_lab::report::order::Order;
use loadline_lab::report::{Fact, Report, words};
use quantity::SERIES;

use crate::packed::packed;
use crate::{PaperError, distinct};

/// `lab/compare.toml`, with its reduced and its full grid (see [`crate::Grid`]).
#[must_use]
pub fn plan() -> String {
    packed!("compare.toml").text()
}

/// Its name.
const NAME: &str = "compare";

/// What the others are compared with.
pub const BASELINE: &str = "nginx-tuned";
/// What answers without parsing: what is left to gain.
const CEILING: &str = "ceil-epoll";
/// The same with deferred accept, which is what makes new connections cheap.
const CEILING_OF_NEW: &str = "ceil-epoll-eager";
/// Servers with two loops are named so after those with one.
const TWO_LOOPS: &str = "-2-loops";

/// The smallest difference that matters to anybody who chooses a server.
const MATTERS: f64 = 0.02;

/// Name and version of the form of [`json`].
const SCHEMA: &str = "loadline-compare/1";

/// What servers were asked, and how each did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// "small, connections=64".
    pub name: String,
    /// The series of the plan.
    pub series: String,
    /// What the plan says of it: "A file of 600 bytes over connections that stay".
    pub title: String,
    /// What distinguishes it within the series: "connections 64".
    pub levels: String,
    /// In the order of the plan.
    pub servers: Vec<ServerResult>,
}

/// A server under a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerResult {
    /// Its name in the plan.
    pub server: String,
    /// Whether it is Loadline.
    pub is_ours: bool,
    /// Trials that count.
    pub counted: usize,
    /// Trials that do not.
    pub discarded: usize,
    /// Those of `counted` in which the client was the limit: the server may do better, and intervals
    /// reach as far as CPU time left room for.
    pub client_limited: usize,
    /// In the order of [`Quantity`]s of the series.
    pub figures: Vec<Figure>,
}

/// A quantity of a server under a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Of what.
    pub quantity: Quantity,
    /// The geometric mean of trials, in the quantity's unit; `None`: none counts.
    pub value: Option<f64>,
    /// To what it is compared with, as far as there are pairs in the same blocks.
    pub ratios: Vec<Ratio>,
}

/// How a server compares with another, or with itself under another load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// "nginx-tuned", "ceil-epoll", "alone", "one loop".
    pub to: String,
    /// This over that.
    pub comparison: Comparison,
}

impl ServerResult {
    /// One of its figures.
    #[must_use]
    pub fn figure(&self, quantity: Quantity) -> Option<&Figure> {
        self.figures.iter().find(|it| it.quantity == quantity)
    }
}

impl Figure {
    /// The ratio to one of those that it is compared with.
    #[must_use]
    pub fn ratio(&self, to: &str) -> Option<&Comparison> {
        let found = self.ratios.iter().find(|ratio| ratio.to == to);
        found.map(|ratio| &ratio.comparison)
    }
}

/// Every load of a run, in the order of the plan.
#[must_use]
pub fn loads(run: &Run) -> Vec<Load> {
    let of = Of {
        cells: analysis::cells(run),
        order: Order::new(&run.head),
        series: series_of(&run.head),
    };
    let mut names: Vec<&str> = match run.head.name.as_str() {
        name if name == NAME || of.series.is_empty() => {
            SERIES.iter().map(|series| series.name).collect()
        }
        _ => of
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect(),
    };
    names.dedup();
    names.into_iter().flat_map(|name| of.loads(name)).collect()
}

/// What came of the goals of the run's plan.
#[must_use]
pub fn goals(run: &Run) -> Vec<Judged> {
    let plan = Plan::parse(&run.head.plan_toml, &run.head.name, Path::new("."));
    plan.map_or_else(|_| Vec::new(), |plan| judged(run, &plan.goals))
}

/// Everything that the page says, for programs.
///
/// # Errors
/// A number that JSON has no form for.
pub fn json(run: &Run, report: &Report) -> Result<String, PaperError> {
    #[derive(Serialize)]
    struct File<'a> {
        schema: &'a str,
        start_unix_ms: u64,
        command: &'a [String],
        machine: &'a [Fact],
        loads: Vec<Load>,
        goals: Vec<Judged>,
    }
    let file = File {
        schema: SCHEMA,
        start_unix_ms: run.head.start_unix_ms,
        command: &run.head.command,
        machine: &report.environment.facts,
        loads: loads(run),
        goals: goals(run),
    };
    Ok(serde_json::to_string_pretty(&file)? + "\n")
}

/// The series of the plan. A plan of another version may have what this one cannot read: then there are
/// none.
fn series_of(head: &RunHead) -> Vec<Series> {
    let plan = Plan::parse(&head.plan_toml, &head.name, Path::new("."));
    plan.map(|plan| plan.series).unwrap_or_default()
}

/// The cells of a run, and what is known of them.
struct Of<'r> {
    cells: Vec<Cell<'r>>,
    order: Order,
    series: Vec<Series>,
}

impl<'r> Of<'r> {
    fn loads(&self, series: &str) -> Vec<Load> {
        let title = self.series.iter().find(|it| it.name == series);
        let title = title.map_or_else(String::new, |it| it.title.clone());
        let cells = || self.cells.iter().filter(|cell| cell.series == series);
        let keys = distinct(cells().map(levels_of_load));
        let load = |key: Levels| {
            let here: Vec<&Cell<'r>> = cells().filter(|it| levels_of_load(it) == key).collect();
            let servers = self.order.levels(series, "server", &here);
            let of_server = |server| here.iter().find(|it| it.level("server") == Some(server));
            let results = servers.iter().filter_map(of_server);
            let mut results: Vec<ServerResult> = results.map(|cell| self.result(cell)).collect();
            correct(&mut results);
            let named = key.iter().map(|(name, level)| format!(", {name}={level}"));
            Load {
                name: series.to_owned() + &named.collect::<String>(),
                series: series.to_owned(),
                title: title.clone(),
                levels: words::levels(&key),
                servers: results,
            }
        };
        keys.into_iter().map(load).collect()
    }

    fn result(&self, cell: &Cell<'r>) -> ServerResult {
        let trials = || cell.counted.iter().chain(&cell.discarded);
        let command = trials().find_map(|trial| trial.server.command.first());
        let limited = cell.counted.iter().filter(|trial| trial.client_limited);
        ServerResult {
            server: name_of(cell),
            is_ours: command.is_some_and(|program| program == "loadline"),
            counted: cell.counted.len(),
            discarded: cell.discarded.len(),
            client_limited: limited.count(),
            figures: quantity::of_series(cell.series)
                .map(|quantity| self.figure(cell, quantity))
                .collect(),
        }
    }

    fn figure(&self, cell: &Cell<'r>, quantity: Quantity) -> Figure {
        let values = self.by_block(cell, quantity);
        let of_trials: Vec<f64> = values.values().map(|range| range.value).collect();
        let compared = self.baselines(cell).into_iter().filter_map(|(to, other)| {
            let others = self.by_block(other, quantity);
            let pairs = values
                .iter()
                .filter_map(|(block, range)| Some(range.over(others.get(block)?)));
            let comparison = stats::compare_ranges(&pairs.collect::<Vec<_>>(), MATTERS)?;
            Some(Ratio { to, comparison })
        });
        Figure {
            quantity,
            ratios: compared.collect(),
            value: stats::center(&of_trials, stats::LEVEL).map(|(center, _)| center),
        }
    }

    /// What a server under a load is compared with: not with itself.
    fn baselines(&self, cell: &Cell<'r>) -> Vec<(String, &Cell<'r>)> {
        let name = name_of(cell);
        let beside = |server: &str| self.find(cell.series, server, &levels_of_load(cell));
        let mut found = Vec::new();
        match cell.series {
            "loops" => found.push(("one loop", beside(name.trim_end_matches(TWO_LOOPS)))),
            "crowd" => {
                let mut levels = levels_of_load(cell);
                levels.remove("idle_connections");
                levels.insert("connections".to_owned(), Level::Number(64.0));
                found.push(("alone", self.find("small", &name, &levels)));
            }
            _ => {}
        }
        let series = self.series.iter().find(|it| it.name == cell.series);
        let asked = series.and_then(|it| it.compare.as_ref());
        let to = asked.map(|it| words::levels(&it.with));
        if let (Some(asked), Some(to)) = (asked, &to) {
            let mut levels = cell.levels.clone();
            levels.extend(asked.with.clone());
            let is_it = |it: &&Cell<'r>| it.series == cell.series && *it.levels == levels;
            found.push((to.as_str(), self.cells.iter().find(is_it)));
        }
        let ceiling = match cell.series {
            "new-connections" => CEILING_OF_NEW,
            _ => CEILING,
        };
        for server in [BASELINE, ceiling] {
            found.push((server, beside(server)));
        }
        let others = found.into_iter().filter_map(|(to, other)| {
            let other = other.filter(|it| !std::ptr::eq(*it, cell))?;
            Some((to.to_owned(), other))
        });
        others.collect()
    }

    fn find(&self, series: &str, server: &str, levels: &Levels) -> Option<&Cell<'r>> {
        let is_it = |cell: &&Cell<'r>| {
            cell.series == series && name_of(cell) == server && levels_of_load(cell) == *levels
        };
        self.cells.iter().find(is_it)
    }

    fn by_block(&self, cell: &Cell<'r>, quantity: Quantity) -> BTreeMap<u32, Range> {
        match quantity {
            Quantity::Of(metric) => plain(cell, metric),
            Quantity::IdleBytes => self.idle_bytes(cell).unwrap_or_default(),
        }
    }

    /// What memory grew by in the same block, for each connection.
    fn idle_bytes(&self, cell: &Cell<'r>) -> Option<BTreeMap<u32, Range>> {
        const FACTOR: &str = "idle_connections";
        let count = match cell.level(FACTOR)? {
            Level::Number(count) if *count > 0.0 => *count,
            _ => return None,
        };
        let mut levels = levels_of_load(cell);
        levels.insert(FACTOR.to_owned(), Level::Number(0.0));
        let without = self.find(cell.series, &name_of(cell), &levels)?;
        let without = plain(without, Metric::MemoryBytes);
        let with = plain(cell, Metric::MemoryBytes);
        let grown = with.into_iter().filter_map(|(block, with)| {
            let bytes = with.value - without.get(&block)?.value;
            Some((block, Range::exact(bytes / count)))
        });
        Some(to_map(grown))
    }
}

/// Many servers compared with the same one are many chances to be wrong: a difference that does not
/// stand a correction for that (Holm) counts as no difference.
fn correct(servers: &mut [ServerResult]) {
    let figures = servers.iter().flat_map(|server| &server.figures);
    let families = figures.flat_map(|figure| {
        let ratios = figure.ratios.iter();
        ratios.map(|ratio| (figure.quantity, ratio.to.clone()))
    });
    for (quantity, to) in distinct(families) {
        let figures = servers.iter_mut().flat_map(|server| &mut server.figures);
        let of_quantity = figures.filter(|figure| figure.quantity == quantity);
        let ratios = of_quantity.flat_map(|figure| &mut figure.ratios);
        let mut family: Vec<&mut Comparison> = ratios
            .filter(|ratio| ratio.to == to)
            .map(|ratio| &mut ratio.comparison)
            .collect();
        let p: Vec<f64> = family.iter().map(|comparison| comparison.p).collect();
        for (comparison, p) in family.iter_mut().zip(stats::holm(&p)) {
            let is_different = matches!(comparison.difference, Difference::More | Difference::Less);
            if is_different && p > 1.0 - stats::LEVEL {
                comparison.difference = Difference::Unknown;
            }
        }
    }
}

fn name_of(cell: &Cell<'_>) -> String {
    let level = cell.level("server");
    level.map_or_else(String::new, Level::to_string)
}

fn levels_of_load(cell: &Cell<'_>) -> Levels {
    let mut levels = cell.levels.clone();
    levels.remove("server");
    levels
}

fn plain(cell: &Cell<'_>, metric: Metric) -> BTreeMap<u32, Range> {
    let trials = cell.counted.iter();
    let ranges = trials.filter_map(|trial| Some((trial.block, trial.range(metric)?)));
    to_map(ranges)
}
