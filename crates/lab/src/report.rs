//! The report of a run: what its trials come to, as one file that a browser opens from the disk.
//!
//! Nothing here measures or decides; it lays out what the journal says. A [`Report`] holds every
//! number that is shown. [`page`] makes the file of it, [`svg`] still pictures, `export` tables for
//! other programs, and `verify` compares what a file says with what the raw files say.
//!
//! ```text
//!   journal ── analysis: cells ──┐
//!   plan: [[chart]] ─────────────┴─► figures ──► page (HTML, script), still pictures, tables
//! ```

mod automatic;
mod claim;
mod environment;
pub mod export;
mod figure;
mod finding;
pub mod order;
pub mod page;
mod resolve;
mod scaling;
pub mod svg;
pub(crate) mod table;
pub mod words;

use loadline_base::sorting::sort;
use loadline_spec::ValueError;
use serde::{Deserialize, Serialize};

use crate::folded::{Folded, folded};

pub use claim::{Claim, ClaimMeasure, Undecided, Verdict};
pub use environment::{Environment, Fact, ServerSheet};
pub use figure::{Axis, Curve, DiscardedMark, Figure, Panel, Point, Scaling};
pub use words::shell;

use crate::plan::{Chart, ChartKind};
use order::Order;

use crate::analysis::{self, Measured, Metric, Noise, Run, Second};

/// Name and version of the form of the data in a report.
pub const SCHEMA: &str = "loadline-report/1";
/// Name of the report in a run's folder.
pub const REPORT: &str = "report.html";

/// Everything that a report says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the plan.
    pub name: String,
    /// What the run is about.
    pub title: String,
    /// The answer in words: what the first chart shows.
    pub answer: String,
    /// Charts, in the order of the plan.
    pub figures: Vec<Figure>,
    /// Charts of the plan of which the run has no trial, or that do not fit its series, with why.
    pub left_out: Vec<String>,
    /// Claims of others, judged.
    pub claims: Vec<Claim>,
    /// What A/A trials differed by.
    pub noise: Vec<Noise>,
    /// Trials that count.
    pub trials_counted: usize,
    /// Trials that do not, by number.
    #[serde(alias = "void")]
    pub discarded: Vec<DiscardedTrial>,
    /// Trials that count but for their times, by number.
    #[serde(alias = "times_void")]
    pub times_discarded: Vec<DiscardedTrial>,
    /// Trials that were disturbed and run again, once for each time: what came of them in the end
    /// counts.
    pub repeated: Vec<DiscardedTrial>,
    /// What is worth knowing about trials that count.
    pub notes: Vec<Folded>,
    /// Where it was measured, and how to measure it again.
    pub environment: Environment,
}

/// A report that cannot be written down: a number that JSON has no form for.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Its data.
    #[error("report: {0}")]
    Data(#[from] serde_json::Error),
    /// Its page.
    #[error("report: {0}")]
    Page(#[from] askama::Error),
}

/// A trial that does not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiscardedTrial {
    /// Its number.
    pub trial: u32,
    /// Its series.
    pub series: String,
    /// Its cell.
    pub cell: String,
    /// Its replicate.
    pub replicate: u32,
    /// Why.
    pub reasons: Vec<String>,
    /// Good responses in each second, the warm-up included; empty: there is no whole one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub good_per_s: Vec<f64>,
}

/// A value of a metric as people read it: "48,210/s".
#[must_use]
pub fn quantity(metric: Metric, value: f64) -> String {
    words::value(value, Some(metric.unit()))
}

impl Report {
    /// Of a run, with claims judged elsewhere. `charts` are those of the plan; with none, charts are
    /// chosen by what varies.
    #[must_use]
    pub fn new(run: &Run, charts: &[Chart], claims: Vec<Claim>) -> Self {
        let cells = analysis::cells(run);
        let order = Order::new(&run.head);
        let automatic;
        let charts = if charts.is_empty() {
            automatic = automatic::charts(&cells, &order);
            &automatic
        } else {
            charts
        };
        let notes = run.trials.iter().flat_map(|trial| &trial.notes);
        let mut report = Self {
            schema: SCHEMA.to_owned(),
            name: run.head.name.clone(),
            title: environment::title(&run.head),
            claims,
            noise: analysis::noise(run),
            trials_counted: run.trials.iter().filter(|trial| trial.counts()).count(),
            discarded: discarded(run.trials.iter(), |trial| &trial.discarded),
            times_discarded: discarded(run.trials.iter(), |trial| match trial.counts() {
                true => &trial.times_discarded,
                false => &[],
            }),
            repeated: discarded(run.repeated.iter(), |trial| &trial.discarded),
            notes: folded(notes.map(String::as_str)),
            environment: Environment::new(run),
            ..Self::default()
        };
        for chart in charts {
            match resolved(chart, &cells, &order, run.head.seed) {
                Ok(figure) => report.push(figure),
                Err(why) => report.left_out.push(why.to_string()),
            }
        }
        report.answer = match (none_counts(run), report.figures.first()) {
            (Some(why), _) => why,
            (None, Some(figure)) => figure.finding.clone(),
            (None, None) => "Nothing has been measured yet.".to_owned(),
        };
        report
    }

    /// Gives the figure a name that no other has.
    fn push(&mut self, mut figure: Figure) {
        let kind = match figure.kind {
            ChartKind::Lines | ChartKind::Bars => String::new(),
            other => other.name().to_owned(),
        };
        let parts = [figure.series.as_str(), &figure.value.name, &kind];
        let base = words::slug(&parts.join("-"));
        let mut id = base.clone();
        let mut number = 2;
        while self.figures.iter().any(|other| other.id == id) {
            id = format!("{base}-{number}");
            number += 1;
        }
        figure.id = id;
        self.figures.push(figure);
    }
}

/// A chart of a run.
///
/// # Errors
/// It does not fit its series, or the run has no trial of its cells, or these have nothing to draw.
pub fn figure(run: &Run, chart: &Chart) -> Result<Figure, ValueError> {
    let order = Order::new(&run.head);
    resolved(chart, &analysis::cells(run), &order, run.head.seed)
}

fn resolved(
    chart: &Chart,
    cells: &[analysis::Cell<'_>],
    order: &Order,
    seed: u64,
) -> Result<Figure, ValueError> {
    let named = || match chart.title.as_str() {
        "" => format!("a chart of series {}", chart.series),
        title => format!("“{title}”"),
    };
    let of_series = cells.iter().filter(|cell| cell.series == chart.series);
    let mut factors: Vec<&str> = of_series
        .flat_map(|cell| cell.levels.keys().map(String::as_str))
        .collect();
    sort(&mut factors);
    factors.dedup();
    if factors.is_empty() && !cells.iter().any(|cell| cell.series == chart.series) {
        return Err(ValueError::from("no trial of its series").at(named()));
    }
    chart.check(&factors).map_err(|why| why.at(named()))?;
    let figure = resolve::figure(chart, cells, order, seed)
        .ok_or_else(|| ValueError::from("no trial of its cells").at(named()))?;
    if figure.points().all(|(_, curve, _)| curve.is_reference) {
        let why = match chart.kind {
            ChartKind::TimeSeries => "no trial has a whole second with a value",
            ChartKind::Spectrum => "too few responses for a percentile",
            _ => "no trial has a value",
        };
        return Err(ValueError::from(why).at(named()));
    }
    Ok(figure)
}

/// Those that have a reason.
fn discarded<'r>(
    trials: impl Iterator<Item = &'r Measured>,
    why: fn(&Measured) -> &[String],
) -> Vec<DiscardedTrial> {
    let with_reasons = trials.filter(|trial| !why(trial).is_empty());
    let good = |second: &Second| second.values.get(&Metric::GoodPerS).copied();
    let discarded = with_reasons.map(|trial| DiscardedTrial {
        trial: trial.number,
        series: trial.series.clone(),
        cell: words::levels(&trial.levels),
        replicate: trial.replicate,
        reasons: why(trial).to_vec(),
        good_per_s: trial.seconds.iter().filter_map(good).collect(),
    });
    discarded.collect()
}

/// That trials were run and none counts, and why the most of them do not.
fn none_counts(run: &Run) -> Option<String> {
    if run.trials.is_empty() || run.trials.iter().any(Measured::counts) {
        return None;
    }
    let trials = run.trials.iter();
    let reasons = trials.filter_map(|trial| trial.discarded.first());
    let folded = folded(reasons.map(String::as_str));
    let most = folded.iter().max_by_key(|one| one.count)?;
    Some(format!(
        "{}, none counts: {}",
        words::count(run.trials.len(), "trial"),
        most.text
    ))
}
