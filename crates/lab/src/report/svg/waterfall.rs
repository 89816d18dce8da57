//! When the files of a page came: a bar for each, on one axis of time.

use super::COLOURS;
use super::canvas::{BOLD, Canvas, Frame, RULE, TITLE, fitted, text_width, wrapped};
use super::foot::Foot;
use super::scale::Scale;

/// Narrow, so that its text is large enough on a phone.
const WIDTH: f64 = 520.0;
/// Between texts and both edges.
const MARGIN: f64 = 16.0;
/// The widest name.
const NAME_MAX: f64 = 160.0;
/// Heights of a row, and of its bar before and after the first byte.
const ROW: f64 = 22.0;
const BARS: [f64; 2] = [4.0, 12.0];
const WAITING: &str = "#9fb0bd";

/// How to read it.
const KEY: &str = "Thin: from the request to the first byte. Thick: until all is there.";

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct WaterfallRow {
    /// Its name.
    pub name: String,
    /// When it was asked for, when its first byte came, and when it was complete.
    pub times_ms: [f64; 3],
    /// Whether it has another colour.
    pub is_marked: bool,
}

/// Draws them in their order. `about` says the same for those who do not see it.
#[must_use]
pub fn waterfall(title: &str, about: &str, rows: &[WaterfallRow]) -> String {
    let titles = wrapped(title, 16.0 * BOLD, WIDTH - 2.0 * MARGIN);
    let key_y = 28.0 + titles.len() as f64 * 20.0;
    let names = rows.iter().map(|row| text_width(&row.name, TITLE));
    let left = MARGIN + names.fold(0.0, f64::max).min(NAME_MAX) + 10.0;
    let plot = Frame {
        left,
        top: key_y + 12.0,
        width: WIDTH - MARGIN - left,
        height: rows.len() as f64 * ROW,
    };
    let mut canvas = Canvas::alone(WIDTH, plot.bottom() + 46.0);
    canvas.describe(title, about);
    for (index, line) in titles.iter().enumerate() {
        let style = "class=\"title\" font-size=\"16\" font-weight=\"650\"";
        canvas.text(MARGIN, 28.0 + index as f64 * 20.0, line, style);
    }
    canvas.label((MARGIN, key_y), KEY, 12.0, "start");
    let last_ms = rows.iter().map(|row| row.times_ms[2]).fold(0.0, f64::max);
    let scale = Scale::new((0.0, last_ms), false, true, (plot.left, plot.right()));
    axis(&scale, &plot, &mut canvas);
    for (index, row) in rows.iter().enumerate() {
        let middle = plot.top + (index as f64 + 0.5) * ROW;
        bar(row, middle, &scale, &mut canvas);
    }
    canvas.finish()
}

fn axis(scale: &Scale, plot: &Frame, canvas: &mut Canvas) {
    let ticks = scale.ticks(6, 1.0).into_iter();
    let ticks: Vec<_> = ticks.map(|(ms, text)| (scale.at(ms), text)).collect();
    for (x, _) in &ticks {
        canvas.line((*x, plot.top), (*x, plot.bottom()), RULE, 1.0);
    }
    let whole = Frame {
        left: 4.0,
        width: WIDTH - 8.0,
        ..*plot
    };
    let foot = Foot::of_numbers(ticks, &whole);
    foot.draw(plot, 16.0, 4.0, canvas);
    let middle = plot.left + plot.width / 2.0;
    canvas.label((middle, plot.bottom() + 35.0), "ms", TITLE, "middle");
}

fn bar(row: &WaterfallRow, middle: f64, scale: &Scale, canvas: &mut Canvas) {
    let name = fitted(&row.name, TITLE, NAME_MAX);
    canvas.label((MARGIN, middle + 4.0), &name, TITLE, "start");
    let [asked, first, complete] = row.times_ms.map(|ms| scale.at(ms));
    let colour = COLOURS[usize::from(row.is_marked)];
    let [thin, thick] = BARS;
    let waited = [asked, middle - thin / 2.0, first - asked, thin];
    canvas.rectangle(waited, WAITING, "");
    let width = (complete - first).max(1.0);
    let came = [first, middle - thick / 2.0, width, thick];
    let title = format!("{}: complete after {:.0} ms", row.name, row.times_ms[2]);
    canvas.rectangle(came, colour, &title);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{outside, touching};
    use super::*;

    #[test]
    fn each_file_has_a_bar_and_one_is_marked() {
        let row = |name: &str, times_ms, is_marked| WaterfallRow {
            name: name.to_owned(),
            times_ms,
            is_marked,
        };
        let rows = [
            row("0.bmp", [223.0, 767.0, 3026.0], false),
            row(&"long-".repeat(20), [0.0, 0.0, 0.0], false),
            row("style.css", [225.0, 272.0, 1134.0], true),
        ];
        let svg = waterfall("When each file came", "The style sheet is first.", &rows);
        for part in [
            "<title>When each file came</title><desc>The style sheet is first.</desc>",
            ">0.bmp</text>",
            "<title>style.css: complete after 1134 ms</title>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let bars = |colour: &str| svg.matches(&format!("fill=\"{colour}\">")).count();
        assert_eq!([WAITING, COLOURS[0], COLOURS[1]].map(bars), [3, 2, 1]);
        for svg in [svg, waterfall("No file", "", &[])] {
            assert_eq!(outside(&svg), [""; 0], "{svg}");
            assert_eq!(touching(&svg), [""; 0], "{svg}");
            assert!(!svg.contains("NaN"), "{svg}");
        }
    }
}
