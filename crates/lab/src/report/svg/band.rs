//! Ranges and values that somebody named, behind the curves of a plot.

use super::canvas::{Canvas, Frame, RULE, SOFT};
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

/// Bands and their texts, behind the curves of a plot.
pub(super) fn draw(bands: &[Band], [x, y]: [&Scale; 2], plot: &Frame, canvas: &mut Canvas) {
    for (index, band) in bands.iter().enumerate() {
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
        let (at, anchor) = match band.on {
            // Each a line higher, so that neighbours can be read, and within the plot.
            BandAxis::X => {
                let y = plot.bottom() - 8.0 - index as f64 * 13.0;
                match left > plot.left + plot.width * 0.6 {
                    true => ((left - 4.0, y), "end"),
                    false => ((right + 4.0, y), "start"),
                }
            }
            BandAxis::Value => ((plot.left + 6.0, top - 4.0), "start"),
        };
        canvas.label(at, &band.text, 11.5, anchor);
    }
}
