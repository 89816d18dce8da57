//! Surfaces: two factors, the metric as height, seen from one side.

use super::canvas::{Canvas, Frame, RULE, SOFT};
use super::grid::{name_at, sides};
use super::{colour_bar, viridis};
use crate::report::figure::{Figure, Panel};
use crate::report::words;

/// From where it is seen: turned to the left, and from above.
const AZIMUTH: f64 = 0.62;
const ELEVATION: f64 = 0.45;
/// Height of the box against the sides of its floor, which are 2.
const HEIGHT: f64 = 1.35;

/// A corner of the box: along x, along y, and up.
type Place = [f64; 3];

struct View {
    centre: (f64, f64),
    scale: f64,
}

impl View {
    /// Into a frame, so that the whole box is seen.
    fn new(frame: &Frame) -> Self {
        let scale = (frame.width / 3.1).min(frame.height / 2.75);
        let centre = (
            frame.left + frame.width / 2.0,
            frame.top + frame.height / 2.0 + scale * 0.42,
        );
        Self { centre, scale }
    }

    fn at(&self, place: Place) -> (f64, f64) {
        let [x, y, z] = place;
        let (sin, cos) = AZIMUTH.sin_cos();
        let (across, away) = (x * cos - y * sin, x * sin + y * cos);
        let up = z * ELEVATION.cos() + away * ELEVATION.sin();
        (
            self.centre.0 + across * self.scale,
            self.centre.1 - up * self.scale,
        )
    }

    /// How far away it is.
    fn depth(place: Place) -> f64 {
        let [x, y, _] = place;
        x * AZIMUTH.sin() + y * AZIMUTH.cos()
    }
}

pub(super) fn surface(figure: &Figure, panel: &Panel, frame: &Frame, canvas: &mut Canvas) {
    let (xs, ys) = sides(figure);
    let Some((least, most)) = figure.value_range() else {
        return;
    };
    let floor = least.min(0.0);
    let span = (most - floor).max(f64::MIN_POSITIVE);
    let view = View::new(&frame.inner([24.0, 4.0, 84.0, 22.0]));
    // Levels stand at even distances: 1, 2, 4, 8, 16 would crowd in a corner.
    let along = |all: &[f64], value: f64| {
        let index = all.iter().position(|it| *it == value).unwrap_or(0);
        index as f64 / (all.len().max(2) - 1) as f64 * 2.0 - 1.0
    };
    let height = |value: f64| (value - floor) / span * HEIGHT;
    box_of(figure, &view, (&xs, &ys), canvas);
    let value_at = |x: f64, y: f64| {
        let curve = panel.curves.iter().find(|curve| curve.y == y)?;
        let point = curve.points.iter().find(|point| point.x == x)?;
        Some(figure.middle(point.estimate.as_ref()?))
    };
    let corner = |x: f64, y: f64| -> Option<(Place, f64)> {
        let value = value_at(x, y)?;
        Some(([along(&xs, x), along(&ys, y), height(value)], value))
    };
    let mut patches: Vec<(f64, [Place; 4], f64)> = Vec::new();
    for x in xs.windows(2) {
        for y in ys.windows(2) {
            let corners = [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])];
            let found: Vec<_> = corners.iter().filter_map(|(x, y)| corner(*x, *y)).collect();
            if let [a, b, c, d] = found[..] {
                let places = [a.0, b.0, c.0, d.0];
                let mean = (a.1 + b.1 + c.1 + d.1) / 4.0;
                let depth = places.iter().map(|place| View::depth(*place)).sum::<f64>();
                patches.push((depth, places, mean));
            }
        }
    }
    patches.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, places, mean) in patches {
        let colour = viridis((mean - least) / (most - least).max(f64::MIN_POSITIVE));
        let style = format!(
            "fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.8\" stroke-linejoin=\"round\""
        );
        canvas.path(&places.map(|place| view.at(place)), true, &style);
    }
    colour_bar(figure, (least, most), frame, canvas);
}

/// Floor, axes and their text.
fn box_of(figure: &Figure, view: &View, sides: (&[f64], &[f64]), canvas: &mut Canvas) {
    let (xs, ys) = sides;
    let share = |index: usize, count: usize| index as f64 / (count.max(2) - 1) as f64 * 2.0 - 1.0;
    let line = |canvas: &mut Canvas, from: Place, to: Place| {
        canvas.line(view.at(from), view.at(to), RULE, 1.0);
    };
    let style = |anchor: &str| format!("font-size=\"11\" fill=\"{SOFT}\" text-anchor=\"{anchor}\"");
    for (index, at) in xs.iter().enumerate() {
        let x = share(index, xs.len());
        line(canvas, [x, -1.0, 0.0], [x, 1.0, 0.0]);
        line(canvas, [x, 1.0, 0.0], [x, 1.0, HEIGHT]);
        let (left, top) = view.at([x, -1.12, 0.0]);
        canvas.text(left, top + 8.0, &name_at(&figure.x, *at), &style("middle"));
    }
    let y_axis = figure.y.clone().unwrap_or_default();
    for (index, at) in ys.iter().enumerate() {
        let y = share(index, ys.len());
        line(canvas, [-1.0, y, 0.0], [1.0, y, 0.0]);
        line(canvas, [-1.0, y, 0.0], [-1.0, y, HEIGHT]);
        let (left, top) = view.at([1.1, y, 0.0]);
        canvas.text(left, top + 6.0, &name_at(&y_axis, *at), &style("start"));
    }
    for share in [0.0, 0.5, 1.0] {
        let up = share * HEIGHT;
        line(canvas, [-1.0, -1.0, up], [-1.0, 1.0, up]);
        line(canvas, [-1.0, 1.0, up], [1.0, 1.0, up]);
        let most = figure.value_range().map_or(0.0, |(_, most)| most);
        let (left, top) = view.at([-1.0, -1.08, up]);
        let text = words::value(most * share, figure.value.unit);
        canvas.text(left - 4.0, top + 4.0, &text, &style("end"));
    }
    let style = format!("font-size=\"12.5\" fill=\"{SOFT}\" text-anchor=\"middle\"");
    let (left, top) = view.at([-0.05, -1.42, 0.0]);
    canvas.text(left, top + 10.0, &figure.x.title(), &style);
    let (left, top) = view.at([1.45, 0.05, 0.0]);
    canvas.text(left + 22.0, top + 14.0, &y_axis.title(), &style);
}
