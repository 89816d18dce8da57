//! SVG elements as text.

use std::fmt::Write as _;

use super::COLOURS;
use crate::report::words::escaped;

/// Ink, softer ink and rules on white.
pub(super) const INK: &str = "#152634";
pub(super) const SOFT: &str = "#4d6274";
pub(super) const RULE: &str = "#dde5eb";

/// Font sizes of the numbers and names at an axis, and of its title, and the height of a line of that.
pub(super) const NUMBER: f64 = 11.5;
pub(super) const TITLE: f64 = 12.5;
pub(super) const TITLE_LINE: f64 = 14.0;
/// How much wider bold text is.
pub(super) const BOLD: f64 = 1.08;

/// What stands for each colour of lines and paper on a dark screen.
const DARK: [(&str, &str); 12] = [
    ("#fff", "#15222d"),
    (INK, "#e4edf3"),
    (SOFT, "#a8bccb"),
    (RULE, "#2b3b48"),
    (COLOURS[0], "#56b4e9"),
    (COLOURS[1], "#ff8c42"),
    (COLOURS[2], "#2ec59a"),
    (COLOURS[3], "#e08cc6"),
    (COLOURS[4], "#e6b450"),
    (COLOURS[5], "#7cc4f5"),
    (COLOURS[6], "#a79dff"),
    (COLOURS[7], "#a9b6c0"),
];

/// A picture in the making.
pub(super) struct Canvas {
    text: String,
}

/// A part of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Without so much at its top.
    pub(super) fn below(self, height: f64) -> Self {
        Self {
            top: self.top + height,
            height: self.height - height,
            ..self
        }
    }

    /// Without its margins: left, top, right, bottom.
    pub(super) fn inner(self, margins: [f64; 4]) -> Self {
        let [left, top, right, bottom] = margins;
        Self {
            left: self.left + left,
            top: self.top + top,
            width: self.width - left - right,
            height: self.height - top - bottom,
        }
    }
}

impl Canvas {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        let _ = write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', \
             sans-serif\" fill=\"{INK}\"><rect width=\"{width}\" height=\"{height}\" rx=\"14\" \
             fill=\"#fff\"/>"
        );
        Self { text }
    }

    /// For a file of its own, which follows the reader's choice of light or dark. Within a page the rules
    /// would be those of the whole page.
    pub(super) fn alone(width: f64, height: f64) -> Self {
        let mut canvas = Self::new(width, height);
        canvas.text += "<style>@media screen and (prefers-color-scheme:dark){";
        for (light, dark) in DARK {
            // White text stands on colours that stay as they are.
            let but = if light == "#fff" { ":not(text)" } else { "" };
            let _ = write!(
                canvas.text,
                "{but}[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}"
            );
        }
        canvas.text += "}</style>";
        canvas
    }

    /// What the picture is, for those who do not see it.
    pub(super) fn describe(&mut self, title: &str, text: &str) {
        debug_assert!(!self.text.contains("<desc>"), "once");
        let (title, text) = (escaped(title), escaped(text));
        let _ = write!(self.text, "<title>{title}</title><desc>{text}</desc>");
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, attributes: &str) {
        let (x, y, text) = (short(x), short(y), escaped(text));
        let _ = write!(
            self.text,
            "<text x=\"{x}\" y=\"{y}\" {attributes}>{text}</text>"
        );
    }

    /// A number or a title at an axis.
    pub(super) fn label(&mut self, at: (f64, f64), text: &str, size: f64, anchor: &str) {
        let style = format!("font-size=\"{size}\" fill=\"{SOFT}\" text-anchor=\"{anchor}\"");
        self.text(at.0, at.1, text, &style);
    }

    /// The titles of both axes of a plot, which is in a frame.
    pub(super) fn axis_titles(
        &mut self,
        frame: &Frame,
        plot: &Frame,
        foot: f64,
        titles: [&str; 2],
    ) {
        let title = fitted(titles[0], TITLE, frame.width);
        let middle = plot.left + plot.width / 2.0;
        let ends = (frame.left, frame.right());
        let middle = within(middle, text_width(&title, TITLE), ends);
        self.label((middle, plot.bottom() + foot), &title, TITLE, "middle");
        let lines = wrapped(titles[1], TITLE, frame.height);
        for (index, line) in lines.iter().enumerate() {
            let x = frame.left + 14.0 + index as f64 * TITLE_LINE;
            let middle = plot.top + plot.height / 2.0;
            let y = within(middle, text_width(line, TITLE), (frame.top, frame.bottom()));
            let style = format!(
                "font-size=\"{TITLE}\" fill=\"{SOFT}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\""
            );
            self.text(x, y, line, &style);
        }
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let style = format!("stroke=\"{stroke}\" stroke-width=\"{width}\"");
        self.path(&[from, to], false, &style);
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], close: bool, attributes: &str) {
        let mut d = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{verb}{} {}", short(*x), short(*y));
        }
        if close {
            d.push('Z');
        }
        let _ = write!(self.text, "<path d=\"{d}\" {attributes}/>");
    }

    /// Its place: left, top, width and height.
    pub(super) fn rectangle(&mut self, place: [f64; 4], fill: &str, title: &str) {
        let [x, y, width, height] = place.map(short);
        let _ = write!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\">"
        );
        if !title.is_empty() {
            let _ = write!(self.text, "<title>{}</title>", escaped(title));
        }
        self.text += "</rect>";
    }

    /// The mark of a point, hollow or not; each curve has its own form.
    pub(super) fn marker(&mut self, at: (f64, f64), form: usize, colour: &str, is_hollow: bool) {
        let (x, y) = at;
        const R: f64 = 4.2;
        let fill = match is_hollow {
            true => format!("fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"2\""),
            false => format!("fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"1\""),
        };
        // A circle, a square, a diamond and a triangle.
        let corners: &[(f64, f64)] = match form % 4 {
            0 => {
                let (x, y) = (short(x), short(y));
                let _ = write!(
                    self.text,
                    "<circle cx=\"{x}\" cy=\"{y}\" r=\"{R}\" {fill}/>"
                );
                return;
            }
            1 => &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
            2 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            _ => &[(0.0, -1.25), (1.25, 1.0), (-1.25, 1.0)],
        };
        let corners = corners.iter().map(|(dx, dy)| (x + dx * R, y + dy * R));
        self.path(&corners.collect::<Vec<_>>(), true, &fill);
    }

    /// The mark of a trial that does not count.
    pub(super) fn cross(&mut self, at: (f64, f64), colour: &str) {
        let (x, y) = at;
        const R: f64 = 4.0;
        let style = format!("stroke=\"{colour}\" stroke-width=\"1.6\" opacity=\"0.75\"");
        self.path(&[(x - R, y - R), (x + R, y + R)], false, &style);
        self.path(&[(x - R, y + R), (x + R, y - R)], false, &style);
    }

    pub(super) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

/// How wide a text is. System fonts differ: these are about the widths of DejaVu Sans, a wide one.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// The width of a character, in parts of the font's size.
fn em(c: char) -> f64 {
    const NARROW: &str = " .,:;'|!()[]{}/-fijlrtI";
    const WIDE: &str = "mwMW%@+=<>…–—−×≤≥";
    match c {
        c if NARROW.contains(c) => 0.36,
        c if WIDE.contains(c) => 0.9,
        '\u{2e80}'.. => 1.0, // Chinese, for instance
        c if c.is_uppercase() => 0.72,
        _ => 0.62,
    }
}

/// A text in lines of this width at most, broken between words; a word that is wider is broken, too.
pub(super) fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if text_width(&longer, size) <= width {
                *line = longer;
                continue;
            }
        }
        let mut part = String::new();
        for c in word.chars() {
            part.push(c);
            if text_width(&part, size) > width && part.len() > c.len_utf8() {
                part.pop();
                lines.push(std::mem::replace(&mut part, c.to_string()));
            }
        }
        lines.push(part);
    }
    lines
}

/// A text of one line, cut where it is wider than this.
pub(super) fn fitted(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut left = width - text_width("…", size);
    for c in text.chars() {
        left -= em(c) * size;
        if left < 0.0 {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Where the middle of what has this width stands, so that none of it is beyond the ends.
pub(super) fn within(middle: f64, width: f64, (from, to): (f64, f64)) -> f64 {
    middle.min(to - width / 2.0).max(from + width / 2.0)
}

/// A tenth of a pixel is not seen.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}
