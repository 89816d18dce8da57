//! Names of the curves, each beside its line and its mark, above the charts.

use super::canvas::{Canvas, text_width, wrapped};
use super::lines::{block, colour, stroke};
use crate::plan::ChartKind;
use crate::report::figure::{Curve, Figure};

const SIZE: f64 = 13.5;
const LINE: f64 = 22.0;
/// What stands before a name.
const SAMPLE: f64 = 40.0;

/// A name, in lines if it is wider than the picture.
struct Entry {
    x: f64,
    line: usize,
    name: Vec<String>,
}

/// A name and what stands before and behind it.
fn entry_width(name: &str) -> f64 {
    let usual = name.chars().count() as f64 * 7.4 + 62.0;
    usual.max(SAMPLE + text_width(name, SIZE) + 8.0)
}

/// The entries, and how many lines they take; none if there is a single curve without a name.
fn entries(figure: &Figure, left: f64, width: f64) -> (Vec<Entry>, usize) {
    let mut entries = Vec::new();
    if !figure.has_legend() {
        return (entries, 0);
    }
    let (mut x, mut line, mut lines) = (left, 0, 1);
    for name in &figure.legend {
        let needed = entry_width(name);
        if x + needed > width && x > left {
            (x, line) = (left, lines);
        }
        let name = wrapped(name, SIZE, width - left - SAMPLE - 8.0);
        lines = lines.max(line + name.len().max(1));
        entries.push(Entry { x, line, name });
        x += needed;
    }
    (entries, lines)
}

/// How high it is in a picture of this width.
pub(super) fn height(figure: &Figure, left: f64, width: f64) -> f64 {
    entries(figure, left, width).1 as f64 * LINE
}

pub(super) fn draw(figure: &Figure, canvas: &mut Canvas, (left, top): (f64, f64), width: f64) {
    let (entries, _) = entries(figure, left, width);
    for (index, entry) in entries.iter().enumerate() {
        let (x, y) = (entry.x, top + entry.line as f64 * LINE);
        let curve = Curve {
            legend: index,
            is_reference: figure.is_reference(index),
            ..Curve::default()
        };
        if figure.kind == ChartKind::Bars {
            block(canvas, [x + 8.0, y - 7.0, 16.0, 12.0], &curve, "");
        } else {
            stroke(canvas, &[(x, y), (x + 32.0, y)], &curve);
            canvas.marker((x + 16.0, y), index, colour(&curve), curve.is_reference);
        }
        for (line, text) in entry.name.iter().enumerate() {
            let y = y + 4.5 + line as f64 * LINE;
            canvas.text(x + SAMPLE, y, text, "font-size=\"13.5\"");
        }
    }
}
