//! Heat maps: two factors, the metric as colour and as a number in each cell.

use super::canvas::{Canvas, Frame, SOFT};
use super::{colour_bar, viridis};
use crate::report::figure::{Axis, Figure, Panel};
use crate::report::words;

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

pub(super) fn heat_map(figure: &Figure, panel: &Panel, frame: &Frame, canvas: &mut Canvas) {
    let plot = frame.inner([66.0, 18.0, 80.0, 54.0]);
    let (xs, ys) = sides(figure);
    let Some(range) = figure.value_range() else {
        return;
    };
    let span = (range.1 - range.0).max(f64::MIN_POSITIVE);
    let (width, height) = (plot.width / xs.len() as f64, plot.height / ys.len() as f64);
    let index = |all: &[f64], value: f64| all.iter().position(|it| *it == value).unwrap_or(0);
    for curve in &panel.curves {
        let top = plot.bottom() - (index(&ys, curve.y) + 1) as f64 * height;
        for point in &curve.points {
            let left = plot.left + index(&xs, point.x) as f64 * width;
            let middle = (left + width / 2.0, top + height / 2.0);
            if let Some(estimate) = &point.estimate {
                let value = figure.middle(estimate);
                let share = (value - range.0) / span;
                let text = words::value(value, figure.value.unit);
                let place = [left + 1.0, top + 1.0, width - 2.0, height - 2.0];
                canvas.rectangle(place, &viridis(share), &text);
                if width > 40.0 && height > 17.0 {
                    let ink = if share > 0.55 { "#10202c" } else { "#fff" };
                    let style = format!("font-size=\"11\" fill=\"{ink}\" text-anchor=\"middle\"");
                    let text = words::digits(value / figure.value.divisor, 3);
                    canvas.text(middle.0, middle.1 + 4.0, &text, &style);
                }
            } else if !point.discarded.is_empty() {
                canvas.cross(middle, SOFT);
            }
        }
    }
    for (index, at) in xs.iter().enumerate() {
        let x = plot.left + (index as f64 + 0.5) * width;
        let place = (x, plot.bottom() + 17.0);
        canvas.label(place, &name_at(&figure.x, *at), 11.5, "middle");
    }
    let y_axis = figure.y.clone().unwrap_or_default();
    for (index, at) in ys.iter().enumerate() {
        let y = plot.bottom() - (index as f64 + 0.5) * height + 4.0;
        canvas.label((plot.left - 7.0, y), &name_at(&y_axis, *at), 11.5, "end");
    }
    let titles = [&*figure.x.title(), &y_axis.title()];
    canvas.axis_titles(frame, &plot, 37.0, titles);
    colour_bar(figure, range, frame, canvas);
}
