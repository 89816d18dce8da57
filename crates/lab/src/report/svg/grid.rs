//! Heat maps: two factors, the metric as colour and as a number in each cell.

use super::canvas::{Canvas, Frame, NUMBER, SOFT, fitted, text_width};
use super::foot::{Foot, left_margin};
use super::{colour_bar, colour_bar_width, viridis};
use crate::report::figure::{Axis, Figure, Panel};
use crate::report::words;

/// A cell has to be higher than this for its number.
const NUMBER_HEIGHT: f64 = 17.0;
/// What stands above the cells and below them: the name of a panel, the names of columns.
const AROUND: f64 = 84.0;

/// Columns or rows of a grid with their positions, from the smallest.
fn sides(figure: &Figure) -> (Vec<f64>, Vec<f64>) {
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    let xs = figure.points().map(|(_, _, point)| point.x).collect();
    let ys = figure.points().map(|(_, curve, _)| curve.y).collect();
    (sorted(xs), sorted(ys))
}

/// The text at a position.
fn name_at(axis: &Axis, at: f64) -> String {
    axis.names
        .get(at as usize)
        .cloned()
        .unwrap_or_else(|| words::digits(at, 6))
}

/// Where the cells are in the frame of a panel, and what is at their sides.
struct Cells {
    xs: Vec<f64>,
    ys: Vec<f64>,
    plot: Frame,
    foot: Foot,
    /// Names of the rows.
    names: Vec<String>,
}

impl Cells {
    fn new(figure: &Figure, range: (f64, f64), frame: &Frame) -> Self {
        let (xs, ys) = sides(figure);
        let y_axis = figure.y.clone().unwrap_or_default();
        let names = ys.iter().map(|at| name_at(&y_axis, *at));
        let names: Vec<String> = names
            .map(|name| fitted(&name, NUMBER, frame.width * 0.3))
            .collect();
        let texts = names.iter().map(String::as_str);
        let left = left_margin(texts, &y_axis.title(), frame.height).max(66.0);
        let right = (colour_bar_width(figure, range) + 22.0).max(80.0);
        let plot = frame.inner([left, 18.0, right, 54.0]);
        let width = plot.width / xs.len().max(1) as f64;
        let middle = |index: usize| plot.left + (index as f64 + 0.5) * width;
        let columns = xs.iter().enumerate();
        let columns = columns.map(|(index, at)| (middle(index), name_at(&figure.x, *at)));
        let foot = Foot::of_names(columns.collect(), frame);
        let bottom = 54.0 + foot.more_height();
        Self {
            plot: frame.inner([left, 18.0, right, bottom]),
            xs,
            ys,
            foot,
            names,
        }
    }
}

/// A panel of this height has room for a number in each cell.
pub(super) fn readable_height(figure: &Figure) -> f64 {
    let (_, ys) = sides(figure);
    AROUND + ys.len() as f64 * (NUMBER_HEIGHT + 1.0)
}

/// What the names at the foot of a frame of this width need beyond one row.
pub(super) fn more_height(figure: &Figure, frame: &Frame) -> f64 {
    let cells = figure.value_range().map(|it| Cells::new(figure, it, frame));
    cells.map_or(0.0, |cells| cells.foot.more_height())
}

pub(super) fn heat_map(figure: &Figure, panel: &Panel, frame: &Frame, canvas: &mut Canvas) {
    let Some(range) = figure.value_range() else {
        return;
    };
    let cells = Cells::new(figure, range, frame);
    let Cells { xs, ys, plot, .. } = &cells;
    let span = (range.1 - range.0).max(f64::MIN_POSITIVE);
    let (width, height) = (plot.width / xs.len() as f64, plot.height / ys.len() as f64);
    let index = |all: &[f64], value: f64| all.iter().position(|it| *it == value).unwrap_or(0);
    for curve in &panel.curves {
        let top = plot.bottom() - (index(ys, curve.y) + 1) as f64 * height;
        for point in &curve.points {
            let left = plot.left + index(xs, point.x) as f64 * width;
            let middle = (left + width / 2.0, top + height / 2.0);
            if let Some(estimate) = &point.estimate {
                let value = figure.middle(estimate);
                let share = (value - range.0) / span;
                let text = words::value(value, figure.value.unit);
                let place = [left + 1.0, top + 1.0, width - 2.0, height - 2.0];
                canvas.rectangle(place, &viridis(share), &text);
                let text = short(value / figure.value.divisor);
                if width > text_width(&text, 11.0) + 3.0 && height > NUMBER_HEIGHT {
                    let ink = if share > 0.55 { "#10202c" } else { "#fff" };
                    let style = format!("font-size=\"11\" fill=\"{ink}\" text-anchor=\"middle\"");
                    canvas.text(middle.0, middle.1 + 4.0, &text, &style);
                }
            } else if !point.discarded.is_empty() {
                canvas.cross(middle, SOFT);
            }
        }
    }
    cells.foot.draw(plot, 17.0, 0.0, canvas);
    for (index, name) in cells.names.iter().enumerate() {
        let y = plot.bottom() - (index as f64 + 0.5) * height + 4.0;
        canvas.label((plot.left - 7.0, y), name, NUMBER, "end");
    }
    let y_title = figure.y.as_ref().map_or_else(String::new, Axis::title);
    let titles = [&*figure.x.title(), &y_title];
    canvas.axis_titles(frame, plot, 37.0 + cells.foot.more_height(), titles);
    colour_bar(figure, range, plot, canvas);
}

/// To three digits, in thousands or millions: cells are narrow.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => words::digits(value / 1e6, 3) + "M",
        large if large >= 1e4 => words::digits(value / 1e3, 3) + "k",
        _ => words::digits(value, 3),
    }
}
