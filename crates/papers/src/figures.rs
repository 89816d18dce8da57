//! The figures of the papers, redrawn: `lab/papers/figures.toml` says what each shows.
//!
//! A figure is a stack of charts. The first has our trials, beside the published points if there are any;
//! both are then parts of their own largest value, since what a machine carries says nothing of another.
//! Below it are a ratio and, for throughput, what server and client used of their CPUs. Of several grids
//! the note says instead where the client was the limit.

mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use loadline_lab::analysis::{Metric, Run};
use loadline_lab::journal::Level;
#[cfg(test)]
use loadline_lab::journal::Levels;
use loadline_lab::plan::Chart;
use loadline_lab::report::svg::{Band, BandAxis, StackPart, stack};
use loadline_lab::report::{self, Figure, words};
use loadline_record::from_json;
use serde::Deserialize;

use crate::packed::packed;
use parts::Trials;

/// By paper. A test sees to it that the file can be read.
static FIGURES: LazyLock<BTreeMap<String, Vec<PaperFigure>>> =
    LazyLock::new(|| from_json(packed!("figures.json").text().as_bytes()).unwrap_or_default());

/// A figure of a paper.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PaperFigure {
    /// As the paper names it.
    name: String,
    /// What there is to say about it.
    note: String,
    chart: Chart,
    published: Vec<PublishedCurve>,
    /// The line, or the column of a grid, that the ratio is over.
    over: String,
    /// Its points are not in the paper's text.
    lost: bool,
    /// The paper has no such figure.
    not_in_paper: bool,
    bands: Vec<Claimed>,
    /// Whether the note says where each line has its most.
    optimum: bool,
    /// Whether the page has a link in place of the picture.
    linked: bool,
    /// Why there is no picture of it; empty: there is one.
    not_drawn: String,
}

/// A curve that the paper has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedCurve {
    label: String,
    /// The line of ours that it is compared with; empty in a chart of several lines: none.
    line: String,
    rows: Vec<PublishedPoints>,
}

/// Rows of the table of published numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedPoints {
    server: String,
    metric: String,
    /// Where they lie; `None`: at their number of connections.
    at: Option<Level>,
}

/// What the text claims where the figure is lost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claimed {
    on: ClaimedOn,
    from: f64,
    to: f64,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClaimedOn {
    X,
    Value,
    Ratio,
}

/// A figure that was redrawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Redrawn {
    /// "Fig. 25".
    pub(crate) name: String,
    /// "Fig. 25: three models by service time".
    pub(crate) title: String,
    /// The picture.
    pub(crate) svg: String,
    /// How to read it: to what it is normalised, or that the points are lost.
    pub(crate) note: String,
    /// What it shows, in words.
    pub(crate) finding: String,
    /// Whether the page has a link in place of the picture.
    pub(crate) is_linked: bool,
}

/// All figures of a run's paper: each, or why it is not drawn.
pub(crate) fn of(run: &Run) -> Vec<Result<Redrawn, String>> {
    let figures = FIGURES.get(&run.head.name).into_iter().flatten();
    figures.map(|figure| figure.redrawn(run)).collect()
}

/// Whether a figure of a paper has this cell.
#[cfg(test)]
pub(crate) fn draws(paper: &str, series: &str, levels: &Levels) -> bool {
    let mut figures = FIGURES.get(paper).into_iter().flatten();
    figures.any(|PaperFigure { chart, .. }| {
        let mut only = chart.only.iter();
        let has_one = |(factor, some): (&String, &Vec<Level>)| {
            levels.get(factor).is_some_and(|level| some.contains(level))
        };
        chart.series == series && only.all(has_one)
    })
}

impl PaperFigure {
    fn redrawn(&self, run: &Run) -> Result<Redrawn, String> {
        if !self.not_drawn.is_empty() {
            return Err(format!("{}: {}", self.name, self.not_drawn));
        }
        let figure = report::figure(run, &self.chart);
        let mut figure = figure.map_err(|why| format!("{}: {why}", self.name))?;
        if !figure.points().any(|(_, _, it)| it.estimate.is_some()) {
            return Err(format!("{}: no trial that counts has it", self.name));
        }
        let title = format!("{}: {}", self.name, figure.title);
        let finding = figure.finding.clone();
        let trials = Trials::of(run);
        let mut notes = vec![figure.note.clone(), self.note.clone()];
        if self.optimum {
            notes.push(parts::optima(&figure));
        }
        let is_throughput = matches!(
            self.chart.metric,
            Metric::GoodPerS | Metric::CompletedPerS | Metric::BytesPerS
        );
        let has_grids = figure.kind.is_grid() && figure.panels.len() > 1;
        let mut cpu = Vec::new();
        match (is_throughput, has_grids) {
            // Two more grids for each would make it several times as high as a screen.
            (true, true) => notes.push(parts::client_limits(&figure)),
            (true, false) => cpu = trials.cpu(&figure),
            (false, _) => {}
        }
        figure.title = words::capital(&figure.value.label.to_lowercase());
        let mut ratio = None;
        if !self.published.is_empty() {
            let (said, over_published) = parts::beside(&mut figure, self, &run.head.name);
            notes.push(said);
            ratio = over_published;
        } else if !self.over.is_empty() {
            ratio = trials.ratio(&figure, self.chart.metric, &self.over);
        }
        if self.lost {
            notes.push(self.lost_note());
        }
        if self.not_in_paper {
            notes.push("The paper has no such figure.".to_owned());
        }
        notes.retain(|note| !note.is_empty());
        let note = notes.join(" ");
        let about = format!("{finding} {note}");
        Ok(Redrawn {
            name: self.name.clone(),
            svg: stack(&title, &about, &self.stacked(figure, ratio, cpu)),
            title,
            note,
            finding,
            is_linked: self.linked,
        })
    }

    /// The charts, one below the other.
    fn stacked(&self, figure: Figure, ratio: Option<Figure>, cpu: Vec<Figure>) -> Vec<StackPart> {
        let mut stacked = vec![StackPart {
            bands: self.bands_on(&[ClaimedOn::X, ClaimedOn::Value]),
            figure,
        }];
        if let Some(figure) = ratio {
            let mut bands = self.bands_on(&[ClaimedOn::X, ClaimedOn::Ratio]);
            bands
                .iter_mut()
                .filter(|it| it.on == BandAxis::X)
                .for_each(|it| it.text.clear());
            bands.push(band(BandAxis::Value, (1.0, 1.0), ""));
            stacked.push(StackPart { figure, bands });
        }
        stacked.extend(cpu.into_iter().map(|figure| StackPart {
            figure,
            bands: Vec::new(),
        }));
        stacked
    }

    fn lost_note(&self) -> String {
        let lost = "The paper's points are lost: its figures are not in its text.";
        let claimed = self.bands.iter().map(Claimed::said);
        let claimed = claimed.collect::<Vec<_>>().join("; ");
        match claimed.is_empty() {
            true => format!("{lost} Its text has no number that could stand in their place."),
            false => format!("{lost} What its text says stands in their place: {claimed}."),
        }
    }

    fn bands_on(&self, on: &[ClaimedOn]) -> Vec<Band> {
        let bands = self.bands.iter().filter(|it| on.contains(&it.on));
        let bands = bands.map(|it| {
            let axis = match it.on {
                ClaimedOn::X => BandAxis::X,
                ClaimedOn::Value | ClaimedOn::Ratio => BandAxis::Value,
            };
            band(axis, (it.from, it.to), &it.said())
        });
        bands.collect()
    }
}

impl Claimed {
    /// "threads bend: 1,200 to 1,300".
    fn said(&self) -> String {
        let [from, to] = [self.from, self.to].map(|end| words::digits(end, 4));
        match from == to {
            true => format!("{}: {from}", self.text),
            false => format!("{}: {from} to {to}", self.text),
        }
    }
}

fn band(on: BandAxis, (from, to): (f64, f64), text: &str) -> Band {
    Band {
        on,
        from,
        to,
        text: text.to_owned(),
    }
}
