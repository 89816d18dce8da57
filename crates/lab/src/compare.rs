//! Loadline's architectures against other servers: the plan of `loadline lab compare`, and its table of
//! ratios to nginx tuned.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::analysis::{self, Cell, Metric, Run};
use crate::journal::Level;
use crate::stats::{self, Comparison, Difference, Range};

/// `lab/compare.toml`, with its reduced and its full grid (see [`crate::papers::Grid`]).
pub const PLAN: &str = include_str!("../../../lab/compare.toml");

/// What the others are compared with.
pub const BASELINE: &str = "nginx-tuned";

/// The smallest difference that matters to anybody who chooses a server.
const MATTERS: f64 = 0.02;

/// What is compared in a series.
const METRICS: [(&str, &[Metric]); 5] = [
    ("small", &[Metric::GoodPerS, Metric::CpuUsPerRequest]),
    ("large", &[Metric::GoodPerS, Metric::CpuUsPerRequest]),
    (
        "new-connections",
        &[Metric::GoodPerS, Metric::CpuUsPerRequest],
    ),
    ("idle", &[Metric::MemoryBytes]),
    (
        "rate",
        &[Metric::P50Us, Metric::P99Us, Metric::CpuUsPerRequest],
    ),
];

/// One server in one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// "small, connections=64".
    pub load: String,
    /// The server.
    pub server: String,
    /// Of what.
    pub metric: Metric,
    /// The median of its trials; `None`: none counts.
    pub median: Option<f64>,
    /// To [`BASELINE`] in the same blocks; `None`: there are no pairs.
    pub ratio: Option<Comparison>,
    /// Trials that count in which the client was the limit: the server may do better, and the ratio's
    /// interval reaches as far as CPU time left room for.
    pub client_limited: usize,
}

/// Every server in every load, in the order of the plan's series.
#[must_use]
pub fn ratios(run: &Run) -> Vec<Ratio> {
    let cells = analysis::cells(run);
    let mut ratios = Vec::new();
    for (series, metrics) in METRICS {
        let mut loads: BTreeMap<String, Vec<&Cell<'_>>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.series == series) {
            loads.entry(load_of(cell)).or_default().push(cell);
        }
        for (load, cells) in loads {
            let baseline = cells.iter().find(|cell| name_of(cell) == BASELINE);
            for metric in metrics {
                ratios.extend(cells.iter().map(|cell| Ratio {
                    load: load.clone(),
                    server: name_of(cell),
                    metric: *metric,
                    median: cell.estimate(*metric).map(|estimate| estimate.median),
                    client_limited: cell.counted.iter().filter(|it| it.client_limited).count(),
                    ratio: baseline.and_then(|other| ratio(cell, other, *metric, run.head.seed)),
                }));
            }
        }
    }
    ratios
}

fn name_of(cell: &Cell<'_>) -> String {
    cell.level("server")
        .map_or_else(String::new, Level::to_string)
}

fn load_of(cell: &Cell<'_>) -> String {
    let others = cell.levels.iter().filter(|(name, _)| *name != "server");
    let texts = others.map(|(name, level)| format!(", {name}={level}"));
    cell.series.to_owned() + &texts.collect::<String>()
}

fn ratio(this: &Cell<'_>, other: &Cell<'_>, metric: Metric, seed: u64) -> Option<Comparison> {
    let by_block = |cell: &Cell<'_>| -> BTreeMap<u32, Range> {
        let trials = cell.counted.iter();
        let ranges = trials.filter_map(|trial| Some((trial.block, trial.range(metric)?)));
        ranges.collect()
    };
    let others = by_block(other);
    let ratios: Vec<Range> = by_block(this)
        .into_iter()
        .filter_map(|(block, range)| Some(range.over(others.get(&block)?)))
        .collect();
    stats::compare_ranges(&ratios, MATTERS, seed)
}

/// The ratios as a table for people. With nginx not installed, there are values and no ratios.
#[must_use]
pub fn table(run: &Run) -> String {
    let mut text = String::new();
    let mut heading = (String::new(), Metric::default());
    for row in ratios(run) {
        let this = (row.load.clone(), row.metric);
        if this != heading {
            let _ = writeln!(
                text,
                "\n{}: {}, ratio to {BASELINE}",
                row.load,
                row.metric.name()
            );
            heading = this;
        }
        let value = match row.median {
            Some(value) => amount(value),
            None => "void".to_owned(),
        };
        let mut ratio = row.ratio.as_ref().map_or_else(String::new, ratio_text);
        if row.client_limited > 0 && is_limited_by_clients(row.metric) {
            ratio += "  client-limited";
        }
        let _ = writeln!(text, "  {:<24} {value:>12}  {ratio}", row.server);
    }
    text
}

/// What a client at its end makes worse than the server is.
fn is_limited_by_clients(metric: Metric) -> bool {
    matches!(metric, Metric::GoodPerS | Metric::P50Us | Metric::P99Us)
}

fn ratio_text(comparison: &Comparison) -> String {
    let mut text = format!("{:.3}", comparison.ratio);
    if let Some(interval) = comparison.interval {
        let _ = write!(text, " ({:.3} to {:.3})", interval.low, interval.high);
    }
    text + match comparison.difference {
        Difference::More | Difference::Less => "",
        Difference::Alike => "  alike",
        Difference::Unknown => "  not distinguishable",
    }
}

fn amount(value: f64) -> String {
    let digits = match value.abs() {
        small if small < 10.0 => 2,
        medium if medium < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::analysis::Measured;
    use crate::papers::Grid;
    use crate::plan::Plan;

    #[test]
    fn both_grids_are_plans() {
        for full in [false, true] {
            let grid = Grid {
                full,
                ..Grid::default()
            };
            let text = grid.plan_text(PLAN, "compare").unwrap();
            let plan = Plan::parse(&text, "compare", Path::new("/")).unwrap();
            assert!(plan.servers.contains_key(BASELINE));
            for (series, _) in METRICS {
                assert!(plan.series.iter().any(|one| one.name == series), "{series}");
            }
        }
    }

    #[test]
    fn servers_are_laid_beside_nginx_tuned() {
        let mut run = Run::default();
        for block in 0..5_u32 {
            for (server, rate) in [(BASELINE, 1000.0), ("reactor", 1200.0), ("h2o", 1001.0)] {
                let noise = 1.0 + f64::from(block) / 1000.0;
                run.trials.push(Measured {
                    number: run.trials.len() as u32,
                    block,
                    series: "small".to_owned(),
                    levels: [
                        ("server".to_owned(), Level::Text(server.to_owned())),
                        ("connections".to_owned(), Level::Number(64.0)),
                    ]
                    .into(),
                    values: [(Metric::GoodPerS, rate * noise)].into(),
                    ..Measured::default()
                });
            }
        }
        let rows = ratios(&run);
        let of = |server: &str| rows.iter().find(|row| row.server == server).unwrap();
        assert!((of("reactor").ratio.unwrap().ratio - 1.2).abs() < 1e-9);
        let text = table(&run);
        assert!(
            text.contains("small, connections=64: good_per_s, ratio to nginx-tuned"),
            "{text}"
        );
        assert!(text.contains("1.001 (1.001 to 1.001)  alike"), "{text}");
        run.trials
            .retain(|trial| trial.levels["server"] != Level::Text(BASELINE.to_owned()));
        assert!(ratios(&run).iter().all(|row| row.ratio.is_none()));
    }
}
