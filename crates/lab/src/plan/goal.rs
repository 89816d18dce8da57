//! `[[goal]]` of a plan: a bound that one of its cells is held to.

use serde::Deserialize;
use toml::Spanned;

use super::Series;
use super::located::{Located, at};
use crate::analysis::Metric;
use crate::journal::Levels;

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
    of: Spanned<Levels>,
    over: Option<Spanned<Levels>>,
    over_series: Option<Spanned<String>>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl GoalTable {
    /// The goal, of series and factors that are there.
    pub(super) fn into_goal(self, series: &[Series]) -> Located<Goal> {
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
            levels: levels(&self.of, &self.series, series)?,
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
                beside.levels.extend(levels(over, &self.series, series)?);
                Some(beside)
            }
            (Some(over), Some(of_series)) => Some(CellLevels {
                levels: levels(over, of_series, series)?,
                series: of_series.get_ref().clone(),
            }),
        };
        Ok(Goal {
            name: self.name,
            metric: self.metric,
            of,
            over,
            bound,
        })
    }
}

/// Levels of factors that a series has.
fn levels(table: &Spanned<Levels>, of: &Spanned<String>, series: &[Series]) -> Located<Levels> {
    let one = series.iter().find(|one| one.name == *of.get_ref());
    let one = one.ok_or_else(|| at(of)(format!("goal: no series `{}`", of.get_ref())))?;
    let mut known: Vec<&str> = one.factors.iter().map(|it| it.name.as_str()).collect();
    known.push("server");
    let mut levels = Levels::new();
    for (name, value) in table.get_ref() {
        if !known.contains(&name.as_str()) {
            let known = known.join(", ");
            return Err(at(table)(format!(
                "goal: series {} has no factor `{name}`; right would be one of {known}",
                one.name
            )));
        }
        levels.insert(name.clone(), value.clone());
    }
    Ok(levels)
}
