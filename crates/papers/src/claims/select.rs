//! Which cells are looked at.

use loadline_lab::analysis::Cell;
use loadline_lab::journal::{Level, Levels};
use serde::Deserialize;

/// Cells of a series by their levels. Factors that are not named vary: what is made of the cells is
/// pooled over them. As data: `["rates", "server=nginx", "service_us!=0"]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<String>")]
pub(super) struct Select {
    pub(super) series: String,
    is: Vec<(String, Level)>,
    not: Vec<(String, Level)>,
}

impl From<Vec<String>> for Select {
    fn from(words: Vec<String>) -> Self {
        let named = |(factor, text): (&str, &str)| {
            let level = text.parse().map_or_else(|_| text.into(), Level::Number);
            (factor.to_owned(), level)
        };
        let mut select = Self::default();
        for word in words {
            if let Some(level) = word.split_once("!=") {
                select.not.push(named(level));
            } else if let Some(level) = word.split_once('=') {
                select.is.push(named(level));
            } else {
                select.series = word;
            }
        }
        select
    }
}

impl Select {
    /// Only cells with this level.
    pub(super) fn is(mut self, factor: &str, level: impl Into<Level>) -> Self {
        let level = level.into();
        match self.is.iter_mut().find(|(name, _)| name == factor) {
            Some((_, old)) => *old = level,
            None => self.is.push((factor.to_owned(), level)),
        }
        self
    }

    /// The same with other levels.
    pub(super) fn but(&self, other: &Self) -> Self {
        let levels = other.is.iter();
        levels.fold(self.clone(), |select, (factor, level)| {
            select.is(factor, level.clone())
        })
    }

    /// The level of a factor that it names.
    pub(super) fn level(&self, factor: &str) -> Option<&Level> {
        let found = self.is.iter().find(|(name, _)| name == factor);
        found.map(|(_, level)| level)
    }

    pub(super) fn takes(&self, cell: &Cell<'_>) -> bool {
        let has = |(factor, level): &(String, Level)| cell.level(factor) == Some(level);
        cell.series == self.series && self.is.iter().all(has) && !self.not.iter().any(has)
    }

    /// What is left of a cell's levels without some factors: what it is paired by.
    pub(super) fn rest(&self, levels: &Levels, but: &[String]) -> String {
        let is_rest = |name: &String| !but.contains(name) && self.level(name).is_none();
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
