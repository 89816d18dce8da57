//! What a chart shows, in a sentence. It says which alternatives cannot be distinguished.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use loadline_capacity::stats::{self, Comparison, Difference, Range};

use super::figure::{Curve, Figure, Panel, Point};
use super::words;
use crate::analysis::{Cell, Estimate, Metric};
use crate::plan::{Chart, ChartKind};

/// Differences below it are none for anybody who chooses a server.
pub(crate) const MATTERS: f64 = 0.02;

/// Eight of ten seconds within this part of the middle one are called steady.
const UNSTEADY: f64 = 0.1;

pub(super) fn of(chart: &Chart, figure: &Figure, cells: &[&Cell<'_>]) -> String {
    let measured: Vec<PlacedPoint<'_>> = figure
        .points()
        .filter(|(_, curve, _)| !curve.is_reference)
        .filter_map(|(panel, curve, point)| {
            let estimate = point.estimate.as_ref()?;
            Some(PlacedPoint {
                panel,
                curve,
                point,
                estimate,
            })
        })
        .collect();
    if measured.is_empty() {
        return "No trial of these cells counts.".to_owned();
    }
    match chart.kind {
        ChartKind::Spectrum => spectrum(figure, &measured),
        ChartKind::TimeSeries => time_series(figure),
        ChartKind::HeatMap | ChartKind::Surface => grid(chart, figure, &measured),
        ChartKind::Lines | ChartKind::Bars => lines(chart, figure, &measured, cells),
    }
}

#[derive(Clone, Copy)]
struct PlacedPoint<'f> {
    panel: &'f Panel,
    curve: &'f Curve,
    point: &'f Point,
    estimate: &'f Estimate,
}

impl PlacedPoint<'_> {
    fn value(&self, figure: &Figure) -> f64 {
        figure.middle(self.estimate)
    }
}

/// The best of them and the worst.
fn extremes<'p, 'f>(
    metric: Metric,
    figure: &Figure,
    points: &'p [PlacedPoint<'f>],
) -> Option<(&'p PlacedPoint<'f>, &'p PlacedPoint<'f>)> {
    let by_value = |one: &&PlacedPoint<'_>, other: &&PlacedPoint<'_>| {
        one.value(figure).total_cmp(&other.value(figure))
    };
    let (least, most) = (
        points.iter().min_by(by_value)?,
        points.iter().max_by(by_value)?,
    );
    Some(match metric.more_is_better() {
        Some(false) => (least, most),
        _ => (most, least),
    })
}

fn word(metric: Metric) -> &'static str {
    match metric.more_is_better() {
        Some(true) => "Most",
        Some(false) => "Least",
        None => "Largest",
    }
}

/// "48,210/s (47,900/s to 48,600/s)".
fn with_bounds(figure: &Figure, estimate: &Estimate) -> String {
    let value = |it| words::value(it, figure.value.unit);
    let middle = value(figure.middle(estimate));
    match figure.bounds(estimate) {
        Some((low, high)) => format!("{middle} ({} to {})", value(low), value(high)),
        None => middle,
    }
}

/// "at service time 200 µs" and, in charts of several panels, where.
fn at(figure: &Figure, point: &PlacedPoint<'_>) -> String {
    let (label, unit) = words::factor(&figure.x.name);
    let x = match unit {
        Some(unit) => format!("{} {unit}", point.point.x_text),
        None => point.point.x_text.clone(),
    };
    let x = match figure.x.names.is_empty() {
        true => format!("at {} {x}", label.to_lowercase()),
        false => format!("at {x}"),
    };
    match point.panel.title.as_str() {
        "" => x,
        title => format!("{x} ({})", title.to_lowercase()),
    }
}

fn lines(
    chart: &Chart,
    figure: &Figure,
    points: &[PlacedPoint<'_>],
    cells: &[&Cell<'_>],
) -> String {
    let Some((best, _)) = extremes(chart.metric, figure, points) else {
        return String::new();
    };
    let who = match figure.name_of(best.curve) {
        "" => String::new(),
        name => format!("{name}, "),
    };
    let best_text = format!(
        "{who}{}{} {}",
        best.point.sign(),
        with_bounds(figure, best.estimate),
        at(figure, best)
    );
    let rivals: Vec<PlacedPoint<'_>> = points
        .iter()
        .filter(|point| std::ptr::eq(point.panel, best.panel))
        .filter(|point| point.point.x == best.point.x && !std::ptr::eq(point.curve, best.curve))
        .copied()
        .collect();
    let second = extremes(chart.metric, figure, &rivals).and_then(|(second, _)| {
        let comparison = compared(chart.metric, best.point, second.point, cells)?;
        Some((second, with_correction(comparison, pairs(points))))
    });
    let Some((second, comparison)) = second else {
        return format!("{}: {best_text}.", word(chart.metric));
    };
    let other = figure.name_of(second.curve);
    let margin = margin(&comparison);
    match comparison.difference {
        Difference::More | Difference::Less => format!(
            "{}: {best_text}. That is {margin} times {other}.",
            word(chart.metric)
        ),
        Difference::Alike => format!(
            "Nothing is better than {other}: {best_text}, is as good, by a ratio of {margin}."
        ),
        Difference::Unknown => format!(
            "Not distinguishable: {best_text}, and {other}, by a ratio of {margin} in {}.",
            words::count(comparison.pairs, "pair")
        ),
    }
}

/// How many pairs of curves there are, at all places together.
fn pairs(points: &[PlacedPoint<'_>]) -> usize {
    let are_pair = |one: &PlacedPoint<'_>, other: &PlacedPoint<'_>| {
        std::ptr::eq(one.panel, other.panel)
            && one.point.x == other.point.x
            && !std::ptr::eq(one.curve, other.curve)
    };
    let mut count = 0;
    for (index, one) in points.iter().enumerate() {
        let before = points[..index].iter();
        count += before.filter(|other| are_pair(one, other)).count();
    }
    count
}

/// The best of several, and the place where it is, were chosen by the trials that it is compared with: the
/// test holds for each pair that might have been.
fn with_correction(mut comparison: Comparison, pairs: usize) -> Comparison {
    let differs = matches!(comparison.difference, Difference::More | Difference::Less);
    if differs && comparison.p * pairs as f64 > 1.0 - stats::LEVEL {
        comparison.difference = Difference::Unknown;
    }
    comparison
}

/// Pairs of trials that ran in the same block.
fn compared(metric: Metric, one: &Point, other: &Point, cells: &[&Cell<'_>]) -> Option<Comparison> {
    let by_block = |point: &Point| -> BTreeMap<u32, Range> {
        let trials = cells.iter().flat_map(|cell| &cell.counted);
        let of_point = trials.filter(|trial| point.trials.contains(&trial.number));
        to_map(of_point.filter_map(|trial| Some((trial.block, trial.range(metric)?))))
    };
    let others = by_block(other);
    let ratios: Vec<Range> = by_block(one)
        .into_iter()
        .filter_map(|(block, range)| Some(range.over(others.get(&block)?)))
        .collect();
    stats::compare_ranges(&ratios, MATTERS)
}

/// "1.24 (1.1 to 1.4)".
fn margin(comparison: &Comparison) -> String {
    let interval = comparison.interval.map_or_else(String::new, |it| {
        let (low, high) = (words::ratio(it.low), words::ratio(it.high));
        format!(" ({low} to {high})")
    });
    format!("{}{interval}", words::ratio(comparison.ratio))
}

fn grid(chart: &Chart, figure: &Figure, points: &[PlacedPoint<'_>]) -> String {
    let Some((best, worst)) = extremes(chart.metric, figure, points) else {
        return String::new();
    };
    let spot = |point: &PlacedPoint<'_>| {
        let y = figure.y.as_ref().map_or("", |axis| axis.name.as_str());
        let (label, unit) = words::factor(y);
        let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
        let row = figure.name_of(point.curve);
        format!(
            "{} and {} {row}{unit}",
            at(figure, point),
            label.to_lowercase()
        )
    };
    format!(
        "{}: {} {}; {} {}.",
        word(chart.metric),
        with_bounds(figure, best.estimate),
        spot(best),
        words::value(worst.value(figure), figure.value.unit),
        spot(worst)
    )
}

fn spectrum(figure: &Figure, points: &[PlacedPoint<'_>]) -> String {
    // The farthest percentile that most of the curves have.
    let tails = ["99.9 %", "99 %", "90 %", "50 %"];
    let of = |tail: &str| -> Vec<PlacedPoint<'_>> {
        let at_tail = points.iter().filter(|point| point.point.x_text == tail);
        at_tail.copied().collect()
    };
    let curves = of("50 %").len();
    let Some((tail, there)) = tails
        .into_iter()
        .map(|tail| (tail, of(tail)))
        .find(|(_, there)| !there.is_empty() && there.len() * 2 > curves)
    else {
        return "There are too few samples for percentiles.".to_owned();
    };
    let named = |point: &PlacedPoint<'_>| {
        let value = words::value(point.value(figure), figure.value.unit);
        match figure.name_of(point.curve) {
            "" => value,
            name => format!("{value} ({name})"),
        }
    };
    match extremes(Metric::P99Us, figure, &there) {
        Some((best, worst)) if there.len() > 1 => format!(
            "{tail} of the responses took less than {} at best, {} at worst.",
            named(best),
            named(worst)
        ),
        Some((best, _)) => format!("{tail} of the responses took less than {}.", named(best)),
        None => String::new(),
    }
}

fn time_series(figure: &Figure) -> String {
    let measured = figure.panels.iter().flat_map(|panel| &panel.curves);
    let unsteady: Vec<String> = measured
        .filter_map(|curve| {
            // The first second has the connections in it.
            let estimates = curve
                .points
                .iter()
                .skip(1)
                .filter_map(|it| it.estimate.as_ref());
            let values: Vec<f64> = estimates.map(|it| figure.middle(it)).collect();
            let quantile = |share| stats::quantile(&values, share);
            let (low, high) = (quantile(0.1)?, quantile(0.9)?);
            // The median of a server that answers nothing for most of the time is 0.
            let median = stats::median(&values).filter(|median| *median > 0.0);
            let middle = median.unwrap_or_else(|| stats::mean(&values));
            let spread = (high - low) / middle;
            (middle > 0.0 && spread > UNSTEADY).then(|| {
                let spread = words::value(spread, Some(crate::analysis::Unit::Share));
                match figure.name_of(curve) {
                    "" => spread,
                    name => format!("{name} ({spread})"),
                }
            })
        })
        .collect();
    if unsteady.is_empty() {
        return "Steady: eight of ten seconds lie within a tenth of the middle one.".to_owned();
    }
    format!(
        "Unsteady, by how far eight of ten seconds lie apart: {}.",
        words::list(&unsteady)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Measured, Run, Unit};
    use crate::journal::Level;
    use crate::report::{Axis, Report};

    fn by_second(name: &str, values: &[f64]) -> Figure {
        let points = (0_u32..).zip(values);
        let points = points.map(|(second, value)| (f64::from(second), *value));
        let curve = Curve::through(&points.collect::<Vec<_>>(), None);
        Figure {
            value: Axis {
                unit: Some(Unit::PerSecond),
                ..Axis::default()
            },
            legend: vec![name.to_owned()],
            ..Figure::of(ChartKind::TimeSeries, vec![curve])
        }
    }

    /// At the first place one server has a tenth more than the other, with a p of 0.0085; at all others both
    /// have the same, and less.
    #[test]
    fn the_place_of_the_best_is_chosen_too() {
        let found = |places: u32| {
            let mut run = Run::default();
            for place in 0..places {
                for (block, ratio) in (0..).zip([1.05, 1.06, 1.1, 1.15, 1.16]) {
                    let one = if place == 0 { 1000.0 * ratio } else { 500.0 };
                    let other = if place == 0 { 1000.0 } else { 500.0 };
                    for (server, value) in [("one", one), ("other", other)] {
                        let server = ("server".to_owned(), Level::from(server));
                        let bytes = Level::Number(f64::from(1 + place));
                        run.trials.push(Measured {
                            number: run.trials.len() as u32,
                            block,
                            series: "s".to_owned(),
                            levels: [server, ("file_bytes".to_owned(), bytes)].into(),
                            values: [(Metric::GoodPerS, value)].into(),
                            ..Measured::default()
                        });
                    }
                }
            }
            let chart = Chart {
                series: "s".to_owned(),
                metric: Metric::GoodPerS,
                x: "file_bytes".to_owned(),
                lines: vec!["server".to_owned()],
                ..Chart::default()
            };
            let report = Report::new(&run, &[chart], Vec::new());
            report.figures[0].finding.clone()
        };
        let (few, many) = (found(2), found(12));
        assert!(few.starts_with("Most: one, "), "{few}");
        assert!(many.starts_with("Not distinguishable: one, "), "{many}");
    }

    #[test]
    fn a_server_that_answers_no_more_is_not_steady() {
        let table: [(&[f64], bool); 4] = [
            (&[100.0, 200.0, 201.0, 199.0, 200.0, 200.0], true),
            (&[200.0, 200.0, 150.0, 100.0, 60.0, 20.0], false),
            (&[200.0, 200.0, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0], false),
            (&[0.0; 8], true),
        ];
        for (values, is_steady) in table {
            let text = time_series(&by_second("reactor", values));
            match is_steady {
                true => assert!(text.starts_with("Steady"), "{values:?}: {text}"),
                false => {
                    assert!(text.starts_with("Unsteady"), "{values:?}: {text}");
                    assert!(text.contains("reactor ("), "{values:?}: {text}");
                }
            }
        }
    }
}
