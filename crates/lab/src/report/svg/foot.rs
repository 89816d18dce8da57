//! What stands around a plot: numbers and names at its foot, and the room to its left.

use super::canvas::{
    Canvas, Frame, NUMBER, TITLE, TITLE_LINE, fitted, text_width, within, wrapped,
};

/// Between two of them in a row.
const GAP: f64 = 4.0;
/// The height of a row.
const ROW: f64 = 14.0;

/// Numbers or names along the foot of a plot, in as many rows as they need.
pub(super) struct Foot {
    labels: Vec<Label>,
    rows: usize,
}

struct Label {
    /// What it belongs to.
    at: f64,
    /// Its own middle: elsewhere at the edges.
    middle: f64,
    row: usize,
    text: String,
}

impl Foot {
    /// Of numbers, each with where it belongs. One that would touch the one before is left out: an axis can be
    /// read without it.
    pub(super) fn of_numbers(numbers: Vec<(f64, String)>, frame: &Frame) -> Self {
        Self::new(numbers, frame, 1)
    }

    /// Of names, which all stand there.
    pub(super) fn of_names(names: Vec<(f64, String)>, frame: &Frame) -> Self {
        Self::new(names, frame, usize::MAX)
    }

    fn new(texts: Vec<(f64, String)>, frame: &Frame, rows_max: usize) -> Self {
        let ends = (frame.left, frame.right());
        let mut taken: Vec<f64> = Vec::new(); // up to where, in each row
        let mut labels = Vec::new();
        for (at, text) in texts {
            let text = fitted(&text, NUMBER, frame.width);
            let width = text_width(&text, NUMBER);
            let middle = within(at, width, ends);
            let (from, to) = (middle - width / 2.0, middle + width / 2.0);
            let free = taken.iter().position(|end| *end + GAP <= from);
            let row = free.unwrap_or(taken.len());
            if row >= rows_max {
                continue;
            }
            match taken.get_mut(row) {
                Some(end) => *end = to,
                None => taken.push(to),
            }
            labels.push(Label {
                at,
                middle,
                row,
                text,
            });
        }
        Self {
            labels,
            rows: taken.len(),
        }
    }

    /// What its rows need beyond the first.
    pub(super) fn more_height(&self) -> f64 {
        self.rows.saturating_sub(1) as f64 * ROW
    }

    /// The first row stands this far below the plot; marks of this length lead to it.
    pub(super) fn draw(&self, plot: &Frame, below: f64, mark: f64, canvas: &mut Canvas) {
        let bottom = plot.bottom();
        for label in &self.labels {
            if mark > 0.0 {
                let (from, to) = ((label.at, bottom), (label.at, bottom + mark));
                canvas.line(from, to, "#9fb0bd", 1.0);
            }
            let y = bottom + below + label.row as f64 * ROW;
            canvas.label((label.middle, y), &label.text, NUMBER, "middle");
        }
    }
}

/// What the texts at the axis of values and its title need to the left of a plot, in a frame of this height.
pub(super) fn left_margin<'t>(
    texts: impl IntoIterator<Item = &'t str>,
    title: &str,
    height: f64,
) -> f64 {
    let widths = texts.into_iter().map(|text| text_width(text, NUMBER));
    let titles = wrapped(title, TITLE, height).len().max(1);
    20.0 + (titles - 1) as f64 * TITLE_LINE + widths.fold(0.0, f64::max) + 7.0
}
