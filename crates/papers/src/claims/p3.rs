//! P3: four architectures under a constant rate.

use loadline_lab::analysis::{Measured, Metric};

use super::evidence::Evidence;
use super::finding::{Bound, ClaimFinding, Row, number};
use super::select::Select;

const RATE_PER_S: f64 = 200_000.0;
const CONNECTIONS: f64 = 2000.0;
/// A rate that small machines carry too.
const MODEST_PER_S: f64 = 10_000.0;
/// Of connections, that are said to starve: "all but one" and "half of them". wrk2's counts in the paper,
/// with a timeout every 2 s for each, give 96 % and 47 %.
const ALL_SHARE: f64 = 0.95;
const HALF: (f64, f64) = (0.4, 0.6);
/// Fewer failures than so many are none to speak of: the paper's own are 11 of 3.5 million.
const NONE_SHARE: f64 = 0.001;
const SECOND_US: f64 = 1e6;

const BLOCKING: &str = "one blocking thread";
const POOL: &str = "1000 threads";
const LOOP: &str = "one event loop";
const LOOPS: &str = "several event loops";

fn at(rate_per_s: f64, model: &'static str) -> Select {
    Select::series("rates")
        .is("rate_per_s", rate_per_s)
        .is("model", model)
}

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let starved = |rate, model, bound, published| starved(evidence, rate, model, bound, published);
    let half = Bound::Within(HALF.0, HALF.1);
    let all = Bound::AtLeast(ALL_SHARE);
    let mut rows = vec![
        Row::new(
            "One blocking thread starves all connections but one (first output).",
            starved(RATE_PER_S, BLOCKING, all, "0.96 (28,860 timeouts)"),
        ),
        Row::new(
            "The same at a rate that this machine can carry.",
            starved(MODEST_PER_S, BLOCKING, all, ""),
        ),
        Row::new(
            "1000 threads serve 1000 of 2000 connections, and the others starve (second output).",
            starved(RATE_PER_S, POOL, half, "0.47 (14,000 timeouts)"),
        ),
        Row::new(
            "The same at a rate that this machine can carry.",
            starved(MODEST_PER_S, POOL, half, ""),
        ),
    ];
    rows.extend(event_loops(evidence));
    rows
}

/// What is claimed of one event loop and of several.
fn event_loops(evidence: &Evidence<'_>) -> Vec<Row> {
    let of = |rate, model, metric, bound, published| {
        quantity(evidence, rate, model, metric, bound, published)
    };
    let none = Bound::AtMost(NONE_SHARE);
    vec![
        Row::new(
            "One event loop serves all connections (third output).",
            of(
                RATE_PER_S,
                LOOP,
                Metric::ErrorShare,
                none,
                "11 of 3,524,675",
            ),
        ),
        Row::new(
            "One event loop serves them at seconds of latency (third output).",
            of(
                RATE_PER_S,
                LOOP,
                Metric::MeanUs,
                Bound::AtLeast(SECOND_US),
                "8,180,000 us",
            ),
        ),
        Row::new(
            "Several event loops serve all with no timeout (fourth output).",
            of(RATE_PER_S, LOOPS, Metric::ErrorShare, none, "0"),
        ),
        Row::new(
            "The same at a rate that this machine can carry.",
            of(MODEST_PER_S, LOOPS, Metric::ErrorShare, none, ""),
        ),
        Row::new(
            "The latency of several event loops stays below a second (fourth output).",
            of(
                RATE_PER_S,
                LOOPS,
                Metric::MeanUs,
                Bound::AtMost(SECOND_US),
                "16,640 us on average",
            ),
        ),
        Row::new(
            "Several event loops complete the 200,000 requests a second (fourth output).",
            completed(evidence),
        ),
        Row::new(
            "Several event loops serve more than one, one more than 1000 threads, and these more than \
             one blocking thread (all outputs).",
            ordered(evidence),
        ),
    ]
}

/// The share of connections that wait in vain. One whose answer does not come is given up and opened
/// anew, so those that were opened and not given up are those that were served. Timeouts for each
/// second would not tell: a short run has too few of them for each connection, and once the kernel's
/// queue is full of connections that were given up, no new ones come to be that could wait.
fn starved(
    evidence: &Evidence<'_>,
    rate_per_s: f64,
    model: &'static str,
    bound: Bound,
    published: &str,
) -> Result<ClaimFinding, String> {
    let share = |trial: &Measured| {
        let served = trial.connections.checked_sub(trial.timeouts)?;
        Some(1.0 - served as f64 / CONNECTIONS)
    };
    let (value, interval) = evidence.mean(&share, &at(rate_per_s, model))?;
    let what = format!(
        "{model}: share of {} connections that wait in vain at {}/s",
        number(CONNECTIONS),
        number(rate_per_s)
    );
    Ok(ClaimFinding::of_quantity(
        &what, value, interval, bound, published,
    ))
}

fn quantity(
    evidence: &Evidence<'_>,
    rate_per_s: f64,
    model: &'static str,
    metric: Metric,
    bound: Bound,
    published: &str,
) -> Result<ClaimFinding, String> {
    let (value, interval) = evidence.mean(&|trial| trial.value(metric), &at(rate_per_s, model))?;
    let what = format!("{model}, {} at {}/s", metric.name(), number(rate_per_s));
    Ok(ClaimFinding::of_quantity(
        &what, value, interval, bound, published,
    ))
}

/// How much of the rate a machine carries is its own; how much more than one loop, is `ordered`.
fn completed(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let per_s = |trial: &Measured| trial.value(Metric::CompletedPerS);
    let measured = evidence.mean(&per_s, &at(RATE_PER_S, LOOPS))?;
    let what = format!("{LOOPS}: completed a second at {}/s", number(RATE_PER_S));
    Ok(ClaimFinding::not_comparable(&what, measured, "190,965/s"))
}

fn ordered(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let mut finding: Option<ClaimFinding> = None;
    let pairs = [
        (LOOPS, LOOP, "1.63"),
        (LOOP, POOL, "1.21"),
        (POOL, BLOCKING, "990"),
    ];
    let one_of = evidence.among(pairs.len());
    for (more, less, published) in pairs {
        let (this, other) = (at(RATE_PER_S, more), at(RATE_PER_S, less));
        let ratio = one_of.ratio(Metric::GoodPerS, &this, &other)?;
        let what = format!("{more} over {less}");
        let one = ClaimFinding::of_ratio(&what, &ratio, Bound::AtLeast(1.0), published);
        finding = Some(match finding {
            None => one,
            Some(before) => before.and(one),
        });
    }
    finding.ok_or_else(|| evidence.missing(&Select::series("rates")))
}
