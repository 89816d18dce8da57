//! Ranges and values that somebody named, behind the curves of a plot.

use super::canvas::{Canvas, Frame, NUMBER, RULE, SOFT, text_width, wrapped};
use super::scale::Scale;

/// A range that somebody named, or a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Along which axis it lies.
    pub on: BandAxis,
    /// Where it begins.
    pub from: f64,
    /// Where it ends; the same: it is a line.
    pub to: f64,
    /// What stands beside it; may be empty.
    pub text: String,
}

/// An axis that a band lies along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandAxis {
    /// From left to right.
    X,
    /// Of the values.
    Value,
}

/// Between a band and its text, or the text and an edge.
const GAP: f64 = 4.0;
/// The height of a line of text.
const LINE: f64 = 13.0;

/// Bands and their texts, behind the curves of a plot.
pub(super) fn draw(bands: &[Band], [x, y]: [&Scale; 2], plot: &Frame, canvas: &mut Canvas) {
    let mut lines = 0;
    for band in bands {
        let (left, right, top, bottom) = match band.on {
            BandAxis::X => (x.at(band.from), x.at(band.to), plot.top, plot.bottom()),
            BandAxis::Value => (plot.left, plot.right(), y.at(band.to), y.at(band.from)),
        };
        if band.from != band.to {
            canvas.rectangle([left, top, right - left, bottom - top], RULE, "");
        }
        let style = format!(
            "fill=\"none\" stroke=\"{SOFT}\" stroke-width=\"1.2\" stroke-dasharray=\"2 3\""
        );
        let ends = match band.on {
            BandAxis::X => [left, right].map(|x| [(x, top), (x, bottom)]),
            BandAxis::Value => [top, bottom].map(|y| [(left, y), (right, y)]),
        };
        for end in ends {
            canvas.path(&end, false, &style);
        }
        let Place { x, anchor, width } = match band.on {
            BandAxis::X => beside(&band.text, (left, right), plot),
            BandAxis::Value => Place {
                x: plot.left + 6.0,
                anchor: "start",
                width: plot.width - 12.0,
            },
        };
        let texts = wrapped(&band.text, NUMBER, width);
        let mut y = match band.on {
            // Each a line higher, so that neighbours can be read, and within the plot.
            BandAxis::X => {
                lines += texts.len();
                plot.bottom() - 8.0 - (lines - texts.len()) as f64 * LINE
            }
            BandAxis::Value => top - GAP,
        };
        for text in texts.iter().rev() {
            canvas.label((x, y), text, NUMBER, anchor);
            y -= LINE;
        }
    }
}

/// Where a text stands, and how wide its lines may be.
struct Place {
    x: f64,
    anchor: &'static str,
    width: f64,
}

/// The side of a band where its text has room, or the wider one.
fn beside(text: &str, (left, right): (f64, f64), plot: &Frame) -> Place {
    let (before, after) = (left - plot.left - GAP, plot.right() - right - GAP);
    let is_before = after < text_width(text, NUMBER) && after < before;
    match is_before {
        _ if before.max(after) < plot.width * 0.2 => Place {
            x: left + GAP,
            anchor: "start",
            width: right - left - 2.0 * GAP,
        },
        true => Place {
            x: left - GAP,
            anchor: "end",
            width: before,
        },
        false => Place {
            x: right + GAP,
            anchor: "start",
            width: after,
        },
    }
}
