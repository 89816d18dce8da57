//! P4: a static server against 10,000 connections.

use std::collections::BTreeMap;

use loadline_capacity::stats;
use loadline_lab::analysis::{Measured, Metric};

use super::evidence::{Along, Evidence, Quantity};
use super::finding::{Bound, ClaimFinding, Row};
use super::select::Select;

const FEWEST: f64 = 1000.0;
const CONNECTIONS: f64 = 10_000.0;
/// Table I over Table II at 10,000 connections: what "nearly five times" is there.
const RATIO: f64 = 4.5;
/// "Almost linear": the slope of Table I from end to end, throughput and connections as logarithms.
const EXPONENT: f64 = 0.66;
/// Largest over smallest of Table I, user and kernel together. What noise alone makes of ten cells is
/// more, so that what is judged is how it changes from end to end, by the slope through all of them.
const CPU_SPREAD: f64 = 1.08;
/// 10,000 connections over 1000 in Table I, which are the most and the least of it.
const MEMORY_GROWTH: f64 = 1.68;
/// A server just like theirs would fail half of the time at the published number itself.
const MARGIN: f64 = 1.1;
/// Statix over nginx at 10,000 connections.
const MEMORY_RATIO: f64 = 1.34;

fn server(name: &'static str) -> Select {
    Select::series("connections").is("server", name)
}

fn at(name: &'static str) -> Select {
    server(name).is("connections", CONNECTIONS)
}

/// The slope of logarithms of something that changes by a factor from end to end.
fn slope_of(factor: f64) -> f64 {
    factor.ln() / (CONNECTIONS / FEWEST).ln()
}

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let over = |metric, other: &'static str, bound, published: &str| {
        let ratio = evidence.ratio(metric, &at("handoff"), &at(other))?;
        let what = format!(
            "Handoff reactor over {other}, {} at 10,000 connections",
            metric.name()
        );
        Ok(ClaimFinding::of_ratio(&what, &ratio, bound, published))
    };
    let cpu = |trial: &Measured| {
        let part = |metric| trial.value(metric);
        Some(part(Metric::CpuUserShare)? + part(Metric::CpuKernelShare)?)
    };
    vec![
        Row::new(
            "It serves nearly five times what nginx does at 10,000 connections (Tables I and II: 4.5).",
            over(
                Metric::CompletedPerS,
                "nginx",
                Bound::AtLeast(RATIO),
                "4.50",
            ),
        ),
        Row::new(
            "The same against nginx tuned.",
            over(
                Metric::CompletedPerS,
                "nginx-tuned",
                Bound::AtLeast(RATIO),
                "",
            ),
        ),
        Row::new(
            "Throughput grows almost linearly with connections (section V, Fig. 7).",
            linear(evidence),
        ),
        Row::new(
            "Its use of CPUs is stable from 1000 to 10,000 connections (section V, Fig. 9).",
            stable(evidence, &cpu),
        ),
        Row::new(
            "Its use of memory is stable from 1000 to 10,000 connections (section V, Fig. 9).",
            memory_grows(evidence),
        ),
        Row::new(
            "It takes 1.34 times nginx's memory at 10,000 connections, and no more (Tables I and II).",
            over(
                Metric::MemoryBytes,
                "nginx",
                Bound::AtMost(MEMORY_RATIO),
                "1.34",
            ),
        ),
    ]
}

fn linear(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let throughput = |trial: &Measured| trial.value(Metric::CompletedPerS);
    let what = "Exponent of throughput over connections (1 is linear)";
    let bound = Bound::AtLeast(EXPONENT);
    exponent(evidence, &throughput, what, bound, "0.66 (Table I)")
}

/// Neither growing nor shrinking by more than what was published as stable.
fn stable(evidence: &Evidence<'_>, cpu: Quantity<'_>) -> Result<ClaimFinding, String> {
    let most = slope_of(CPU_SPREAD);
    let what = "Exponent of CPU time over connections (0 is stable; 0.0334 is 1.08 times as much \
                from 1000 to 10,000)";
    let bound = Bound::Within(-most, most);
    exponent(evidence, cpu, what, bound, "1.08 times (Table I)")
}

fn memory_grows(evidence: &Evidence<'_>) -> Result<ClaimFinding, String> {
    let fewest = server("handoff").is("connections", FEWEST);
    let ratio = evidence.ratio(Metric::MemoryBytes, &at("handoff"), &fewest)?;
    let most = MEMORY_GROWTH * MARGIN;
    let what = "Memory at 10,000 connections over that at 1000 (the bound is what was published and \
                10 % more)";
    let bound = Bound::Within(1.0 / most, most);
    Ok(ClaimFinding::of_ratio(
        what,
        &ratio,
        bound,
        "1.68 (Table I)",
    ))
}

/// The slope of a straight line through logarithms, for each block.
fn exponent(
    evidence: &Evidence<'_>,
    quantity: Quantity<'_>,
    what: &str,
    bound: Bound,
    published: &str,
) -> Result<ClaimFinding, String> {
    let select = server("handoff");
    let along = evidence.along(quantity, &select, "connections")?;
    let slopes: Vec<f64> = blocks(&along)
        .filter_map(|block| slope(&along, block))
        .collect();
    if slopes.is_empty() {
        return Err(evidence.missing(&select));
    }
    let interval = stats::mean_interval(&slopes, evidence.level);
    let value = stats::mean(&slopes);
    Ok(ClaimFinding::of_quantity(
        what, value, interval, bound, published,
    ))
}

fn blocks(along: &Along) -> impl Iterator<Item = u32> {
    let first = along.first().map(|(_, blocks)| blocks);
    first.into_iter().flat_map(BTreeMap::keys).copied()
}

fn slope(along: &Along, block: u32) -> Option<f64> {
    let points = along
        .iter()
        .filter_map(|(x, blocks)| Some((x.ln(), blocks.get(&block)?.ln())));
    let points: Vec<(f64, f64)> = points.collect();
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x_mean, y_mean) = (stats::mean(&xs), stats::mean(&ys));
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    let products: f64 = points
        .iter()
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    (squares > 0.0).then(|| products / squares)
}
