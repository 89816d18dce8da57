//! Which cells are looked at.

use loadline_lab::analysis::Cell;
use loadline_lab::journal::{Level, Levels};

/// Cells of a series by their levels. Factors that are not named vary: what is made of the cells is
/// pooled over them.
#[derive(Clone, Debug, Default)]
pub(super) struct Select {
    pub(super) series: &'static str,
    is: Vec<(&'static str, Level)>,
    not: Vec<(&'static str, Level)>,
}

impl Select {
    pub(super) fn series(series: &'static str) -> Self {
        Self {
            series,
            ..Self::default()
        }
    }

    /// Only cells with this level.
    pub(super) fn is(mut self, factor: &'static str, level: impl Into<Level>) -> Self {
        self.is.push((factor, level.into()));
        self
    }

    /// Only cells without it.
    pub(super) fn not(mut self, factor: &'static str, level: impl Into<Level>) -> Self {
        self.not.push((factor, level.into()));
        self
    }

    pub(super) fn takes(&self, cell: &Cell<'_>) -> bool {
        let has = |(factor, level): &(&str, Level)| cell.level(factor) == Some(level);
        cell.series == self.series && self.is.iter().all(has) && !self.not.iter().any(has)
    }

    /// What is left of a cell's levels: what it is paired by.
    pub(super) fn rest(&self, levels: &Levels, but: &str) -> String {
        let is_rest =
            |name: &String| name != but && self.is.iter().all(|(factor, _)| factor != name);
        let rest = levels.iter().filter(|(name, _)| is_rest(name));
        let texts = rest.map(|(name, level)| format!("{name}={level}"));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// In words, for reasons.
    pub(super) fn text(&self) -> String {
        let is = self
            .is
            .iter()
            .map(|(name, level)| format!("{name} {level}"));
        let texts: Vec<String> = is.collect();
        match texts.is_empty() {
            true => format!("series {}", self.series),
            false => format!("series {} with {}", self.series, texts.join(", ")),
        }
    }
}
