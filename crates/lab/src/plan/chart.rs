//! What a chart shows, as a plan says it under `[[chart]]` (docs/report.md).
//!
//! A chart takes the cells of one series and says which factors are drawn how. A factor that varies
//! and that it does not name tells lines apart, so that no two cells are ever drawn as one; of factors
//! that it names as `best_of` the best cell is drawn, and the note says which it is.

use std::collections::BTreeMap;

use loadline_base::choice;
use loadline_base::sorting::to_map;
use loadline_spec::ValueError;
use serde::{Deserialize, Serialize};

use crate::analysis::Metric;
use crate::journal::Level;

/// One chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chart {
    /// How it is drawn.
    pub kind: ChartKind,
    /// Its heading; empty: made of what it shows.
    pub title: String,
    /// What to look for, or which figure of a paper it is laid beside; may be empty.
    pub note: String,
    /// Name of the series whose cells it shows.
    pub series: String,
    /// What was measured: the height of lines and surfaces, the colour of heat maps. Spectra show
    /// `p50_us` (from due) or `service_p50_us` (from sent) over all percentiles.
    pub metric: Metric,
    /// The factor along the x axis; spectra and time series have none.
    pub x: String,
    /// The second factor of heat maps and surfaces.
    pub y: String,
    /// Factors whose levels are lines (or groups of bars) of their own.
    #[serde(deserialize_with = "one_or_several")]
    pub lines: Vec<String>,
    /// Factors whose levels are panels of their own, side by side.
    #[serde(deserialize_with = "one_or_several")]
    pub facets: Vec<String>,
    /// Factors of whose levels each point has the best alone: the envelope of their curves.
    #[serde(deserialize_with = "one_or_several")]
    pub best_of: Vec<String>,
    /// Only cells with one of these levels.
    #[serde(deserialize_with = "levels")]
    pub only: BTreeMap<String, Vec<Level>>,
    /// What is drawn around the middle of a cell's trials.
    pub spread: Spread,
    /// Whether the x axis is logarithmic.
    pub log_x: bool,
    /// Whether the axis of the metric is logarithmic.
    pub log_y: bool,
    /// Curves of others, laid beside: what a paper published.
    pub reference: Vec<Reference>,
}

choice! {
    /// How a chart is drawn.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    ChartKind {
        /// A line through the cells, with its spread.
        #[default]
        Lines "lines",
        /// Bars, for factors that are names.
        Bars "bars",
        /// Two factors, the metric as colour.
        HeatMap "heat_map",
        /// Two factors, the metric as height: it can be turned.
        Surface "surface",
        /// Latency over all percentiles.
        Spectrum "spectrum",
        /// The metric second by second.
        TimeSeries "time_series",
    }
}

impl ChartKind {
    /// Whether the cells lie on two factors.
    #[must_use]
    pub fn is_grid(self) -> bool {
        matches!(self, Self::HeatMap | Self::Surface)
    }
}

/// What is drawn for the trials of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The geometric mean, and the interval that holds the true one.
    #[default]
    Interval,
    /// The mean as a dot, and a bar from the smallest to the largest.
    MinMax,
}

/// A curve of others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Whose: "P5, Fig. 3, threads".
    pub label: String,
    /// Values of x and of the metric, in their units.
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// What does not fit together, as one line: what is wrong and what would be right. `factors` are
    /// those of the series, `server` among them.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self, factors: &[&str]) -> Result<(), ValueError> {
        let (kind, series) = (self.kind.name(), &self.series);
        let fail = |problem: String, right: String| Err(ValueError::new(problem, right));
        let needs = |needed| if needed { "needs" } else { "has no" };
        let needs_x = !matches!(self.kind, ChartKind::Spectrum | ChartKind::TimeSeries);
        if needs_x == self.x.is_empty() {
            let right = if needs_x { &factors.join(", ") } else { "none" };
            let problem = format!("a chart of kind {kind} {} x", needs(needs_x));
            return fail(problem, format!("one of {right}"));
        }
        let is_grid = self.kind.is_grid();
        if is_grid == self.y.is_empty() {
            return Err(ValueError::from(format!(
                "a chart of kind {kind} {} y; heat maps and surfaces have a second factor, others none",
                needs(is_grid)
            )));
        }
        let axes = [&self.x, &self.y].into_iter();
        let axes = axes.filter(|name| !name.is_empty());
        let named = axes.chain(&self.lines).chain(&self.facets);
        let named = named.chain(&self.best_of);
        let mut seen: Vec<&str> = Vec::new();
        for name in named.chain(self.only.keys()) {
            if !factors.contains(&name.as_str()) {
                let problem = format!("{name} is no factor of series {series}");
                return fail(problem, format!("one of {}", factors.join(", ")));
            }
            if seen.contains(&name.as_str()) && !self.only.contains_key(name) {
                return fail(format!("{name} is drawn twice"), "once".to_owned());
            }
            seen.push(name);
        }
        if is_grid && !self.lines.is_empty() {
            let problem = "heat maps and surfaces have no lines";
            return Err(ValueError::new(problem, "facets"));
        }
        let metric = self.metric.name();
        match self.kind {
            ChartKind::TimeSeries if !self.metric.per_second() => fail(
                format!("{metric} is not known second by second"),
                format!("one of {}", Metric::names(Metric::per_second)),
            ),
            ChartKind::Spectrum if self.metric.spectrum().is_none() => {
                let names = Metric::names(|metric| metric.spectrum().is_some());
                fail(format!("a spectrum of {metric}"), format!("one of {names}"))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a factor, or a list of names"
)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrSeveral::deserialize(from)? {
        OneOrSeveral::One(name) => vec![name],
        OneOrSeveral::Several(names) => names,
    })
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a level, or a list of levels")]
enum LevelOrLevels {
    One(Level),
    Several(Vec<Level>),
}

/// Levels by factor, each a list or one alone.
pub(super) fn levels<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Vec<Level>>, D::Error> {
    let read = BTreeMap::<String, LevelOrLevels>::deserialize(from)?;
    let several = |levels| match levels {
        LevelOrLevels::One(level) => vec![level],
        LevelOrLevels::Several(levels) => levels,
    };
    let read = read.into_iter();
    Ok(to_map(read.map(|(name, levels)| (name, several(levels)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Chart {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_chart_reads_as_people_write_it() {
        let chart = parsed(
            "kind = \"surface\"\nseries = \"s\"\nx = \"loops\"\ny = \"workers\"\n\
             facets = \"service_us\"\nonly = { cpus = \"split\", loops = [1, 2] }",
        );
        assert_eq!(chart.metric, Metric::CompletedPerS);
        assert_eq!(chart.facets, ["service_us"]);
        assert_eq!(chart.only["loops"].len(), 2);
        assert_eq!(
            chart.check(&["loops", "workers", "service_us", "cpus"]),
            Ok(())
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let factors = ["loops", "workers"];
        let fails = |text: &str, what: &str| {
            let message = parsed(text).check(&factors).unwrap_err();
            assert!(message.to_string().contains(what), "{message}");
        };
        fails("", "needs x");
        fails("x = \"loop\"", "loop is no factor");
        fails("kind = \"heat_map\"\nx = \"loops\"", "needs y");
        fails("x = \"loops\"\ny = \"workers\"", "has no y");
        fails("x = \"loops\"\nlines = \"loops\"", "drawn twice");
        fails("x = \"loops\"\nbest_of = \"loops\"", "drawn twice");
        fails("x = \"loops\"\nbest_of = [\"loop\"]", "loop is no factor");
        fails("kind = \"spectrum\"\nx = \"loops\"", "has no x");
        fails(
            "kind = \"time_series\"\nmetric = \"memory_bytes\"",
            "second by second",
        );
        fails("kind = \"spectrum\"", "a spectrum of completed_per_s");
        assert!(toml::from_str::<Chart>("colour = 1").is_err());
    }
}
