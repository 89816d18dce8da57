//! Which cells a claim takes: what a run has to have for it.

use loadline_lab::journal::{Level, Levels};

use super::select::Select;

/// Cells of a series, of which some numbers of a factor may be left out.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    cells: Select,
    /// A factor, and the numbers of it that are looked at.
    numbers: Option<(String, [f64; 2])>,
}

impl Taken {
    /// All that are selected.
    pub(super) fn all(cells: &Select) -> Self {
        Self {
            cells: cells.clone(),
            numbers: None,
        }
    }

    /// Those whose number of a factor is neither below nor above these.
    pub(super) fn between(cells: &Select, factor: &str, ends: [f64; 2]) -> Self {
        Self {
            cells: cells.clone(),
            numbers: Some((factor.to_owned(), ends)),
        }
    }

    /// Whose cells they are.
    pub(crate) fn series(&self) -> &str {
        &self.cells.series
    }

    pub(crate) fn takes(&self, series: &str, levels: &Levels) -> bool {
        let is_between = |(factor, ends): &(String, [f64; 2])| match levels.get(factor) {
            Some(Level::Number(number)) => (ends[0]..=ends[1]).contains(number),
            _ => false,
        };
        self.cells.takes_levels(series, levels) && self.numbers.as_ref().is_none_or(is_between)
    }
}
