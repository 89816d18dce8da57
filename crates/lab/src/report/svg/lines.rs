//! Panels: lines with their spread, and bars.

use super::band::{self, Band, BandAxis};
use super::canvas::{Canvas, Frame, INK, NUMBER, RULE, SOFT};
use super::foot::{Foot, left_margin};
use super::scale::Scale;
use super::{COLOURS, DASHES, grid};
use crate::plan::ChartKind;
use crate::report::figure::{Curve, Figure, Panel};
use crate::report::words;

/// Where things stand in a panel.
const MARGINS: [f64; 4] = [62.0, 16.0, 16.0, 54.0];
/// More marks of one curve run into each other.
const MARKERS_MAX: usize = 40;
/// Dashes of what others measured, in one colour.
const REFERENCE_DASHES: [&str; 4] = ["3 5", "9 4", "1 4", "9 3 2 3"];
/// Percentiles at the foot of a spectrum: where they lie, and their text.
const PERCENTILES: [(f64, &str); 7] = [
    (1.0, "0 %"),
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1_000.0, "99.9 %"),
    (10_000.0, "99.99 %"),
    (100_000.0, "99.999 %"),
];

/// Colour, dash and form of a curve's marks.
pub(super) fn colour(curve: &Curve) -> &'static str {
    match curve.is_reference {
        true => SOFT,
        false => COLOURS[curve.legend % COLOURS.len()],
    }
}

fn dash(curve: &Curve) -> &'static str {
    match curve.is_reference {
        true => REFERENCE_DASHES[curve.legend % REFERENCE_DASHES.len()],
        false => DASHES[curve.legend % DASHES.len()],
    }
}

/// A bar of a chart. What others measured is hollow.
pub(super) fn block(canvas: &mut Canvas, place: [f64; 4], curve: &Curve, title: &str) {
    if !curve.is_reference {
        canvas.rectangle(place, colour(curve), title);
        return;
    }
    let [x, y, width, height] = place;
    let (right, bottom) = (x + width, y + height);
    let corners = [(x, y), (right, y), (right, bottom), (x, bottom)];
    let style = format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"4 3\"",
        colour(curve)
    );
    canvas.path(&corners, true, &style);
}

pub(super) fn stroke(canvas: &mut Canvas, points: &[(f64, f64)], curve: &Curve) {
    let dash = dash(curve);
    let style = format!(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" stroke-linejoin=\"round\" \
         stroke-linecap=\"round\" stroke-dasharray=\"{dash}\"",
        colour(curve)
    );
    canvas.path(points, false, &style);
}

/// Draws a panel: its axes, what stands behind its curves, and these.
pub(super) fn panel(
    figure: &Figure,
    panel: &Panel,
    frame: &Frame,
    bands: &[Band],
    canvas: &mut Canvas,
) {
    if figure.kind.is_grid() {
        // From above: a value hides none behind it, and each stands there as a number.
        return grid::heat_map(figure, panel, frame, canvas);
    }
    let (plot, foot) = parts(figure, frame, bands);
    let (x, y) = (x_scale(figure, &plot), value_scale(figure, bands, &plot));
    axes(figure, &y, &plot, frame, &foot, canvas);
    band::draw(bands, [&x, &y], &plot, canvas);
    if figure.kind == ChartKind::Bars {
        return bars(figure, panel, [&x, &y], &plot, canvas);
    }
    for curve in &panel.curves {
        line(figure, curve, [&x, &y], canvas);
    }
}

/// Where the plot is in its frame, and what stands at its foot.
fn parts(figure: &Figure, frame: &Frame, bands: &[Band]) -> (Frame, Foot) {
    let [left, top, right, bottom] = MARGINS;
    let plot = frame.inner(MARGINS);
    let values = value_ticks(figure, &value_scale(figure, bands, &plot), &plot);
    let values = values.iter().map(|(_, text)| text.as_str());
    let left = left_margin(values, &figure.value.title(), frame.height).max(left);
    let plot = frame.inner([left, top, right, bottom]);
    let foot = foot(figure, &plot, frame);
    let bottom = bottom + foot.more_height();
    (frame.inner([left, top, right, bottom]), foot)
}

/// What the names at the foot of a panel of this width need beyond one row.
pub(super) fn more_height(figure: &Figure, width: f64) -> f64 {
    let frame = Frame {
        left: 0.0,
        top: 0.0,
        width,
        height: 170.0, // of the lowest panels
    };
    match figure.kind.is_grid() {
        true => grid::more_height(figure, &frame),
        false => foot(figure, &frame.inner(MARGINS), &frame).more_height(),
    }
}

fn foot(figure: &Figure, plot: &Frame, frame: &Frame) -> Foot {
    let x = x_scale(figure, plot);
    let ticks = x_ticks(figure, &x, plot).into_iter();
    let ticks = ticks.map(|(value, text)| (x.at(value), text)).collect();
    match figure.x.names.is_empty() {
        true => Foot::of_numbers(ticks, frame),
        false => Foot::of_names(ticks, frame),
    }
}

fn line(figure: &Figure, curve: &Curve, [x, y]: [&Scale; 2], canvas: &mut Canvas) {
    let at = |value: f64, of: f64| (x.at(of), y.at(value));
    let points = curve.points.iter();
    let drawn = points.filter_map(|it| Some((it, it.estimate.as_ref()?)));
    let drawn: Vec<_> = drawn.collect();
    let bounds: Vec<_> = drawn
        .iter()
        .filter_map(|(point, it)| Some((point.x, figure.bounds(it)?)))
        .collect();
    if figure.spread == crate::plan::Spread::MinMax || bounds.len() == 1 {
        for (of, (low, high)) in &bounds {
            bar(canvas, at(*low, *of), at(*high, *of), colour(curve));
        }
    } else if !bounds.is_empty() {
        let lower = bounds.iter().map(|(of, (low, _))| at(*low, *of));
        let upper = bounds.iter().rev().map(|(of, (_, high))| at(*high, *of));
        let outline: Vec<_> = lower.chain(upper).collect();
        let style = format!("fill=\"{}\" opacity=\"0.16\"", colour(curve));
        canvas.path(&outline, true, &style);
    }
    let line = drawn.iter().map(|(it, of)| at(figure.middle(of), it.x));
    let line: Vec<_> = line.collect();
    stroke(canvas, &line, curve);
    let every = line.len().div_ceil(MARKERS_MAX).max(1);
    for (place, (point, _)) in line.into_iter().zip(&drawn).step_by(every) {
        let is_hollow = curve.is_reference || point.room.is_some();
        canvas.marker(place, curve.legend, colour(curve), is_hollow);
    }
    for point in &curve.points {
        for value in point.discarded.iter().filter_map(|mark| mark.value) {
            canvas.cross(at(value, point.x), colour(curve));
        }
    }
}

/// A bar from the smallest to the largest, with ends.
fn bar(canvas: &mut Canvas, low: (f64, f64), high: (f64, f64), colour: &str) {
    canvas.line(low, high, colour, 1.4);
    for (x, y) in [low, high] {
        canvas.line((x - 4.0, y), (x + 4.0, y), colour, 1.4);
    }
}

fn bars(figure: &Figure, panel: &Panel, [x, y]: [&Scale; 2], plot: &Frame, canvas: &mut Canvas) {
    let count = figure.x.names.len().max(1) as f64;
    let group = plot.width / count * 0.74;
    let width = (group / panel.curves.len().max(1) as f64).min(90.0);
    let all = width * panel.curves.len() as f64;
    for (index, curve) in panel.curves.iter().enumerate() {
        for point in &curve.points {
            let left = x.at(point.x) - all / 2.0 + index as f64 * width;
            let middle = left + width / 2.0;
            if let Some(estimate) = &point.estimate {
                let top = y.at(figure.middle(estimate));
                let text = words::value(figure.middle(estimate), figure.value.unit);
                let place = [left + 1.5, top, width - 3.0, plot.bottom() - top];
                block(canvas, place, curve, &text);
                if let Some((low, high)) = figure.bounds(estimate) {
                    bar(canvas, (middle, y.at(low)), (middle, y.at(high)), INK);
                }
            }
            for value in point.discarded.iter().filter_map(|mark| mark.value) {
                canvas.cross((middle, y.at(value)), INK);
            }
        }
    }
}

fn x_scale(figure: &Figure, plot: &Frame) -> Scale {
    let xs = || figure.points().map(|(_, _, point)| point.x);
    let range = match figure.x.names.len() {
        count if figure.kind == ChartKind::Bars => (-0.5, count.max(1) as f64 - 0.5),
        0 => (
            xs().fold(f64::INFINITY, f64::min),
            xs().fold(f64::NEG_INFINITY, f64::max),
        ),
        count => (-0.4, count as f64 - 0.6),
    };
    Scale::new(range, figure.x.log, false, (plot.left, plot.right()))
}

fn value_scale(figure: &Figure, bands: &[Band], plot: &Frame) -> Scale {
    let range = figure.value_range().unwrap_or((0.0, 1.0));
    let of_value = bands.iter().filter(|band| band.on == BandAxis::Value);
    let range = of_value.fold(range, |(low, high), band| {
        (low.min(band.from), high.max(band.to))
    });
    Scale::new(range, figure.value.log, true, (plot.bottom(), plot.top))
}

/// Both axes, with their numbers and titles.
fn axes(figure: &Figure, y: &Scale, plot: &Frame, frame: &Frame, foot: &Foot, canvas: &mut Canvas) {
    for (value, text) in value_ticks(figure, y, plot) {
        let at = y.at(value);
        canvas.line((plot.left, at), (plot.right(), at), RULE, 1.0);
        canvas.label((plot.left - 7.0, at + 4.0), &text, NUMBER, "end");
    }
    let bottom = plot.bottom();
    canvas.line((plot.left, bottom), (plot.right(), bottom), "#9fb0bd", 1.0);
    foot.draw(plot, 18.0, 4.0, canvas);
    let titles = [&*figure.x.title(), &figure.value.title()];
    canvas.axis_titles(frame, plot, 38.0 + foot.more_height(), titles);
}

fn value_ticks(figure: &Figure, y: &Scale, plot: &Frame) -> Vec<(f64, String)> {
    let count = if plot.height > 250.0 { 6 } else { 4 };
    y.ticks(count, figure.value.divisor)
}

fn x_ticks(figure: &Figure, x: &Scale, plot: &Frame) -> Vec<(f64, String)> {
    if !figure.x.names.is_empty() {
        let names = figure.x.names.iter().enumerate();
        return names
            .map(|(index, name)| (index as f64, name.clone()))
            .collect();
    }
    if figure.kind == ChartKind::Spectrum {
        let xs = figure.points().map(|(_, _, point)| point.x);
        let most = xs.fold(1.0, f64::max);
        let there = PERCENTILES.into_iter().filter(|(at, _)| *at <= most);
        return there.map(|(at, text)| (at, text.to_owned())).collect();
    }
    x.ticks((plot.width / 90.0) as usize, 1.0)
}
