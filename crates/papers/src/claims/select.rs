//! Which cells are looked at.

use loadline_lab::analysis::Cell;
use loadline_lab::journal::{Level, Levels};
use serde::Deserialize;

/// Cells of a series by their levels. Factors that are not named vary: what is made of the cells is
/// pooled over them. As data: `["rates", "server=nginx", "service_us!=0"]`; `service_us=0|1000` takes either.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<String>")]
pub(super) struct Select {
    pub(super) series: String,
    is: Vec<(String, Level)>,
    not: Vec<(String, Level)>,
    /// Factors that vary, over these levels alone.
    any: Vec<(String, Vec<Level>)>,
}

impl From<Vec<String>> for Select {
    fn from(words: Vec<String>) -> Self {
        let level = |text: &str| text.parse().map_or_else(|_| text.into(), Level::Number);
        let named = |(factor, text): (&str, &str)| (factor.to_owned(), level(text));
        let mut select = Self::default();
        for word in words {
            if let Some(level) = word.split_once("!=") {
                select.not.push(named(level));
            } else if let Some((factor, levels)) = word.split_once('=') {
                match levels.contains('|') {
                    true => {
                        let levels = levels.split('|').map(level).collect();
                        select.any.push((factor.to_owned(), levels));
                    }
                    false => select.is.push(named((factor, levels))),
                }
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

    /// Only cells with one of these numbers.
    pub(super) fn any_of(mut self, factor: &str, numbers: &[f64]) -> Self {
        let levels = numbers.iter().copied().map(Level::Number).collect();
        self.any.push((factor.to_owned(), levels));
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
        self.takes_levels(cell.series, cell.levels)
    }

    pub(super) fn takes_levels(&self, series: &str, levels: &Levels) -> bool {
        let has = |(factor, level): &(String, Level)| levels.get(factor) == Some(level);
        let has_any = |(factor, some): &(String, Vec<Level>)| {
            levels.get(factor).is_some_and(|level| some.contains(level))
        };
        series == self.series
            && self.is.iter().all(has)
            && !self.not.iter().any(has)
            && self.any.iter().all(has_any)
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
        let any = self.any.iter().map(|(name, levels)| {
            let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
            format!("{name} {}", levels.join(" or "))
        });
        let texts: Vec<String> = is.chain(any).collect();
        match texts.is_empty() {
            true => format!("series {}", self.series),
            false => format!("series {} with {}", self.series, texts.join(", ")),
        }
    }
}
