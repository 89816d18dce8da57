//! Still pictures of charts, as SVG that needs nothing around it: for READMEs and papers, for print,
//! and for the page where scripts do not run.

mod band;
mod canvas;
mod foot;
mod forest;
mod grid;
mod legend;
mod lines;
mod scale;
mod stack;
#[cfg(test)]
mod tests;
mod waterfall;

pub use band::{Band, BandAxis};
use canvas::{BOLD, Canvas, Frame, text_width, wrapped};
pub use forest::forest;
pub use stack::{StackPart, stack};
pub use waterfall::{WaterfallRow, waterfall};

use super::figure::Figure;
use super::words;

/// Colours of curves: Okabe and Ito's, which colour-blind people tell apart, dark enough to be seen on
/// white. Markers tell them apart once more, and from the fifth on dashes.
pub(crate) const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#a8478a", "#b97f00", "#3a94cf", "#5a4fcf", "#4d5b66",
];
/// Dashes of lines, in the same order.
pub(crate) const DASHES: [&str; 8] = ["", "", "", "", "7 4", "7 4", "7 4", "7 4"];

/// Width of a picture.
const WIDTH: f64 = 960.0;
/// Height of a panel that has the width for itself, and of one of several.
const HEIGHTS: [f64; 2] = [400.0, 290.0];

/// Panels side by side.
pub(crate) fn columns(figure: &Figure) -> usize {
    match figure.panels.len() {
        1 => 1,
        2 | 4 => 2,
        _ => 3,
    }
}

/// Draws a chart: the same figure always gives the same text.
#[must_use]
pub fn draw(figure: &Figure) -> String {
    let columns = columns(figure);
    let width = (WIDTH - 20.0) / columns as f64;
    let panel_titles = figure.panels.iter();
    let panel_titles = panel_titles.map(|it| wrapped(&it.title, 13.5 * BOLD, width - 70.0));
    let panel_titles: Vec<Vec<String>> = panel_titles.collect();
    let title_lines = panel_titles.iter().map(Vec::len).max().unwrap_or(0);
    let more_titles = title_lines.saturating_sub(1) as f64 * 16.0;
    let more = more_titles + lines::more_height(figure, width);
    let height = HEIGHTS[usize::from(columns > 1)] + more;
    let rows = figure.panels.len().div_ceil(columns);
    let titles = wrapped(&figure.title, 19.0 * BOLD, WIDTH - 40.0);
    let titles_end = 8.0 + titles.len().max(1) as f64 * 24.0;
    let top = titles_end + 24.0 + legend::height(figure, 20.0, WIDTH);
    let mut canvas = Canvas::new(WIDTH, top + rows as f64 * height + 10.0);
    canvas.describe(&figure.title, &figure.finding);
    for (index, line) in titles.iter().enumerate() {
        let style = "class=\"title\" font-size=\"19\" font-weight=\"650\"";
        canvas.text(20.0, 30.0 + index as f64 * 24.0, line, style);
    }
    legend::draw(figure, &mut canvas, (20.0, titles_end + 22.0), WIDTH);
    for (index, (panel, titles)) in figure.panels.iter().zip(&panel_titles).enumerate() {
        let (row, column) = (index / columns, index % columns);
        let mut frame = Frame {
            left: 10.0 + column as f64 * width,
            top: top + row as f64 * height,
            width,
            height,
        };
        for (line, text) in titles.iter().enumerate() {
            let style = "font-size=\"13.5\" font-weight=\"600\"";
            let y = frame.top + 8.0 + line as f64 * 16.0;
            canvas.text(frame.left + 62.0, y, text, style);
        }
        if title_lines > 0 {
            frame = frame.below(14.0 + more_titles);
        }
        lines::panel(figure, panel, &frame, &[], &mut canvas);
    }
    canvas.finish()
}

/// A colour of the scale from the smallest (0) to the largest (1): viridis, by nine of its colours.
fn viridis(share: f64) -> String {
    const STOPS: [[f64; 3]; 9] = [
        [68.0, 1.0, 84.0],
        [71.0, 44.0, 122.0],
        [59.0, 81.0, 139.0],
        [44.0, 113.0, 142.0],
        [33.0, 144.0, 141.0],
        [39.0, 173.0, 129.0],
        [92.0, 200.0, 99.0],
        [170.0, 220.0, 50.0],
        [253.0, 231.0, 37.0],
    ];
    let at = share.clamp(0.0, 1.0) * 8.0;
    let below = (at.floor() as usize).min(7);
    let rest = at - below as f64;
    let mix = |channel: usize| {
        let (one, other) = (STOPS[below][channel], STOPS[below + 1][channel]);
        (one + (other - one) * rest).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// What the bar of colours needs, with its texts.
fn colour_bar_width(figure: &Figure, range: (f64, f64)) -> f64 {
    let texts = [range.0, range.1].map(|value| words::value(value, figure.value.unit));
    let widths = texts.iter().map(|text| text_width(text, 11.0));
    17.0 + widths.fold(0.0, f64::max)
}

/// The range of colours, beside a grid.
fn colour_bar(figure: &Figure, range: (f64, f64), plot: &Frame, canvas: &mut Canvas) {
    let (x, top, height) = (plot.right() + 18.0, plot.top + 12.0, plot.height - 12.0);
    const STEPS: usize = 40;
    for step in 0..STEPS {
        let share = 1.0 - (step as f64 + 0.5) / STEPS as f64;
        let y = top + height * step as f64 / STEPS as f64;
        let size = height / STEPS as f64 + 0.6;
        canvas.rectangle([x, y, 12.0, size], &viridis(share), "");
    }
    let text = |value| words::value(value, figure.value.unit);
    let style = "font-size=\"11\"";
    canvas.text(x + 17.0, top + 8.0, &text(range.1), style);
    canvas.text(x + 17.0, top + height, &text(range.0), style);
}
