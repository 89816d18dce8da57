//! Forest plots: every claim with its estimate, its interval, its bound and the published value.
//!
//! Claims are about ratios, latencies and shares. What they have in common is a bound: each value is
//! drawn as a multiple of it, so that all have one axis, and the numbers themselves stand beside it.

use super::COLOURS;
use super::canvas::{BOLD, Canvas, INK, RULE, SOFT, text_width, wrapped};
use super::scale::Scale;
use crate::report::words::digits;
use crate::report::{Claim, ClaimMeasure, Verdict};

/// Narrow, so that its text is large enough on a phone.
const WIDTH: f64 = 520.0;
/// Between texts and both edges.
const MARGIN: f64 = 16.0;
/// Where the axis begins. Numbers stand to its right, at this distance.
const AXIS_LEFT: f64 = 26.0;
const AXIS_GAP: f64 = 14.0;
/// How wide the numbers are, at least and at most: wider ones are broken, so that the ticks of the axis have room.
const NUMBERS: (f64, f64) = (160.0, 240.0);
/// Font sizes of a measure's estimate, and of what was asked for.
const ESTIMATE: f64 = 12.0;
const ASKED: f64 = 11.5;
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
/// Width of texts.
const TEXT: f64 = WIDTH - 2.0 * MARGIN;
/// Heights of a line of text, and of a measure.
const LINE: f64 = 15.0;
const ROW: f64 = 32.0;
/// The height of a line of numbers.
const NUMBER_LINE: f64 = 14.0;
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
    let ends = axis_ends(claims);
    let rows: Vec<Row<'_>> = claims.iter().map(|claim| Row::new(claim, ends)).collect();
    let titles = wrapped(title, 16.0 * BOLD, TEXT);
    let key = wrapped(KEY, 12.0, TEXT);
    let key_top = 26.0 + titles.len() as f64 * 20.0;
    let top = key_top - 6.0 + key.len() as f64 * LINE;
    let height = rows.iter().map(Row::height).sum::<f64>() + top + 64.0;
    let mut canvas = Canvas::alone(WIDTH, height);
    canvas.describe(title, &in_words(claims));
    let style = "class=\"title\" font-size=\"16\" font-weight=\"650\"";
    for (index, text) in titles.iter().enumerate() {
        canvas.text(MARGIN, 26.0 + index as f64 * 20.0, text, style);
    }
    for (index, text) in key.iter().enumerate() {
        let y = key_top + index as f64 * LINE;
        canvas.label((MARGIN, y), text, 12.0, "start");
    }
    let mut y = top + 22.0;
    axis(&mut canvas, ends, y - 4.0);
    y += 10.0;
    for row in &rows {
        row.draw(&mut canvas, y);
        y += row.height();
    }
    axis(&mut canvas, ends, y + 14.0);
    canvas.finish()
}

/// Where the axis begins and ends: the widest numbers have room to its right.
fn axis_ends(claims: &[Claim]) -> (f64, f64) {
    let measures = claims.iter().flat_map(|claim| &claim.measures);
    let widths = measures.flat_map(|measure| {
        [
            text_width(&estimate(measure), ESTIMATE),
            text_width(&asked(measure), ASKED),
        ]
    });
    let (least, most) = NUMBERS;
    let numbers = widths.fold(least, f64::max).min(most);
    (AXIS_LEFT, WIDTH - MARGIN - numbers - AXIS_GAP)
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
    ends: (f64, f64),
    head: Vec<String>,
    measures: Vec<Measure<'c>>,
}

/// A quantity with its texts in lines.
struct Measure<'c> {
    of: &'c ClaimMeasure,
    /// What it is, where a claim has several.
    what: Vec<String>,
    estimate: Vec<String>,
    asked: Vec<String>,
}

impl<'c> Row<'c> {
    fn new(claim: &'c Claim, ends: (f64, f64)) -> Self {
        let verdict = claim.verdict;
        let mut text = format!("{} {}: {}", verdict.mark(), verdict.label(), claim.text);
        if claim.measures.is_empty() {
            text += " (no single estimate)";
        }
        let is_one = claim.measures.len() < 2;
        let numbers = WIDTH - MARGIN - ends.1 - AXIS_GAP + 0.1; // what was lost in rounding
        let measures = claim.measures.iter().map(|of| Measure {
            of,
            what: wrapped(if is_one { "" } else { &of.what }, 12.0, TEXT),
            estimate: wrapped(&estimate(of), ESTIMATE, numbers),
            asked: wrapped(&asked(of), ASKED, numbers),
        });
        Self {
            claim,
            ends,
            head: wrapped(&text, 12.5, TEXT),
            measures: measures.collect(),
        }
    }

    fn height(&self) -> f64 {
        let texts = self.measures.iter().map(|it| it.what.len());
        let texts = self.head.len() + texts.sum::<usize>();
        let rows = self.measures.iter().map(Measure::height);
        texts as f64 * LINE + rows.sum::<f64>() + 12.0
    }

    fn draw(&self, canvas: &mut Canvas, top: f64) {
        canvas.line((MARGIN, top), (WIDTH - MARGIN, top), RULE, 1.0);
        let mut y = top + LINE;
        for line in &self.head {
            canvas.text(MARGIN, y, line, "font-size=\"12.5\"");
            y += LINE;
        }
        for measure in &self.measures {
            for line in &measure.what {
                canvas.label((MARGIN, y), line, 12.0, "start");
                y += LINE;
            }
            plot(canvas, measure.of, self.claim.verdict, self.ends, y - 2.0);
            let at = (self.ends.1 + AXIS_GAP, y);
            measure.draw_numbers(canvas, at);
            y += measure.height();
        }
    }
}

impl Measure<'_> {
    fn height(&self) -> f64 {
        let lines = self.estimate.len() + self.asked.len();
        let row = ROW + lines.saturating_sub(2) as f64 * NUMBER_LINE;
        match unit(self.of) {
            Some(_) => row,
            None => row.max(ROW + ENDS),
        }
    }

    fn draw_numbers(&self, canvas: &mut Canvas, (x, mut y): (f64, f64)) {
        for line in &self.estimate {
            canvas.text(x, y, line, "font-size=\"12\"");
            y += NUMBER_LINE;
        }
        for line in &self.asked {
            canvas.label((x, y), line, ASKED, "start");
            y += NUMBER_LINE;
        }
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
fn multiples_of(unit: f64, ends: (f64, f64)) -> Scale {
    Scale::exact((unit / REACH, unit * REACH), true, ends)
}

/// The axis of a row: of multiples, or evenly between two values, all of the row among them.
fn scale_of(measure: &ClaimMeasure, ends: (f64, f64)) -> Scale {
    if let Some(unit) = unit(measure) {
        return multiples_of(unit, ends);
    }
    let interval = measure.interval.iter().flat_map(|it| [it.low, it.high]);
    let bounds = measure.least.into_iter().chain(measure.most);
    let all = [measure.value].into_iter().chain(interval).chain(bounds);
    let all = all.chain(measure.published.iter().copied());
    let all: Vec<f64> = all.filter(|value| value.is_finite()).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = match high - low {
        span if span > 0.0 && span.is_finite() => (low - span / 10.0, high + span / 10.0),
        _ => (low - 1.0, low + 1.0),
    };
    Scale::exact(range, false, ends)
}

fn plot(
    canvas: &mut Canvas,
    measure: &ClaimMeasure,
    verdict: Verdict,
    ends: (f64, f64),
    middle: f64,
) {
    let scale = scale_of(measure, ends);
    let (left, right) = ends;
    let y = middle + 6.0;
    let at = |value: f64| scale.at(value);
    if measure.least.is_some() || measure.most.is_some() {
        let from = measure.least.map_or(left, at);
        let to = measure.most.map_or(right, at);
        canvas.rectangle([from, y - 9.0, to - from, 18.0], RULE, "");
    }
    if let Some(unit) = unit(measure) {
        canvas.line((at(unit), y - 13.0), (at(unit), y + 13.0), SOFT, 1.0);
    } else {
        canvas.line((left, y + 11.0), (right, y + 11.0), SOFT, 1.0);
        for (x, value, anchor) in [(left, scale.low, "start"), (right, scale.high, "end")] {
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

fn axis(canvas: &mut Canvas, ends: (f64, f64), y: f64) {
    let scale = multiples_of(1.0, ends);
    for (multiple, text) in TICKS {
        canvas.label((scale.at(multiple), y), text, 11.5, "middle");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{outside, touching};
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
        let (left, right) = (20.0, 300.0);
        let scale = multiples_of(1.0, (left, right));
        let at_bound = (scale.at(1.0), scale.contains(1.0));
        assert_eq!(at_bound, ((left + right) / 2.0, true));
        let beyond = (scale.at(100.0), scale.contains(100.0));
        assert_eq!(beyond, (right, false));
        assert!(!scale.contains(0.0) && scale.at(0.0) < left + 0.1);
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
        assert_eq!(outside(&svg), [""; 0], "{svg}");
        let scale = scale_of(&claims[0].measures[2], (20.0, 300.0));
        let at = |value: f64| scale.at(value);
        assert!(20.0 < at(-0.03) && at(-0.03) < at(0.01) && at(0.01) < at(0.03));
        assert!((at(0.01) - at(0.0) - at(0.02) + at(0.01)).abs() < 1e-9);
    }
    #[test]
    fn the_longest_numbers_are_within_the_picture() {
        let long = |value, low, high, published| ClaimMeasure {
            value,
            interval: Some(Interval {
                low,
                high,
                level: 0.95,
            }),
            published: vec![published],
            ..ClaimMeasure::default()
        };
        let measures = [
            long(-0.006_92, -0.0197, 0.005_87, 0.03),
            long(13_001_004.0, 11_736_759.0, 14_401_429.0, 13_740_000.0),
            long(48_894.0, 0.0, 8.05e23, 16_640.0),
        ];
        for measure in measures {
            let title =
                "P4, on another machine: what was claimed, what was measured and what is left";
            let claims = [claim(Verdict::NotComparable, "It falls.", vec![measure])];
            let svg = forest(title, &claims);
            assert_eq!(outside(&svg), [""; 0], "{svg}");
            assert_eq!(touching(&svg), [""; 0], "{svg}");
        }
    }
}
