//! `[[goal]]` of a plan: a bound that one of its cells is held to, or each of several.

use std::collections::BTreeMap;

use loadline_spec::toml_file::{Located, at};
use serde::Deserialize;
use toml::Spanned;

use super::Series;
use super::chart;
use super::series::factor_names;
use crate::analysis::Metric;
use crate::journal::{Level, Levels};

/// A bound on a metric of one cell, or on the ratio of one cell to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What it says, in words.
    pub name: String,
    /// What is bounded.
    pub metric: Metric,
    /// The cell.
    pub of: CellLevels,
    /// The cell that it is compared with; `None`: the metric itself is bounded.
    pub over: Option<CellLevels>,
    /// The bound.
    pub bound: Bound,
}

/// A cell, by the levels that tell it from the others of its series.
#[derive(Clone, Debug, PartialEq)]
pub struct CellLevels {
    /// The series.
    pub series: String,
    /// Some of its levels.
    pub levels: Levels,
}

/// Which values meet a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This one and those above.
    AtLeast(f64),
    /// This one and those below.
    AtMost(f64),
}

impl Bound {
    /// Whether a value meets it.
    #[must_use]
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GoalTable {
    name: String,
    series: Spanned<String>,
    metric: Metric,
    of: Spanned<Of>,
    over: Option<Spanned<Levels>>,
    over_series: Option<Spanned<String>>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// Levels of a cell; of a list of them, each in turn.
#[derive(Deserialize)]
struct Of(#[serde(deserialize_with = "chart::levels")] BTreeMap<String, Vec<Level>>);

impl Of {
    /// The levels of each cell.
    fn cells(&self) -> Vec<Levels> {
        let mut cells = vec![Levels::new()];
        for (factor, levels) in &self.0 {
            let with = |cell: &Levels| {
                let cell = cell.clone();
                levels.iter().map(move |level| {
                    let mut cell = cell.clone();
                    cell.insert(factor.clone(), level.clone());
                    cell
                })
            };
            cells = cells.iter().flat_map(with).collect();
        }
        cells
    }
}

impl GoalTable {
    /// A goal for each cell, of series and factors that are there.
    pub(super) fn into_goals(self, series: &[Series]) -> Located<Vec<Goal>> {
        for (factor, levels) in &self.of.get_ref().0 {
            if levels.len() > 1 && !self.name.contains(&format!("{{{factor}}}")) {
                return Err(at(&self.of)(format!(
                    "goal {}: several levels of {factor}; right would be a name with {{{factor}}} in it",
                    self.name
                )));
            }
        }
        let cells = self.of.get_ref().cells().into_iter();
        cells.map(|of| self.goal(of, series)).collect()
    }

    fn goal(&self, of: Levels, series: &[Series]) -> Located<Goal> {
        let name = of.iter().fold(self.name.clone(), |name, (factor, level)| {
            name.replace(&format!("{{{factor}}}"), &level.to_string())
        });
        let bound = match (self.at_least, self.at_most) {
            (Some(least), None) => Bound::AtLeast(least),
            (None, Some(most)) => Bound::AtMost(most),
            _ => {
                return Err(at(&self.series)(format!(
                    "goal {}: right would be one bound: at_least = 0.95 or at_most = 2",
                    self.name
                )));
            }
        };
        let of = CellLevels {
            levels: levels(&of, &self.of, &self.series, series)?,
            series: self.series.get_ref().clone(),
        };
        let over = match (&self.over, &self.over_series) {
            (None, Some(place)) => {
                return Err(at(place)(
                    "over_series goes with over = { server = \"ceil-epoll\" }".to_owned(),
                ));
            }
            (None, None) => None,
            (Some(over), None) => {
                let mut beside = of.clone();
                let over = levels(over.get_ref(), over, &self.series, series)?;
                beside.levels.extend(over);
                Some(beside)
            }
            (Some(over), Some(of_series)) => Some(CellLevels {
                levels: levels(over.get_ref(), over, of_series, series)?,
                series: of_series.get_ref().clone(),
            }),
        };
        Ok(Goal {
            name,
            metric: self.metric,
            of,
            over,
            bound,
        })
    }
}

/// Levels of factors that a series has, or another one of its name.
fn levels<T>(
    wanted: &Levels,
    place: &Spanned<T>,
    of: &Spanned<String>,
    series: &[Series],
) -> Located<Levels> {
    let name = of.get_ref();
    let known = factor_names(series, name);
    if known.is_empty() {
        return Err(at(of)(format!("goal: no series `{name}`")));
    }
    match wanted.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(wanted.clone()),
        Some(factor) => Err(at(place)(format!(
            "goal: series {name} has no factor `{factor}`; right would be one of {}",
            known.join(", ")
        ))),
    }
}
