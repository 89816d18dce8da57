//! Charts for a plan that describes none.

use std::collections::BTreeMap;

use loadline_base::sorting::sort_by_key;

use super::order::Order;
use super::resolve;
use crate::analysis::{Cell, Metric};
use crate::journal::Level;
use crate::plan::{Chart, ChartKind};

/// More curves in one chart could not be distinguished.
const CURVES_MAX: usize = 8;
/// A factor with this number of levels makes a side of a surface.
const SIDE_MIN: usize = 4;

/// Charts of all series: throughput, tail and CPU time along the factor with the most numbers, a
/// surface where there are two such, and a latency spectrum and a time series of what is left at its
/// middle level.
pub(super) fn charts(cells: &[Cell<'_>], order: &Order) -> Vec<Chart> {
    let series = cells.chunk_by(|one, other| one.series == other.series);
    let charts = series.flat_map(|cells| {
        let of_series: Vec<&Cell<'_>> = cells.iter().collect();
        of_one(cells[0].series, &of_series, order)
    });
    charts.collect()
}

const OF_ONE_CELL: [(ChartKind, Metric); 2] = [
    (ChartKind::Spectrum, Metric::P50Us),
    (ChartKind::TimeSeries, Metric::CompletedPerS),
];

const METRICS: [Metric; 6] = [
    Metric::CompletedPerS,
    Metric::P99Us,
    Metric::ErrorShare,
    Metric::CpuUsPerRequest,
    Metric::ContextSwitchesPerRequest,
    Metric::MemoryBytes,
];

fn of_one(series: &str, cells: &[&Cell<'_>], order: &Order) -> Vec<Chart> {
    let mut factors: BTreeMap<&str, Vec<Level>> = BTreeMap::new();
    for name in cells.iter().flat_map(|cell| cell.levels.keys()) {
        factors
            .entry(name)
            .or_insert_with(|| order.levels(series, name, cells));
    }
    let varying = || factors.iter().filter(|(_, levels)| levels.len() > 1);
    let is_number = |level: &Level| matches!(level, Level::Number(_));
    let mut numbers: Vec<(&str, &Vec<Level>)> = varying()
        .filter(|(_, levels)| levels.iter().all(is_number))
        .map(|(name, levels)| (*name, levels))
        .collect();
    sort_by_key(&mut numbers, |(_, levels)| std::cmp::Reverse(levels.len()));
    let base = |kind, metric| Chart {
        kind,
        metric,
        series: series.to_owned(),
        ..Chart::default()
    };
    let mut charts = Vec::new();
    let names = || varying().map(|(name, _)| *name);
    let text_x = || names().max_by_key(|name| factors[name].len());
    let x = numbers.first().map(|(name, _)| *name).or_else(text_x);
    if let [(x, x_levels), (y, y_levels), ..] = numbers[..]
        && x_levels.len() >= SIDE_MIN
        && y_levels.len() >= SIDE_MIN
    {
        for kind in [ChartKind::Surface, ChartKind::HeatMap] {
            charts.push(Chart {
                x: x.to_owned(),
                y: y.to_owned(),
                ..base(kind, Metric::CompletedPerS)
            });
        }
    }
    let has_errors = cells
        .iter()
        .any(|cell| cell.values(Metric::ErrorShare).iter().any(|it| *it > 0.0));
    let worth_it = |metric: &Metric| {
        resolve::has_values(cells, *metric) && (*metric != Metric::ErrorShare || has_errors)
    };
    if let Some(x) = x {
        let kind = match numbers.is_empty() {
            true => ChartKind::Bars,
            false => ChartKind::Lines,
        };
        for metric in METRICS.into_iter().filter(worth_it) {
            charts.push(Chart {
                x: x.to_owned(),
                log_x: is_wide(&factors[x]),
                log_y: kind == ChartKind::Lines && metric == Metric::P99Us,
                ..base(kind, metric)
            });
        }
    }
    let only = middle(cells, &factors, &numbers);
    for (kind, metric) in OF_ONE_CELL {
        if resolve::has_values(cells, metric) {
            charts.push(Chart {
                only: only.clone(),
                ..base(kind, metric)
            });
        }
    }
    charts
}

/// Levels that go from few to very many crowd at one end of a plain axis.
fn is_wide(levels: &[Level]) -> bool {
    match levels {
        [Level::Number(first), .., Level::Number(last)] => *first > 0.0 && last / first >= 50.0,
        _ => false,
    }
}

/// Middle levels of as many numbers as it takes to be left with few cells.
fn middle(
    cells: &[&Cell<'_>],
    factors: &BTreeMap<&str, Vec<Level>>,
    numbers: &[(&str, &Vec<Level>)],
) -> BTreeMap<String, Vec<Level>> {
    let mut only: BTreeMap<String, Vec<Level>> = BTreeMap::new();
    let names = numbers.iter().map(|(name, _)| *name);
    let others = factors
        .keys()
        .filter(|name| numbers.iter().all(|(it, _)| it != *name));
    for name in names.chain(others.copied()) {
        let is_left = |cell: &&&Cell<'_>| {
            only.iter()
                .all(|(name, levels)| cell.level(name).is_some_and(|level| levels.contains(level)))
        };
        if cells.iter().filter(is_left).count() <= CURVES_MAX {
            break;
        }
        let levels = &factors[name];
        if let Some(level) = levels.get(levels.len() / 2) {
            only.insert(name.to_owned(), vec![level.clone()]);
        }
    }
    only
}
