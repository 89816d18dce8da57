//! What a chart shows, as a plan says it under `[[chart]]` (docs/report.md).
//!
//! A chart takes the cells of one series and says which factors are drawn how. A factor that varies
//! and that it does not name tells lines apart, so that no two cells are ever drawn as one.

use std::collections::BTreeMap;

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

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// A line through the cells, with its spread.
    #[default]
    Lines,
    /// Bars, for factors that are names.
    Bars,
    /// Two factors, the metric as colour.
    HeatMap,
    /// Two factors, the metric as height: it can be turned.
    Surface,
    /// Latency over all percentiles.
    Spectrum,
    /// The metric second by second.
    TimeSeries,
}

impl ChartKind {
    /// As in a plan.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Bars => "bars",
            Self::HeatMap => "heat_map",
            Self::Surface => "surface",
            Self::Spectrum => "spectrum",
            Self::TimeSeries => "time_series",
        }
    }

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
        let needs_x = !matches!(self.kind, ChartKind::Spectrum | ChartKind::TimeSeries);
        if needs_x == self.x.is_empty() {
            let wrong = if needs_x { "needs" } else { "has no" };
            return Err(ValueError::from(format!(
                "a chart of kind {} {wrong} x; right would be one of {}",
                self.kind.name(),
                if needs_x {
                    factors.join(", ")
                } else {
                    "none".to_owned()
                }
            )));
        }
        if self.kind.is_grid() == self.y.is_empty() {
            return Err(ValueError::from(format!(
                "a chart of kind {} {} y; heat maps and surfaces have a second factor, others none",
                self.kind.name(),
                if self.kind.is_grid() {
                    "needs"
                } else {
                    "has no"
                }
            )));
        }
        let named = [&self.x, &self.y]
            .into_iter()
            .filter(|name| !name.is_empty())
            .chain(&self.lines)
            .chain(&self.facets);
        let mut seen: Vec<&str> = Vec::new();
        for name in named.chain(self.only.keys()) {
            if !factors.contains(&name.as_str()) {
                return Err(ValueError::from(format!(
                    "{name} is no factor of series {}; right would be one of {}",
                    self.series,
                    factors.join(", ")
                )));
            }
            if seen.contains(&name.as_str()) && !self.only.contains_key(name) {
                return Err(ValueError::from(format!(
                    "{name} is drawn twice; right would be once"
                )));
            }
            seen.push(name);
        }
        if self.kind.is_grid() && !self.lines.is_empty() {
            return Err(ValueError::from(
                "heat maps and surfaces have no lines; right would be facets",
            ));
        }
        match (self.kind, self.metric.per_second()) {
            (ChartKind::TimeSeries, false) => Err(ValueError::from(format!(
                "{} is not known second by second; right would be one of {}",
                self.metric.name(),
                Metric::names(Metric::per_second)
            ))),
            (ChartKind::Spectrum, _) if self.metric.spectrum().is_none() => {
                Err(ValueError::from(format!(
                    "a spectrum of {}; right would be one of {}",
                    self.metric.name(),
                    Metric::names(|metric| metric.spectrum().is_some())
                )))
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

fn levels<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Vec<Level>>, D::Error> {
    let read = BTreeMap::<String, LevelOrLevels>::deserialize(from)?;
    let several = |levels| match levels {
        LevelOrLevels::One(level) => vec![level],
        LevelOrLevels::Several(levels) => levels,
    };
    Ok(read
        .into_iter()
        .map(|(name, levels)| (name, several(levels)))
        .collect())
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
        fails("kind = \"spectrum\"\nx = \"loops\"", "has no x");
        fails(
            "kind = \"time_series\"\nmetric = \"memory_bytes\"",
            "second by second",
        );
        fails("kind = \"spectrum\"", "a spectrum of completed_per_s");
        assert!(toml::from_str::<Chart>("colour = 1").is_err());
    }
}
