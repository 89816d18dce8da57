//! Forest plots: every claim with its estimate, its interval, its bound and the published value.
//!
//! Claims are about ratios, latencies and shares. What they have in common is a bound: each value is
//! drawn as a multiple of it, so that all have one axis, and the numbers themselves stand beside it.

use super::COLOURS;
use super::canvas::{Canvas, INK, RULE, SOFT, wrapped};
use super::scale::Scale;
use crate::report::words::digits;
use crate::report::{Claim, ClaimMeasure, Verdict};

/// Narrow, so that its text is large enough on a phone.
const WIDTH: f64 = 520.0;
/// Where the axis begins and ends; numbers stand to its right.
const AXIS: (f64, f64) = (26.0, 330.0);
/// The axis reaches from a tenth of the bound to ten times.
const REACH: f64 = 10.0;
const TICKS: [(f64, &str); 7] = [
    (0.1, "1/10"),
    (0.2, "1/5"),
    (0.5, "1/2"),
    (1.0, "bound"),
    (2.0, "2 x"),
    (5.0, "5 x"),
    (10.0, "10 x"),
];
const LINE_CHARACTERS: usize = 70;
/// Heights of a line of text, and of a measure.
const LINE: f64 = 15.0;
const ROW: f64 = 32.0;
/// What the ends of an axis of its own need below a measure.
const ENDS: f64 = 13.0;

/// How to read it.
const KEY: &str = "Filled marks are decided claims, hollow ones are not. Bars are intervals, corrected for \
    the number of claims; tall ticks are published values. A claim holds where it is shaded. Values are \
    multiples of the bound, or of the published value if there is no bound; arrows: it lies farther out. Where these \
    are not above 0, the row has an axis of its own, with even steps between the two numbers below it.";

/// Draws all claims, in their order.
#[must_use]
pub fn forest(title: &str, claims: &[Claim]) -> String {
    let rows: Vec<Row<'_>> = claims.iter().map(Row::new).collect();
    let key = wrapped(KEY, LINE_CHARACTERS);
    let top = 40.0 + key.len() as f64 * LINE;
    let height = rows.iter().map(Row::height).sum::<f64>() + top + 64.0;
    let mut canvas = Canvas::alone(WIDTH, height);
    canvas.describe(title, &in_words(claims));
    let style = "class=\"title\" font-size=\"16\" font-weight=\"650\"";
    canvas.text(16.0, 26.0, title, style);
    for (index, text) in key.iter().enumerate() {
        let y = 46.0 + index as f64 * LINE;
        canvas.label((16.0, y), text, 12.0, "start");
    }
    let mut y = top + 22.0;
    axis(&mut canvas, y - 4.0);
    y += 10.0;
    for row in &rows {
        row.draw(&mut canvas, y);
        y += row.height();
    }
    axis(&mut canvas, y + 14.0);
    canvas.finish()
}

/// The same as a text: a sentence for each claim.
fn in_words(claims: &[Claim]) -> String {
    let sentence = |claim: &Claim| {
        let measures = claim.measures.iter();
        let measures = measures.map(|it| format!(" {}; {}.", estimate(it), asked(it)));
        let verdict = claim.verdict.label();
        format!("{verdict}: {}{}", claim.text, measures.collect::<String>())
    };
    claims.iter().map(sentence).collect::<Vec<_>>().join("\n")
}

/// A claim with its text in lines.
struct Row<'c> {
    claim: &'c Claim,
    head: Vec<String>,
    /// Each with what it is of, where a claim has several.
    measures: Vec<(Vec<String>, &'c ClaimMeasure)>,
}

impl<'c> Row<'c> {
    fn new(claim: &'c Claim) -> Self {
        let verdict = claim.verdict;
        let mut text = format!("{} {}: {}", verdict.mark(), verdict.label(), claim.text);
        if claim.measures.is_empty() {
            text += " (no single estimate)";
        }
        let is_one = claim.measures.len() < 2;
        let measures = claim.measures.iter().map(|measure| {
            let what = if is_one { "" } else { &measure.what };
            (wrapped(what, LINE_CHARACTERS), measure)
        });
        Self {
            claim,
            head: wrapped(&text, LINE_CHARACTERS),
            measures: measures.collect(),
        }
    }

    fn height(&self) -> f64 {
        let texts = self.measures.iter().map(|(what, _)| what.len());
        let texts = self.head.len() + texts.sum::<usize>();
        let rows = self.measures.iter().map(|(_, measure)| row_height(measure));
        texts as f64 * LINE + rows.sum::<f64>() + 12.0
    }

    fn draw(&self, canvas: &mut Canvas, top: f64) {
        canvas.line((16.0, top), (WIDTH - 16.0, top), RULE, 1.0);
        let mut y = top + LINE;
        for line in &self.head {
            canvas.text(16.0, y, line, "font-size=\"12.5\"");
            y += LINE;
        }
        for (what, measure) in &self.measures {
            for line in what {
                canvas.label((16.0, y), line, 12.0, "start");
                y += LINE;
            }
            plot(canvas, measure, self.claim.verdict, y - 2.0);
            let x = AXIS.1 + 14.0;
            canvas.text(x, y, &estimate(measure), "font-size=\"12\"");
            canvas.label((x, y + 14.0), &asked(measure), 11.5, "start");
            y += row_height(measure);
        }
    }
}

fn row_height(measure: &ClaimMeasure) -> f64 {
    match unit(measure) {
        Some(_) => ROW,
        None => ROW + ENDS,
    }
}

/// "3.46 (3.1 to 3.9)".
fn estimate(measure: &ClaimMeasure) -> String {
    let value = digits(measure.value, 3);
    match &measure.interval {
        Some(it) => format!("{value} ({} to {})", digits(it.low, 3), digits(it.high, 3)),
        None => value,
    }
}

/// "at least 3; published 3".
fn asked(measure: &ClaimMeasure) -> String {
    let bound = match (measure.least, measure.most) {
        (Some(least), Some(most)) => format!("{} to {}", digits(least, 3), digits(most, 3)),
        (Some(least), None) => format!("at least {}", digits(least, 3)),
        (None, Some(most)) => format!("at most {}", digits(most, 3)),
        (None, None) => "not judged".to_owned(),
    };
    let published = measure.published.iter().map(|it| digits(*it, 3));
    let published = published.collect::<Vec<_>>().join(" to ");
    match published.is_empty() {
        true => bound,
        false => format!("{bound}; published {published}"),
    }
}

/// What stands at 1; `None`: nothing is above 0, so that there are no multiples of it.
fn unit(measure: &ClaimMeasure) -> Option<f64> {
    let published = measure.published.first().copied();
    let unit = measure.least.or(measure.most).or(published);
    unit.filter(|it| *it > 0.0)
}

/// The axis of multiples of a value.
fn multiples_of(unit: f64) -> Scale {
    Scale::exact((unit / REACH, unit * REACH), true, AXIS)
}

/// The axis of a row: of multiples, or evenly between two values, all of the row among them.
fn scale_of(measure: &ClaimMeasure) -> Scale {
    if let Some(unit) = unit(measure) {
        return multiples_of(unit);
    }
    let interval = measure.interval.iter().flat_map(|it| [it.low, it.high]);
    let bounds = measure.least.into_iter().chain(measure.most);
    let all = [measure.value].into_iter().chain(interval).chain(bounds);
    let all = all.chain(measure.published.iter().copied());
    let all: Vec<f64> = all.filter(|value| value.is_finite()).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let ends = match high - low {
        span if span > 0.0 && span.is_finite() => (low - span / 10.0, high + span / 10.0),
        _ => (low - 1.0, low + 1.0),
    };
    Scale::exact(ends, false, AXIS)
}

fn plot(canvas: &mut Canvas, measure: &ClaimMeasure, verdict: Verdict, middle: f64) {
    let scale = scale_of(measure);
    let y = middle + 6.0;
    let at = |value: f64| scale.at(value);
    if measure.least.is_some() || measure.most.is_some() {
        let from = measure.least.map_or(AXIS.0, at);
        let to = measure.most.map_or(AXIS.1, at);
        canvas.rectangle([from, y - 9.0, to - from, 18.0], RULE, "");
    }
    if let Some(unit) = unit(measure) {
        canvas.line((at(unit), y - 13.0), (at(unit), y + 13.0), SOFT, 1.0);
    } else {
        canvas.line((AXIS.0, y + 11.0), (AXIS.1, y + 11.0), SOFT, 1.0);
        for (x, value, anchor) in [(AXIS.0, scale.low, "start"), (AXIS.1, scale.high, "end")] {
            canvas.label((x, y + 11.0 + ENDS), &digits(value, 2), 11.0, anchor);
        }
        for x in measure.least.into_iter().chain(measure.most).map(at) {
            canvas.line((x, y - 13.0), (x, y + 11.0), SOFT, 1.0);
        }
    }
    for x in measure.published.iter().copied().map(at) {
        canvas.line((x, y - 11.0), (x, y + 11.0), INK, 2.4);
    }
    let (colour, form, is_hollow) = match verdict {
        Verdict::Reproduced => (COLOURS[0], 0, false),
        Verdict::NotReproduced => (COLOURS[1], 1, false),
        Verdict::NotTestable => (SOFT, 2, true),
        Verdict::NotComparable => (INK, 3, true),
    };
    if let Some(interval) = &measure.interval {
        let (low, high) = (at(interval.low), at(interval.high));
        canvas.line((low, y), (high, y), colour, 2.2);
        for (x, end, inward) in [(low, interval.low, 6.0), (high, interval.high, -6.0)] {
            // An arrow where the axis ends before it.
            let back = if scale.contains(end) { 0.0 } else { inward };
            let points = [(x + back, y - 5.0), (x, y), (x + back, y + 5.0)];
            let style = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"");
            canvas.path(&points, false, &style);
        }
    }
    canvas.marker((at(measure.value), y), form, colour, is_hollow);
}

fn axis(canvas: &mut Canvas, y: f64) {
    let scale = multiples_of(1.0);
    for (multiple, text) in TICKS {
        canvas.label((scale.at(multiple), y), text, 11.5, "middle");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadline_capacity::stats::Interval;

    fn claim(verdict: Verdict, text: &str, measures: Vec<ClaimMeasure>) -> Claim {
        Claim {
            paper: "P1".to_owned(),
            text: text.to_owned(),
            source: String::new(),
            published: String::new(),
            verdict,
            why: String::new(),
            interval: None,
            measures,
            undecided: None,
        }
    }

    fn measure(value: f64, least: Option<f64>, most: Option<f64>) -> ClaimMeasure {
        ClaimMeasure {
            what: "several over one".to_owned(),
            value,
            interval: Some(Interval {
                low: value * 0.9,
                high: value * 1.1,
                level: 0.95,
            }),
            blocks: None,
            least,
            most,
            published: vec![3.0],
        }
    }

    #[test]
    fn each_claim_stands_there_with_its_numbers_and_in_words() {
        let claims = [
            claim(
                Verdict::Reproduced,
                "Several <loops> reach 3 times one.",
                vec![measure(4.0, Some(3.0), None)],
            ),
            claim(Verdict::NotReproduced, "It falls.", Vec::new()),
        ];
        let svg = forest("P1: all claims", &claims);
        for part in [
            "viewBox=\"0 0 520 ",
            "<title>P1: all claims</title><desc>Reproduced: Several &lt;loops&gt; reach 3 times one. \
             4 (3.6 to 4.4); at least 3; published 3.\nNot reproduced: It falls.</desc>",
            "✓ Reproduced: Several &lt;loops&gt;",
            "It falls. (no single estimate)",
            "prefers-color-scheme:dark",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // The form of a mark shows the verdict, too: one circle.
        assert_eq!(svg.matches("<circle").count(), 1);
        assert_eq!(forest("P1: all claims", &claims), svg);
    }

    #[test]
    fn values_are_multiples_of_their_bound() {
        let scale = multiples_of(1.0);
        let at_bound = (scale.at(1.0), scale.contains(1.0));
        assert_eq!(at_bound, ((AXIS.0 + AXIS.1) / 2.0, true));
        let beyond = (scale.at(100.0), scale.contains(100.0));
        assert_eq!(beyond, (AXIS.1, false));
        assert!(!scale.contains(0.0) && scale.at(0.0) < AXIS.0 + 0.1);
        for (least, most, expected) in [
            (Some(2.0), None, Some(2.0)),
            (None, Some(5.0), Some(5.0)),
            (Some(0.9), Some(1.1), Some(0.9)),
            (None, None, Some(3.0)),
            (None, Some(0.0), None),
            (Some(-0.03), Some(0.03), None),
        ] {
            assert_eq!(unit(&measure(1.0, least, most)), expected);
        }
    }

    /// Bounds of 0 and below have no multiples: such a row has an axis of its own.
    #[test]
    fn each_measure_has_a_mark() {
        let measures = vec![
            measure(4.0, Some(3.0), None),
            measure(0.0, None, Some(0.0)),
            measure(0.01, Some(-0.03), Some(0.03)),
            measure(-5.0, Some(0.0), None),
            ClaimMeasure {
                value: 0.0,
                ..ClaimMeasure::default()
            },
            // What lies beyond the axis stands at its end.
            measure(f64::MAX, Some(1.0), None),
        ];
        let count = measures.len();
        let claims = [claim(Verdict::Reproduced, "All of it.", measures)];
        let svg = forest("P2", &claims);
        assert_eq!(svg.matches("<circle").count(), count, "{svg}");
        assert!(svg.contains("at most 0; published 3"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let scale = scale_of(&claims[0].measures[2]);
        let at = |value: f64| scale.at(value);
        assert!(AXIS.0 < at(-0.03) && at(-0.03) < at(0.01) && at(0.01) < at(0.03));
        assert!((at(0.01) - at(0.0) - at(0.02) + at(0.01)).abs() < 1e-9);
    }
}
