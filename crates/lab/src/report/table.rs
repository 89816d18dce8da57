//! The table of a chart: a row for each point, and one for each trial that does not count.

use super::figure::{Curve, DiscardedMark, Figure, Panel, Point};
use crate::analysis::Estimate;
use crate::plan::ChartKind;

/// A row of a table.
pub(crate) struct TableRow<'f> {
    pub(crate) panel: &'f Panel,
    pub(crate) curve: &'f Curve,
    pub(crate) point: &'f Point,
    pub(crate) of: Of<'f>,
}

/// What a row is of.
pub(crate) enum Of<'f> {
    /// The trials of a cell that count.
    Counted(&'f Estimate),
    /// A trial that does not.
    Discarded(&'f DiscardedMark),
    /// Nothing was measured.
    Nothing,
}

/// All rows of a chart, in the order in which it is drawn.
pub(crate) fn rows(figure: &Figure) -> Vec<TableRow<'_>> {
    let mut rows = Vec::new();
    for (panel, curve, point) in figure.points() {
        let row = |of| TableRow {
            panel,
            curve,
            point,
            of,
        };
        match &point.estimate {
            Some(estimate) => rows.push(row(Of::Counted(estimate))),
            None if point.discarded.is_empty() => rows.push(row(Of::Nothing)),
            None => {}
        }
        rows.extend(point.discarded.iter().map(|mark| row(Of::Discarded(mark))));
    }
    rows
}

/// Headings of the columns that say which point a row is of.
pub(crate) fn places(figure: &Figure) -> Vec<String> {
    let mut names = Vec::new();
    if figure.panels.len() > 1 {
        names.push("Panel".to_owned());
    }
    if let Some(y) = &figure.y {
        names.push(y.title());
    } else if figure.legend.iter().any(|name| !name.is_empty()) {
        names.push("Curve".to_owned());
    }
    names.push(match figure.kind {
        ChartKind::TimeSeries => "Second".to_owned(),
        _ => figure.x.title(),
    });
    names
}

impl TableRow<'_> {
    /// What stands in those columns.
    pub(crate) fn place(&self, figure: &Figure) -> Vec<String> {
        let mut texts = Vec::new();
        if figure.panels.len() > 1 {
            texts.push(self.panel.title.clone());
        }
        if figure.y.is_some() || figure.legend.iter().any(|name| !name.is_empty()) {
            texts.push(figure.name_of(self.curve).to_owned());
        }
        texts.push(self.point.x_text.clone());
        texts
    }
}
