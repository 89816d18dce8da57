//! From a chart's description and the cells of a run to the chart with its data.

use loadline_base::sorting::{sort_by, to_set};
use loadline_capacity::stats::{self, Range};

use super::figure::{Axis, Curve, DiscardedMark, Figure, Panel, Point};
use super::order::Order;
use super::{finding, scaling, words};
use crate::analysis::{Cell, Estimate, Measured, Metric, SPECTRUM_PERCENTS, Times};
use crate::journal::Level;
use crate::plan::{Chart, ChartKind};

/// Levels of the factors that tell curves or panels apart.
type Key = Vec<Option<Level>>;

/// Makes a chart's data; `None`: the run has none of its cells.
pub(super) fn figure(
    chart: &Chart,
    cells: &[Cell<'_>],
    order: &Order,
    seed: u64,
) -> Option<Figure> {
    let picked: Vec<&Cell<'_>> = cells.iter().filter(|cell| is_picked(chart, cell)).collect();
    if picked.is_empty() {
        return None;
    }
    let picked = match chart.best_of.is_empty() {
        true => picked,
        false => best(chart, picked),
    };
    let layout = Layout::new(chart, &picked, order);
    let y_axis = || layout.factor_axis(&chart.y, &layout.y_levels, false);
    let legend = layout.curves.iter().map(|key| layout.curve_name(key));
    let panel = |key| layout.panel(chart, key, &picked);
    let panels = layout.panels.iter().map(panel);
    let mut figure = Figure {
        kind: chart.kind,
        spread: chart.spread,
        series: chart.series.clone(),
        title: title(chart),
        note: layout.note(chart, &picked),
        x: layout.x_axis(chart),
        y: chart.kind.is_grid().then(y_axis),
        value: value_axis(chart),
        legend: legend.collect(),
        panels: panels.collect(),
        ..Figure::default()
    };
    for reference in &chart.reference {
        let curve = Curve {
            legend: figure.legend.len(),
            is_reference: true,
            ..Curve::through(&reference.points, figure.x.unit)
        };
        figure.legend.push(reference.label.clone());
        for panel in &mut figure.panels {
            panel.curves.push(curve.clone());
        }
    }
    let most = figure.value_range().map_or(0.0, |(_, most)| most);
    figure.value.divide(most);
    figure.finding = finding::of(chart, &figure, &picked);
    figure.scaling = scaling::of(chart, &figure, &picked, seed);
    Some(figure)
}

fn is_picked(chart: &Chart, cell: &Cell<'_>) -> bool {
    let has_one = |(name, levels): (&String, &Vec<Level>)| {
        cell.level(name).is_some_and(|level| levels.contains(level))
    };
    cell.series == chart.series && chart.only.iter().all(has_one)
}

/// Of cells that differ in the factors of `best_of` alone, the one with the best mean. Cells without a trial
/// that counts are best where there is no other, so that they are shown.
fn best<'c, 'r>(chart: &Chart, picked: Vec<&'c Cell<'r>>) -> Vec<&'c Cell<'r>> {
    let sign = match chart.metric.more_is_better() {
        Some(false) => -1.0,
        _ => 1.0,
    };
    let score = |cell: &Cell<'_>| {
        let estimate = cell.estimate(chart.metric);
        estimate.map_or(f64::NEG_INFINITY, |it| sign * it.center)
    };
    let mut best: Vec<&Cell<'_>> = Vec::new();
    for cell in picked {
        let rest = |of: &Cell<'_>| -> Vec<(String, Level)> {
            let levels = of.levels.iter();
            let rest = levels.filter(|(name, _)| !chart.best_of.contains(name));
            rest.map(|(name, level)| (name.clone(), level.clone()))
                .collect()
        };
        match best.iter_mut().find(|other| rest(other) == rest(cell)) {
            Some(other) if score(cell) > score(other) => *other = cell,
            Some(_) => {}
            None => best.push(cell),
        }
    }
    best
}

fn title(chart: &Chart) -> String {
    if !chart.title.is_empty() {
        return chart.title.clone();
    }
    let what = match chart.kind {
        ChartKind::Spectrum => times(chart).label().to_owned() + " over percentiles",
        ChartKind::TimeSeries => format!("{}, second by second", chart.metric.label()),
        _ => chart.metric.label().to_owned(),
    };
    let name = |factor| words::factor(factor).0.to_lowercase();
    let by = match (chart.x.as_str(), chart.y.as_str()) {
        ("", _) => String::new(),
        (x, "") => format!(" by {}", name(x)),
        (x, y) => format!(" by {} and {}", name(x), name(y)),
    };
    what + &by
}

fn times(chart: &Chart) -> Times {
    chart.metric.spectrum().unwrap_or(Times::Latency)
}

fn value_axis(chart: &Chart) -> Axis {
    let is_spectrum = chart.kind == ChartKind::Spectrum;
    Axis {
        name: chart.metric.name().to_owned(),
        label: if is_spectrum {
            times(chart).label().to_owned()
        } else {
            chart.metric.label().to_owned()
        },
        unit: Some(chart.metric.unit()),
        log: chart.log_y || is_spectrum,
        ..Axis::default()
    }
}

/// Which factors are drawn how, and all of their levels.
struct Layout {
    lines: Vec<String>,
    facets: Vec<String>,
    x_levels: Vec<Level>,
    y_levels: Vec<Level>,
    curves: Vec<Key>,
    panels: Vec<Key>,
}

impl Layout {
    fn new(chart: &Chart, picked: &[&Cell<'_>], order: &Order) -> Self {
        let mut lines = chart.lines.clone();
        let mut facets = chart.facets.clone();
        let levels_of = |factor: &str| order.levels(&chart.series, factor, picked);
        // What varies and is not named must not be drawn as one.
        let others = match chart.kind.is_grid() {
            true => &mut facets,
            false => &mut lines,
        };
        for name in to_set(picked.iter().flat_map(|cell| cell.levels.keys())) {
            let is_named = [&chart.x, &chart.y].contains(&name)
                || chart.lines.contains(name)
                || chart.facets.contains(name)
                || chart.best_of.contains(name);
            if !is_named && levels_of(name).len() > 1 {
                others.push(name.clone());
            }
        }
        let y_levels = levels_of(&chart.y);
        let curves = if chart.kind.is_grid() {
            y_levels
                .iter()
                .map(|level| vec![Some(level.clone())])
                .collect()
        } else {
            keys(&lines, picked, &levels_of)
        };
        Self {
            panels: keys(&facets, picked, &levels_of),
            x_levels: levels_of(&chart.x),
            y_levels,
            curves,
            lines,
            facets,
        }
    }

    /// What the plan says, and which cells are the best of theirs.
    fn note(&self, chart: &Chart, picked: &[&Cell<'_>]) -> String {
        if chart.best_of.is_empty() {
            return chart.note.clone();
        }
        let factors = || self.lines.iter().chain([&chart.y]).chain(&self.facets);
        let mut curves: Vec<(String, Vec<String>)> = Vec::new();
        for cell in picked {
            let levels = factors().filter_map(|name| Some((name, cell.level(name)?)));
            let levels = levels.map(|(name, level)| words::level_of(name, level));
            let curve = levels.collect::<Vec<_>>().join(", ");
            let best = chart.best_of.iter();
            let best = best.filter_map(|name| Some(words::level_of(name, cell.level(name)?)));
            let best = words::list(&best.collect::<Vec<_>>());
            let at = cell.level(&chart.x).map_or_else(String::new, words::level);
            let one = format!("{best} at {at}");
            match curves.iter_mut().find(|(name, _)| *name == curve) {
                Some((_, all)) => all.push(one),
                None => curves.push((curve, vec![one])),
            }
        }
        let curves = curves.iter().map(|(curve, all)| match curve.is_empty() {
            true => all.join(", "),
            false => format!("{curve}: {}", all.join(", ")),
        });
        let best = format!("Best are {}.", curves.collect::<Vec<_>>().join("; "));
        format!("{} {best}", chart.note).trim_start().to_owned()
    }

    fn factor_axis(&self, factor: &str, levels: &[Level], log: bool) -> Axis {
        let is_number = |level: &Level| matches!(level, Level::Number(_));
        let names = match levels.iter().all(is_number) {
            true => Vec::new(),
            false => levels.iter().map(words::level).collect(),
        };
        Axis {
            name: factor.to_owned(),
            label: words::factor_with_unit(factor),
            unit: None,
            log: log && names.is_empty(),
            names,
            ..Axis::default()
        }
    }

    fn x_axis(&self, chart: &Chart) -> Axis {
        match chart.kind {
            ChartKind::Spectrum => Axis {
                name: "percentile".to_owned(),
                label: "Percentile".to_owned(),
                log: true,
                ..Axis::default()
            },
            ChartKind::TimeSeries => Axis {
                name: "second".to_owned(),
                label: "Time since the load began (s)".to_owned(),
                ..Axis::default()
            },
            ChartKind::Bars => Axis {
                names: self.x_levels.iter().map(words::level).collect(),
                ..self.factor_axis(&chart.x, &self.x_levels, false)
            },
            _ => self.factor_axis(&chart.x, &self.x_levels, chart.log_x),
        }
    }

    /// Where a level lies on its axis.
    fn position(&self, axis: &Axis, levels: &[Level], level: &Level) -> f64 {
        let index = || levels.iter().position(|it| it == level).unwrap_or(0) as f64;
        match level {
            Level::Number(number) if axis.names.is_empty() => *number,
            _ => index(),
        }
    }

    fn curve_name(&self, key: &Key) -> String {
        if self.lines.is_empty() {
            let level = key.first().and_then(Option::as_ref);
            return level.map_or_else(String::new, words::level);
        }
        name_of(&self.lines, key)
    }

    fn panel(&self, chart: &Chart, key: &Key, picked: &[&Cell<'_>]) -> Panel {
        let of_panel = |cell: &&&Cell<'_>| self::key(&self.facets, cell) == *key;
        let cells: Vec<&Cell<'_>> = picked.iter().filter(of_panel).copied().collect();
        let curves = self.curves.iter().enumerate().map(|(legend, curve)| {
            let is_of_curve = |cell: &&&Cell<'_>| match chart.kind.is_grid() {
                true => cell.level(&chart.y) == curve[0].as_ref(),
                false => self::key(&self.lines, cell) == *curve,
            };
            let cells: Vec<&Cell<'_>> = cells.iter().filter(is_of_curve).copied().collect();
            let y_axis = self.factor_axis(&chart.y, &self.y_levels, false);
            Curve {
                legend,
                y: match curve.first() {
                    Some(Some(level)) if chart.kind.is_grid() => {
                        self.position(&y_axis, &self.y_levels, level)
                    }
                    _ => 0.0,
                },
                is_reference: false,
                points: self.points(chart, &cells),
            }
        });
        Panel {
            title: words::capital(&name_of(&self.facets, key)),
            curves: curves.filter(|curve| !curve.points.is_empty()).collect(),
        }
    }

    fn points(&self, chart: &Chart, cells: &[&Cell<'_>]) -> Vec<Point> {
        let cells = cells.iter();
        match chart.kind {
            ChartKind::Spectrum => cells.flat_map(|cell| spectrum(chart, cell)).collect(),
            ChartKind::TimeSeries => cells.flat_map(|cell| seconds(chart, cell)).collect(),
            _ => {
                let axis = self.x_axis(chart);
                let value = |trial: &Measured| trial.measured(chart.metric);
                let points = cells.filter_map(|cell| {
                    let level = cell.level(&chart.x)?;
                    let x = self.position(&axis, &self.x_levels, level);
                    Some(Point {
                        room: room(cell, chart.metric),
                        ..point(chart, cell, (x, words::level(level)), &value)
                    })
                });
                let mut points: Vec<Point> = points.collect();
                sort_by(&mut points, |one, other| one.x.total_cmp(&other.x));
                points
            }
        }
    }
}

/// All level combinations that occur, in the order of the levels.
fn keys(
    factors: &[String],
    picked: &[&Cell<'_>],
    levels_of: &impl Fn(&str) -> Vec<Level>,
) -> Vec<Key> {
    let orders: Vec<Vec<Level>> = factors.iter().map(|factor| levels_of(factor)).collect();
    let mut found: Vec<(Vec<usize>, Key)> = Vec::new();
    for cell in picked {
        let key = key(factors, cell);
        let rank = |(levels, level): (&Vec<Level>, &Option<Level>)| {
            let level = level.as_ref();
            levels
                .iter()
                .position(|it| Some(it) == level)
                .unwrap_or(usize::MAX)
        };
        let ranks: Vec<usize> = orders.iter().zip(&key).map(rank).collect();
        if !found.iter().any(|(other, _)| *other == ranks) {
            found.push((ranks, key));
        }
    }
    sort_by(&mut found, |one, other| one.0.cmp(&other.0));
    found.into_iter().map(|(_, key)| key).collect()
}

fn key(factors: &[String], cell: &Cell<'_>) -> Key {
    factors
        .iter()
        .map(|factor| cell.level(factor).cloned())
        .collect()
}

fn name_of(factors: &[String], key: &Key) -> String {
    let named = factors
        .iter()
        .zip(key)
        .filter_map(|(factor, level)| Some(words::level_of(factor, level.as_ref()?)));
    named.collect::<Vec<_>>().join(", ")
}

/// The trials of a cell by one figure each, whether they count for the chart's metric or not.
fn point(
    chart: &Chart,
    cell: &Cell<'_>,
    (x, x_text): (f64, String),
    value: &dyn Fn(&Measured) -> Option<f64>,
) -> Point {
    let with_values = cell
        .counted_for(chart.metric)
        .filter_map(|it| Some((it.number, value(it)?)));
    let (trials, values): (Vec<u32>, Vec<f64>) = with_values.unzip();
    let discarded = cell.discarded_for(chart.metric).map(|trial| DiscardedMark {
        trial: trial.number,
        value: value(trial),
        reasons: trial.discarded_for(chart.metric).to_vec(),
    });
    Point {
        x,
        x_text,
        estimate: Estimate::new(&values),
        room: None,
        trials,
        discarded: discarded.collect(),
    }
}

/// The mean of what trials stand for at the far end of their ranges; `None`: they stand for
/// themselves.
fn room(cell: &Cell<'_>, metric: Metric) -> Option<f64> {
    let ranges = cell.counted.iter().filter_map(|it| it.range(metric));
    let ranges: Vec<Range> = ranges.collect();
    if ranges.iter().all(Range::is_exact) {
        return None;
    }
    let farthest = ranges.iter().map(|it| match it.high > it.value {
        true => it.high,
        false => it.low,
    });
    stats::center(&farthest.collect::<Vec<_>>(), stats::LEVEL).map(|(center, _)| center)
}

/// Percentiles that all trials have samples enough for. Discarded trials are marked at the median.
fn spectrum(chart: &Chart, cell: &Cell<'_>) -> Vec<Point> {
    let of = |trial: &Measured, percent: f64| {
        let all = match times(chart) {
            Times::Latency => &trial.latency_us,
            Times::Service => &trial.service_us,
        };
        let found = all.iter().find(|(it, _)| *it == percent);
        found.map(|(_, us)| *us as f64)
    };
    let points = SPECTRUM_PERCENTS.into_iter().filter_map(|percent| {
        let value = |trial: &Measured| of(trial, percent);
        let x = 100.0 / (100.0 - percent);
        let point = point(chart, cell, (x, format!("{percent} %")), &value);
        shown(point, percent == 50.0, chart, cell)
    });
    points.collect()
}

/// Every second that all trials have. Discarded trials are marked in the middle one.
fn seconds(chart: &Chart, cell: &Cell<'_>) -> Vec<Point> {
    let all = cell.counted.iter().chain(&cell.discarded);
    let longest = all.map(|trial| trial.seconds.len()).max().unwrap_or(0);
    let middle = longest / 2;
    let points = (0..longest).filter_map(|at| {
        let value = |trial: &Measured| {
            let second = trial.seconds.get(at)?;
            second.values.get(&chart.metric).copied()
        };
        let point = point(chart, cell, (at as f64, at.to_string()), &value);
        shown(point, at == middle, chart, cell)
    });
    points.collect()
}

/// A point of which every trial that counts has a value, or that marks discarded ones.
fn shown(mut point: Point, is_marked: bool, chart: &Chart, cell: &Cell<'_>) -> Option<Point> {
    if !is_marked {
        point.discarded.clear();
    }
    let count = point.trials.len();
    let is_whole = count > 0 && count == cell.counted_for(chart.metric).count();
    (is_whole || !point.discarded.is_empty()).then_some(point)
}

/// Whether a metric's value is of use here.
pub(super) fn has_values(cells: &[&Cell<'_>], metric: Metric) -> bool {
    cells
        .iter()
        .any(|cell| cell.counted.iter().any(|it| it.value(metric).is_some()))
}
