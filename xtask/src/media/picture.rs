//! The same run as a drawing: time runs over the whole width, so that a player can point into it.

use std::fmt::Write as _;

use super::score::{CAPACITY, QUEUE_MAX, SECONDS, Score, offered_rate};

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 400.0;
/// Lanes from top to bottom: where each has its zero line, and how high it is.
const RATE_LANE: (f64, f64) = (124.0, 100.0);
const QUEUE_LANE: (f64, f64) = (234.0, 84.0);
const LATENCY_LANE: (f64, f64) = (372.0, 112.0);
const RATE_SHOWN_MAX: f64 = 100.0;
/// The latency lane is logarithmic, between these two.
const LATENCY_SHOWN: (f64, f64) = (0.001, 3.0);

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#33475b}\
.axis{stroke:#9fb0bf;stroke-width:1}.limit{stroke:#c2410c;stroke-dasharray:5 4}\
.rate{fill:#0e7490;fill-opacity:.18;stroke:#0e7490;stroke-width:2}\
.queue{fill:#b45309;fill-opacity:.3;stroke:#b45309;stroke-width:1.5}\
.answer{fill:#0e7490;fill-opacity:.55}.refused{fill:#c2410c}\
@media(prefers-color-scheme:dark){text{fill:#b9c7d6}.axis{stroke:#4a5f75}\
.rate{fill:#38bdf8;stroke:#38bdf8}.queue{fill:#fbbf24;stroke:#fbbf24}\
.answer{fill:#7dd3fc}.refused{fill:#fb923c}.limit{stroke:#fb923c}}";

/// The run as an SVG document.
pub(crate) fn draw(score: &Score, recipe: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\"><!-- {recipe} --><style>{STYLE}</style>\n"
    );
    lane(&mut svg, RATE_LANE, "offered rate, requests per second");
    let limit = RATE_LANE.0 - CAPACITY / RATE_SHOWN_MAX * RATE_LANE.1;
    let _ = writeln!(
        svg,
        "<path class=\"limit\" d=\"M0 {limit:.1}H{WIDTH}\"/>\
         <text x=\"8\" y=\"{:.1}\">capacity {CAPACITY:.0} / s</text>",
        limit - 6.0
    );
    let rate = |time| offered_rate(time) / RATE_SHOWN_MAX;
    area(&mut svg, "rate", RATE_LANE, 0.1, rate);
    lane(&mut svg, QUEUE_LANE, "requests inside the server");
    let queue = |time| score.inside(time) as f64 / (QUEUE_MAX + 1) as f64;
    area(&mut svg, "queue", QUEUE_LANE, 0.04, queue);
    lane(
        &mut svg,
        LATENCY_LANE,
        "each answer by its latency, 1 ms to 3 s",
    );
    answers(&mut svg, score);
    for second in (5..SECONDS as u32).step_by(5) {
        let x = x_of(f64::from(second));
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"392\" text-anchor=\"middle\">{second} s</text>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn x_of(time: f64) -> f64 {
    time / SECONDS * WIDTH
}

/// A zero line with its title above.
fn lane(svg: &mut String, (zero, height): (f64, f64), title: &str) {
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M0 {zero}H{WIDTH}\"/><text x=\"8\" y=\"{:.1}\">{title}</text>",
        zero - height + 4.0
    );
}

/// A filled curve of `share` (0 to 1) over the whole time.
fn area(svg: &mut String, class: &str, lane: (f64, f64), step: f64, share: impl Fn(f64) -> f64) {
    let _ = write!(svg, "<path class=\"{class}\" d=\"M0 {}", lane.0);
    let mut time = 0.0;
    while time <= SECONDS {
        let y = lane.0 - share(time).min(1.0) * lane.1;
        let _ = write!(svg, "L{:.1} {y:.1}", x_of(time));
        time += step;
    }
    let _ = writeln!(svg, "L{WIDTH} {}Z\"/>", lane.0);
}

/// A dot for each answer; refused requests stand on the lane's upper edge.
fn answers(svg: &mut String, score: &Score) {
    let (zero, height) = LATENCY_LANE;
    let span = (LATENCY_SHOWN.1 / LATENCY_SHOWN.0).ln();
    for request in &score.requests {
        let (class, time, share) = match request.answered {
            Some(at) => (
                "answer",
                at,
                ((at - request.came) / LATENCY_SHOWN.0).ln() / span,
            ),
            None => ("refused", request.came, 1.0),
        };
        let (x, y) = (x_of(time), zero - share.clamp(0.0, 1.0) * height);
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_drawn_inside_the_frame() {
        let score = Score::simulate();
        let svg = draw(&score, "a recipe");
        assert_eq!(svg.matches("<circle").count(), score.requests.len());
        for part in svg.split("<circle").skip(1) {
            let x: f64 = part
                .split("cx=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            assert!((0.0..=WIDTH).contains(&x));
        }
    }
}
