//! A chart with its data: everything that is drawn, listed and exported, in one form.
//!
//! The page's script, the still pictures, the tables and the files to download are all made of this,
//! so they cannot say different things.

use loadline_capacity::usl::Usl;
use serde::{Deserialize, Serialize};

use super::words;
use crate::analysis::{Estimate, Unit};
use crate::plan::{ChartKind, Spread};

/// One chart, ready to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Unique in the report, fit for a file name and a fragment: "models-completed-per-s".
    pub id: String,
    /// How it is drawn.
    pub kind: ChartKind,
    /// What is drawn around the middle of a cell.
    pub spread: Spread,
    /// Name of the series of its cells.
    pub series: String,
    /// Its heading.
    pub title: String,
    /// What the plan says about it; may be empty.
    pub note: String,
    /// What it shows, in a sentence: also its alternative in text.
    pub finding: String,
    /// From left to right.
    pub x: Axis,
    /// The second factor of heat maps and surfaces.
    pub y: Option<Axis>,
    /// What was measured.
    pub value: Axis,
    /// Names of the curves, in the order of their colours, the same in all panels.
    pub legend: Vec<String>,
    /// Side by side; at least one.
    pub panels: Vec<Panel>,
    /// The scalability law of its curves, where they are throughput over a number of what works at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<Scaling>,
}

#[cfg(test)]
impl Figure {
    /// A chart of curves, of which nothing else is known.
    pub(in crate::report) fn of(kind: ChartKind, curves: Vec<Curve>) -> Self {
        let panel = Panel {
            curves,
            ..Panel::default()
        };
        Self {
            kind,
            panels: vec![panel],
            ..Self::default()
        }
    }
}

/// One of the axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Of the factor or the metric, as in the plan.
    pub name: String,
    /// In words.
    pub label: String,
    /// Of its numbers; none for names and factors without one.
    pub unit: Option<Unit>,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Names at the positions 0, 1, 2 ...; empty: the axis has numbers.
    pub names: Vec<String>,
    /// What values are divided by where they are drawn.
    pub divisor: f64,
    /// What that leaves: "ms"; empty for plain numbers.
    pub divided_unit: String,
}

impl Default for Axis {
    fn default() -> Self {
        Self {
            name: String::new(),
            label: String::new(),
            unit: None,
            log: false,
            names: Vec::new(),
            divisor: 1.0,
            divided_unit: String::new(),
        }
    }
}

impl Axis {
    /// What stands beside the axis.
    #[must_use]
    pub fn title(&self) -> String {
        match self.divided_unit.as_str() {
            "" => self.label.clone(),
            unit => format!("{} ({unit})", self.label),
        }
    }

    /// Chooses how values up to `most` are drawn: a form of the unit is worth it from two of it on.
    pub(super) fn divide(&mut self, most: f64) {
        let (divisor, unit) = self.unit.map_or((1.0, ""), |unit| unit.scale(most / 2.0));
        self.divisor = divisor;
        self.divided_unit = unit.to_owned();
    }
}

/// Axes with their curves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What distinguishes it; empty if it is the only one.
    pub title: String,
    /// In the order of the legend; the rows of a grid.
    pub curves: Vec<Curve>,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Index into the figure's legend.
    pub legend: usize,
    /// Where the row lies on the second factor; 0 in charts that are no grid.
    pub y: f64,
    /// Measured by others: it has values, but no trials.
    pub is_reference: bool,
    /// From left to right.
    pub points: Vec<Point>,
}

impl Curve {
    /// Through these values, each with its x before it.
    pub(super) fn through(points: &[(f64, f64)], x_unit: Option<Unit>) -> Self {
        let points = points.iter().map(|(x, value)| Point {
            x: *x,
            x_text: words::value(*x, x_unit),
            estimate: Estimate::new(&[*value]),
            ..Point::default()
        });
        Self {
            points: points.collect(),
            ..Self::default()
        }
    }
}

/// What the trials of a cell come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where it lies.
    pub x: f64,
    /// The same as people read it.
    pub x_text: String,
    /// What is drawn; `None`: no trial counts.
    pub estimate: Option<Estimate>,
    /// Where the client was the limit in some of its trials: how far the truth may be from the
    /// estimate, by what the server's CPU time left room for. Throughput is up to that, times down to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<f64>,
    /// Numbers of the trials in it.
    pub trials: Vec<u32>,
    /// Trials that do not count.
    #[serde(alias = "void")]
    pub discarded: Vec<DiscardedMark>,
}

/// A trial that does not count, and is shown struck out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiscardedMark {
    /// Its number.
    pub trial: u32,
    /// What it would have said, if anything.
    pub value: Option<f64>,
    /// Why it does not count.
    pub reasons: Vec<String>,
}

impl Point {
    /// The sign before an estimate that stands for a range: the least, or the most.
    #[must_use]
    pub fn sign(&self) -> &'static str {
        match (self.room, self.estimate) {
            (Some(room), Some(estimate)) if room > estimate.center => "≥ ",
            (Some(_), Some(_)) => "≤ ",
            _ => "",
        }
    }
}

impl Figure {
    /// Every point with its panel and curve.
    pub fn points(&self) -> impl Iterator<Item = (&Panel, &Curve, &Point)> {
        let all = self
            .panels
            .iter()
            .flat_map(|panel| panel.curves.iter().map(move |curve| (panel, curve)));
        all.flat_map(|(panel, curve)| curve.points.iter().map(move |it| (panel, curve, it)))
    }

    /// The smallest and the largest of what is drawn along the value's axis, bounds and discarded trials
    /// included; `None`: nothing is.
    #[must_use]
    pub fn value_range(&self) -> Option<(f64, f64)> {
        let values = self.points().flat_map(|(_, _, point)| {
            let estimate = point.estimate.as_ref();
            let bounds = estimate.and_then(|it| self.bounds(it));
            let drawn = estimate.map(|it| self.middle(it));
            let discarded = point.discarded.iter().filter_map(|mark| mark.value);
            let bounds = bounds.into_iter().flat_map(|(low, high)| [low, high]);
            drawn.into_iter().chain(bounds).chain(discarded)
        });
        values.fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        })
    }

    /// Whether some of its points stand for a range, since the client was the limit.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.points().any(|(_, _, point)| point.room.is_some())
    }

    /// The value that is drawn for an estimate.
    #[must_use]
    pub fn middle(&self, estimate: &Estimate) -> f64 {
        match self.spread {
            Spread::Interval => estimate.center,
            Spread::MinMax => estimate.mean,
        }
    }

    /// What is drawn around it, if anything.
    #[must_use]
    pub fn bounds(&self, estimate: &Estimate) -> Option<(f64, f64)> {
        match self.spread {
            Spread::Interval => estimate.interval.map(|it| (it.low, it.high)),
            Spread::MinMax => (estimate.count > 1).then_some((estimate.min, estimate.max)),
        }
    }

    /// Whether a curve of the legend was measured by others.
    #[must_use]
    pub fn is_reference(&self, legend: usize) -> bool {
        let is_it = |curve: &Curve| curve.is_reference && curve.legend == legend;
        self.points().any(|(_, curve, _)| is_it(curve))
    }

    /// Whether its curves have names.
    #[must_use]
    pub fn has_legend(&self) -> bool {
        !self.kind.is_grid() && self.legend.iter().any(|name| !name.is_empty())
    }

    /// Name of the row or line of a curve.
    #[must_use]
    pub fn name_of(&self, curve: &Curve) -> &str {
        self.legend.get(curve.legend).map_or("", String::as_str)
    }
}

impl Scaling {
    /// Its panel and its curve.
    #[must_use]
    pub fn name(&self) -> String {
        let names = [self.panel.as_str(), self.curve.as_str()];
        let names = names.into_iter().filter(|name| !name.is_empty());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// The law of one curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The panel that it is in; empty if there is one.
    pub panel: String,
    /// The curve; empty if there is one.
    pub curve: String,
    /// What was fitted; `None`: nothing could be.
    pub law: Option<Usl>,
    /// What it says of a peak, or why there is no fit.
    pub says: String,
}
