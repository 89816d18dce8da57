//! The charts that a redrawn figure is made of.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use loadline_lab::analysis::{Estimate, Measured, Metric, Run, Unit};
use loadline_lab::journal::Level;
use loadline_lab::plan::{ChartKind, Spread};
use loadline_lab::report::{Axis, Curve, Figure, Panel, Point, words};

use super::{PaperFigure, PublishedCurve};
use crate::published::{PublishedRow, ROWS};

/// The trials of a run, by number.
pub(super) struct Trials<'r>(BTreeMap<u32, &'r Measured>);

impl<'r> Trials<'r> {
    pub(super) fn of(run: &'r Run) -> Self {
        Self(to_map(run.trials.iter().map(|trial| (trial.number, trial))))
    }

    fn values(&self, point: &Point, metric: Metric) -> Vec<(u32, f64)> {
        let trials = point.trials.iter().filter_map(|number| self.0.get(number));
        trials
            .filter_map(|trial| Some((trial.block, trial.value(metric)?)))
            .collect()
    }

    /// What server and client used of their CPUs, in the trials that are drawn.
    pub(super) fn cpu(&self, figure: &Figure) -> Vec<Figure> {
        let of_metric = |(metric, title): (Metric, &str)| {
            let axis = Axis {
                label: "CPUs".to_owned(),
                ..Axis::default()
            };
            let chart = redrawn(figure, title, axis, &|_, _, point| {
                let values = self.values(point, metric);
                Estimate::new(
                    &values
                        .into_iter()
                        .map(|(_, value)| value)
                        .collect::<Vec<_>>(),
                )
            });
            drawn(chart)
        };
        [
            (Metric::CpuShare, "CPUs that the server kept busy"),
            (Metric::ClientCpuShare, "CPUs that the client kept busy"),
        ]
        .into_iter()
        .filter_map(of_metric)
        .collect()
    }

    /// Every line over one of them, or every column of a grid over one, within blocks; `None`: there is
    /// no pair.
    pub(super) fn ratio(&self, figure: &Figure, metric: Metric, over: &str) -> Option<Figure> {
        let is_grid = figure.kind.is_grid();
        let is_base = |curve: &Curve, point: &Point| match is_grid {
            true => point.x_text == over,
            false => figure.name_of(curve) == over,
        };
        let what = match is_grid {
            true => format!(
                "Over {} {over}, within blocks",
                figure.x.label.to_lowercase()
            ),
            false => format!("Over {over}, within blocks"),
        };
        let axis = Axis {
            label: "Ratio".to_owned(),
            log: true,
            ..Axis::default()
        };
        let chart = redrawn(figure, &what, axis, &|panel, curve, point| {
            if is_base(curve, point) && !is_grid {
                return None;
            }
            let others = panel.curves.iter().filter(|it| !is_grid || it.y == curve.y);
            let mut others = others.flat_map(|it| it.points.iter().map(move |point| (it, point)));
            let (_, base) =
                others.find(|(of, it)| is_base(of, it) && (is_grid || it.x == point.x))?;
            let base: BTreeMap<u32, f64> = to_map(self.values(base, metric));
            let pairs = self.values(point, metric).into_iter();
            let ratios = pairs.filter_map(|(block, value)| Some(value / base.get(&block)?));
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            Estimate::new(&ratios)
        });
        drawn(chart)
    }
}

/// If it has a point.
fn drawn(figure: Figure) -> Option<Figure> {
    let is_empty = figure.points().next().is_none();
    (!is_empty).then_some(figure)
}

/// The same cells with other values; those without are left out.
fn redrawn(
    figure: &Figure,
    title: &str,
    value: Axis,
    estimate: &dyn Fn(&Panel, &Curve, &Point) -> Option<Estimate>,
) -> Figure {
    let of_curve = |panel: &Panel, curve: &Curve| {
        let points = curve.points.iter().filter_map(|point| {
            Some(Point {
                estimate: Some(estimate(panel, curve, point)?),
                discarded: Vec::new(),
                ..point.clone()
            })
        });
        Curve {
            points: points.collect(),
            ..curve.clone()
        }
    };
    let panels = figure.panels.iter().map(|panel| {
        let curves = panel.curves.iter().map(|curve| of_curve(panel, curve));
        Panel {
            title: panel.title.clone(),
            curves: curves.filter(|curve| !curve.points.is_empty()).collect(),
        }
    });
    Figure {
        title: title.to_owned(),
        value,
        spread: Spread::Interval,
        panels: panels.collect(),
        ..figure.clone()
    }
}

/// In how many cells of each grid the client was the limit, so that the server may carry more.
pub(super) fn client_limits(figure: &Figure) -> String {
    let limited = figure.panels.iter().filter_map(|panel| {
        let points = || panel.curves.iter().flat_map(|curve| &curve.points);
        let count = points().filter(|point| point.room.is_some()).count();
        let title = panel.title.to_lowercase();
        (count > 0).then(|| format!("{count} of {} ({title})", points().count()))
    });
    let limited: Vec<String> = limited.collect();
    match limited.is_empty() {
        true => "The client was the limit in none of the cells.".to_owned(),
        false => format!(
            "Cells in which the client was the limit in some trials, so that the server may carry \
             more: {}.",
            words::list(&limited)
        ),
    }
}

/// Where each line has its most: "Workers with the most: 1 (service time 0 µs) and 8 (service time 200 µs)."
pub(super) fn optima(figure: &Figure) -> String {
    let curves = figure.panels.iter().flat_map(|panel| &panel.curves);
    let optima = curves.filter_map(|curve| {
        let points = curve.points.iter();
        let points = points.filter_map(|it| Some((it, figure.middle(it.estimate.as_ref()?))));
        let (most, _) = points.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some(format!("{} ({})", most.x_text, figure.name_of(curve)))
    });
    let optima = words::list(&optima.collect::<Vec<_>>());
    format!("{} with the most: {optima}.", figure.x.label)
}

/// Lays the published curves beside ours, each side as parts of its largest value: what was done, and ours
/// over theirs.
pub(super) fn beside(
    figure: &mut Figure,
    about: &PaperFigure,
    paper: &str,
) -> (String, Option<Figure>) {
    let middles = figure
        .points()
        .filter_map(|(_, _, point)| point.estimate.as_ref());
    let ours = middles.map(|it| figure.middle(it)).fold(0.0, f64::max);
    let curves: Vec<(&PublishedCurve, Vec<(f64, &PublishedRow)>)> = about
        .published
        .iter()
        .map(|curve| (curve, rows(curve, paper, &figure.x)))
        .collect();
    // Means with means: the smallest and largest that a paper has, too, have no line of ours.
    let is_paired = |curve: &PublishedCurve| figure.legend.contains(&curve.line);
    let paired = curves.iter().filter(|(curve, _)| is_paired(curve));
    let largest = paired.flat_map(|(_, rows)| rows).map(|(_, row)| *row);
    let largest = largest.max_by(|one, other| one.value.total_cmp(&other.value));
    let Some(largest) = largest.filter(|row| row.value > 0.0 && ours > 0.0) else {
        return (String::new(), None);
    };
    let said = format!(
        "Both sides are drawn as parts of their own largest value: ours of {}, the paper's of {} {}.",
        words::value(ours, figure.value.unit),
        words::digits(largest.value, 4),
        largest.unit
    );
    let theirs = largest.value;
    normalise(figure, ours);
    let ratio = over_published(figure, &curves, theirs);
    for name in figure.legend.iter_mut().filter(|name| name.is_empty()) {
        "measured here".clone_into(name);
    }
    for (curve, rows) in &curves {
        let legend = figure.legend.len();
        figure.legend.push(curve.label.clone());
        let points = rows.iter().map(|(x, row)| Point {
            x: *x,
            estimate: Estimate::new(&[row.value / theirs]),
            ..Point::default()
        });
        let points: Vec<Point> = points.collect();
        for panel in &mut figure.panels {
            panel.curves.push(Curve {
                legend,
                is_reference: true,
                points: points.clone(),
                ..Curve::default()
            });
        }
    }
    (said, ratio)
}

/// Rows of a curve, each with where it lies.
fn rows<'p>(curve: &PublishedCurve, paper: &str, x: &Axis) -> Vec<(f64, &'p PublishedRow)> {
    let found = curve.rows.iter().flat_map(|points| {
        let is_of = move |row: &&PublishedRow| {
            row.paper == paper && row.server == points.server && row.metric == points.metric
        };
        ROWS.iter().filter(is_of).filter_map(move |row| {
            let at = match &points.at {
                Some(Level::Text(name)) => x.names.iter().position(|it| it == name)? as f64,
                Some(Level::Number(number)) => *number,
                None => row.connections?,
            };
            Some((at, row))
        })
    });
    found.collect()
}

fn normalise(figure: &mut Figure, most: f64) {
    let curves = figure.panels.iter_mut().flat_map(|panel| &mut panel.curves);
    for point in curves.flat_map(|curve| &mut curve.points) {
        if let Some(estimate) = &mut point.estimate {
            *estimate = scaled(estimate, 1.0 / most);
        }
        for mark in &mut point.discarded {
            mark.value = mark.value.map(|value| value / most);
        }
        point.room = point.room.map(|room| room / most);
    }
    figure.value.label = "Part of the largest".to_owned();
    figure.value.unit = Some(Unit::Share);
    figure.value.divisor = 0.01;
    "%".clone_into(&mut figure.value.divided_unit);
}

fn scaled(of: &Estimate, factor: f64) -> Estimate {
    let mut interval = of.interval;
    if let Some(interval) = &mut interval {
        interval.low *= factor;
        interval.high *= factor;
    }
    Estimate {
        count: of.count,
        center: of.center * factor,
        interval,
        mean: of.mean * factor,
        min: of.min * factor,
        max: of.max * factor,
    }
}

/// Ours over what was published at the same place, both normalised. Over 0 there is no ratio.
fn over_published(
    figure: &Figure,
    curves: &[(&PublishedCurve, Vec<(f64, &PublishedRow)>)],
    theirs: f64,
) -> Option<Figure> {
    let axis = Axis {
        label: "Ratio".to_owned(),
        log: true,
        ..Axis::default()
    };
    let title = "Ours over the paper's, as parts of the largest";
    let mut ratio = redrawn(figure, title, axis, &|_, curve, point| {
        let name = figure.name_of(curve);
        let (_, rows) = curves.iter().find(|(of, _)| of.line == name)?;
        let (_, row) = rows
            .iter()
            .find(|(x, row)| *x == point.x && row.value > 0.0)?;
        let factor = theirs / row.value;
        Some(scaled(point.estimate.as_ref()?, factor)).filter(|it| it.center > 0.0)
    });
    if figure.kind == ChartKind::Bars {
        // Marks instead of bars, whose length says nothing on such an axis. Names are in no order: no line joins them.
        ratio.kind = ChartKind::Lines;
        for panel in &mut ratio.panels {
            let curves = std::mem::take(&mut panel.curves).into_iter();
            let single = curves.flat_map(|curve| {
                let points = curve.points.clone().into_iter();
                points.map(move |point| Curve {
                    points: vec![point],
                    ..curve.clone()
                })
            });
            panel.curves = single.collect();
        }
    }
    drawn(ratio)
}
