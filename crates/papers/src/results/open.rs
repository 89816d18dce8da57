//! What else was measured: a table for each series of what the authors left open, and for conditions that no
//! claim and no figure has.

use std::fmt::Write as _;
use std::path::Path;

use loadline_base::sorting::sort_by_key;
use loadline_capacity::stats::median;
use loadline_lab::analysis::{Cell, Metric, Run, cells};
use loadline_lab::journal::{Level, Levels};
use loadline_lab::plan::Plan;
use loadline_lab::report::order::Order;
use loadline_lab::report::words;

use crate::compare::table;
use crate::distinct;

/// A series, and how it is shown.
struct Open {
    paper: &'static str,
    series: &'static str,
    /// What it is, where the plan's title says it by the series before; empty: the title says it.
    about: &'static str,
    /// The columns.
    metrics: &'static [Metric],
    /// A factor and the one number of it that is shown, where all would be too many rows.
    only: Option<(&'static str, f64)>,
}

/// What is asked of any server: how much, how fast, at which cost.
const PLAIN: &[Metric] = &[
    Metric::GoodPerS,
    Metric::P50Us,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
];
/// Where requests may fail, too.
const FAILING: &[Metric] = &[
    Metric::GoodPerS,
    Metric::ErrorShare,
    Metric::P50Us,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
];
/// Of a pool that grows and shrinks, beside others.
const RESIZED: &[Metric] = &[
    Metric::GoodPerS,
    Metric::ErrorShare,
    Metric::P50Us,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
    Metric::Threads,
];
/// Of queues, and of those who wait in them.
const QUEUES: &[Metric] = &[
    Metric::GoodPerS,
    Metric::P99Us,
    Metric::QueueWaitUs,
    Metric::ContextSwitchesPerRequest,
    Metric::CpuUsPerRequest,
];
/// Of large contents that the client receives.
const BULK: &[Metric] = &[
    Metric::BytesPerS,
    Metric::P50Us,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
];
/// Of players, who ask for pieces.
const PLAYERS: &[Metric] = &[
    Metric::StalledShare,
    Metric::BytesPerS,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
];

/// Of rules that spread connections over loops.
const BALANCED: &[Metric] = &[
    Metric::LoopImbalance,
    Metric::P50Us,
    Metric::P99Us,
    Metric::CpuUsPerRequest,
];

/// All, in the order of the page.
const OPEN: &[Open] = &[
    open("P1", "concurrency", PLAIN),
    open("P1", "shared", PLAIN),
    open("P1", "keep-alive", PLAIN),
    Open {
        only: Some(("service_us", 200.0)),
        ..open("P1", "others", QUEUES)
    },
    open("P1", "answers", PLAIN),
    open("P1", "bulk", BULK),
    open("P1", "uploads", PLAIN),
    open("P1", "video", PLAYERS),
    open("P1", "bursts", FAILING),
    open("P1", "slow-network", FAILING),
    open("P1", "login", PLAIN),
    open("P1", "balance", BALANCED),
    open("P2", "mainstream", FAILING),
    Open {
        about: "Who reads and writes, with 500 us of work, slept or computed",
        only: Some(("connections", 10_000.0)),
        ..open("P2", "work", RESIZED)
    },
    open("P3", "client", FAILING),
    Open {
        about: "1000 to 10,000 clients with a new connection for each request",
        ..open("P4", "new-connections", FAILING)
    },
    open("P5", "crossed", PLAIN),
    open("P5", "login", PLAIN),
    open("P5", "video", PLAYERS),
];

const fn open(paper: &'static str, series: &'static str, metrics: &'static [Metric]) -> Open {
    Open {
        paper,
        series,
        about: "",
        metrics,
        only: None,
    }
}

/// The part of a paper's section, in Markdown; empty: nothing of it was measured.
pub(crate) fn of(run: &Run) -> String {
    let all = cells(run);
    let order = Order::new(&run.head);
    let plan = Plan::parse(&run.head.plan_toml, &run.head.name, Path::new("."));
    let series = plan.map(|plan| plan.series).unwrap_or_default();
    let mut text = String::new();
    for open in OPEN.iter().filter(|open| open.paper == run.head.name) {
        let shown = all.iter();
        let shown = shown.filter(|cell| open.shows(cell.series, cell.levels));
        let shown: Vec<&Cell<'_>> = shown.collect();
        if shown.is_empty() {
            continue;
        }
        let planned = series.iter().find(|one| one.name == open.series);
        let title = match (open.about, planned) {
            ("", Some(series)) => series.title.as_str(),
            (about, _) => about,
        };
        let only = open.only.map_or_else(String::new, |(factor, number)| {
            format!(", at {}", words::level_of(factor, &Level::Number(number)))
        });
        let rows = open.rows(shown, &order);
        let _ = writeln!(
            text,
            "`{}`: {title}{only}.\n\n{}\n",
            open.series,
            table(&rows)
        );
    }
    match text.is_empty() {
        true => text,
        false => format!("{HEAD}\n\n{text}"),
    }
}

const HEAD: &str = "\
### What else was measured\n\n\
What the authors left open, and conditions that no claim and no figure has. Values are medians over blocks. ≥ and ≤: \
the client was the limit in most trials, and the server may do better. In parentheses: how many blocks have the \
value, where not all have.";

/// The series of a paper that have a table.
#[cfg(test)]
pub(crate) fn series(paper: &str) -> Vec<&'static str> {
    let tables = OPEN.iter().filter(|open| open.paper == paper);
    tables.map(|open| open.series).collect()
}

/// Whether a table of a paper has this cell.
#[cfg(test)]
pub(crate) fn shows(paper: &str, series: &str, levels: &Levels) -> bool {
    let mut tables = OPEN.iter().filter(|open| open.paper == paper);
    tables.any(|open| open.shows(series, levels))
}

impl Open {
    fn shows(&self, series: &str, levels: &Levels) -> bool {
        let is_it = |(factor, number): (&str, f64)| match levels.get(factor) {
            Some(Level::Number(level)) => *level == number,
            _ => false,
        };
        series == self.series && self.only.is_none_or(is_it)
    }

    /// A row for each cell, below the head.
    fn rows(&self, mut shown: Vec<&Cell<'_>>, order: &Order) -> Vec<Vec<String>> {
        let names = distinct(shown.iter().flat_map(|cell| cell.levels.keys()));
        let mut factors: Vec<(&String, Vec<Level>)> = Vec::new();
        for name in names {
            let levels = order.levels(self.series, name, &shown);
            if levels.len() > 1 {
                factors.push((name, levels));
            }
        }
        // Servers and models stand together under each condition, which is a number as a rule.
        sort_by_key(&mut factors, |(_, levels)| {
            !matches!(levels.first(), Some(Level::Number(_)))
        });
        sort_by_key(&mut shown, |cell| {
            let places = factors.iter().map(|(name, levels)| {
                let level = cell.level(name);
                levels.iter().position(|it| Some(it) == level)
            });
            places.collect::<Vec<_>>()
        });
        let mut head = vec!["cell".to_owned()];
        head.extend(self.metrics.iter().map(|it| it.label().to_owned()));
        head.push("blocks".to_owned());
        let mut rows = vec![head];
        for cell in shown {
            let levels = factors.iter().filter_map(|(name, _)| {
                let level = cell.level(name)?;
                Some(words::level_of(name, level))
            });
            let mut row = vec![levels.collect::<Vec<_>>().join("; ")];
            row.extend(self.metrics.iter().map(|metric| value(cell, *metric)));
            row.push(cell.counted.len().to_string());
            rows.push(row);
        }
        rows
    }
}

/// The median with its unit: "≥ 24,080/s". A dash: no trial that counts has it.
fn value(cell: &Cell<'_>, metric: Metric) -> String {
    let values = cell.values(metric);
    let Some(middle) = median(&values) else {
        return "–".to_owned();
    };
    let ranges = || cell.counted.iter().filter_map(|trial| trial.range(metric));
    let is_most = |count: usize| count * 2 > values.len();
    let may_be_more = is_most(ranges().filter(|range| range.high > range.value).count());
    let may_be_less = is_most(ranges().filter(|range| range.low < range.value).count());
    let bound = match (may_be_more, may_be_less) {
        (true, _) => "≥ ",
        (_, true) => "≤ ",
        _ => "",
    };
    let fewer = match values.len() < cell.counted.len() {
        true => format!(" ({})", values.len()),
        false => String::new(),
    };
    let middle = words::value(middle, Some(metric.unit()));
    format!("{bound}{middle}{fewer}")
}

#[cfg(test)]
mod tests {
    use loadline_lab::analysis::Measured;
    use loadline_lab::cells::Cells;

    use super::*;
    use crate::tests::{full, plan};
    use crate::{PAPERS, Paper};

    /// The largest table that is still read at a glance.
    const ROWS_MAX: usize = 12;

    fn trial(run: &Run, levels: &[(&str, Level)], rate: f64) -> Measured {
        let levels = levels.iter();
        let levels = levels.map(|(name, level)| ((*name).to_owned(), level.clone()));
        Measured {
            number: run.trials.len() as u32,
            series: "keep-alive".to_owned(),
            levels: levels.collect(),
            values: [(Metric::GoodPerS, rate), (Metric::P50Us, 1000.0)].into(),
            ..Measured::default()
        }
    }

    fn run_of_p1() -> Run {
        let paper = Paper::named("P1").unwrap();
        let mut run = Run::default();
        run.head.name = "P1".to_owned();
        run.head.plan_toml = full().plan_text(&paper.text(), "P1").unwrap();
        run
    }

    #[test]
    fn tables_are_short_and_say_what_they_are_of() {
        for paper in &PAPERS {
            let plan = plan(paper, &full());
            let cells = Cells::of(&plan, &[0, 1], &[]).unwrap().cells;
            for open in OPEN.iter().filter(|open| open.paper == paper.name) {
                let rows = cells.iter().filter(|cell| {
                    let series = &plan.series[cell.series].name;
                    open.shows(series, &cell.levels)
                });
                let count = rows.count();
                assert!((1..=ROWS_MAX).contains(&count), "{}: {count}", open.series);
                let series = plan.series.iter().find(|one| one.name == open.series);
                let title = &series.unwrap().title;
                let is_said_before = title.starts_with("The same");
                assert_eq!(is_said_before, !open.about.is_empty(), "{title}");
                assert!(!title.is_empty(), "{}", open.series);
            }
        }
    }

    #[test]
    fn a_table_has_medians_bounds_and_blocks() {
        let mut run = run_of_p1();
        let model = |name: &str| ("model", Level::Text(name.to_owned()));
        let (one, several) = (
            model("single reactor, threads"),
            model("several reactors, threads"),
        );
        for rate in [100.0, 400.0, 200.0] {
            for service_us in [1000.0, 200.0] {
                let factor = ("service_us", Level::Number(service_us));
                let mut limited = trial(&run, &[several.clone(), factor.clone()], rate);
                limited.client_limited = true;
                limited.server_busy = Some(0.5);
                run.trials.push(limited);
                let mut late = trial(&run, &[one.clone(), factor], rate);
                if rate > 300.0 {
                    late.times_discarded.push("The client was late.".to_owned());
                }
                run.trials.push(late);
            }
        }
        let text = of(&run);
        let starts = "### What else was measured\n\nWhat the authors";
        assert!(text.starts_with(starts), "{text}");
        let title = "\n\n`keep-alive`: Three models over connections that stay.\n\n| cell ";
        assert!(text.contains(title), "{text}");
        let cells = |line: &str| -> Vec<String> {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        };
        let rows = text.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<Vec<String>> = rows.map(cells).collect();
        let head = [
            "cell",
            "Good requests",
            "Median latency",
            "Latency p99",
            "CPU time per request",
            "blocks",
        ];
        let row = |cell: &str, rate: &str, median: &str| {
            [cell, rate, median, "–", "–", "3"].map(str::to_owned)
        };
        assert_eq!(rows[0], head);
        assert_eq!(
            rows[1..],
            [
                row(
                    "service time 200 µs; single reactor, threads",
                    "200/s",
                    "1 ms (2)"
                ),
                row(
                    "service time 200 µs; several reactors, threads",
                    "≥ 200/s",
                    "≤ 1 ms"
                ),
                row(
                    "service time 1,000 µs; single reactor, threads",
                    "200/s",
                    "1 ms (2)"
                ),
                row(
                    "service time 1,000 µs; several reactors, threads",
                    "≥ 200/s",
                    "≤ 1 ms"
                ),
            ]
        );
    }

    #[test]
    fn what_was_not_measured_has_no_table() {
        let mut run = run_of_p1();
        assert_eq!(of(&run), "");
        let cell = [("service_us", Level::Number(0.0))];
        let measured = trial(&run, &cell, 10.0);
        run.trials.push(measured);
        assert!(of(&run).contains("`keep-alive`: "));
        run.head.name = "mine".to_owned();
        assert_eq!(of(&run), "");
    }
}
