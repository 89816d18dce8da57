//! P4: a static server against 10,000 connections.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Quantity};
use super::finding::{Bound, Finding, Row};
use super::select::Select;
use crate::analysis::{Measured, Metric};
use loadline_capacity::stats;

const CONNECTIONS: f64 = 10_000.0;
/// Table I over Table II at 10,000 connections: what "nearly five times" is there.
const RATIO: f64 = 4.5;
/// "Almost linear": the slope of Table I from end to end, throughput and connections as logarithms.
const EXPONENT: f64 = 0.66;
/// Largest over smallest of Table I, user and kernel together.
const CPU_SPREAD: f64 = 1.08;
/// The same of memory.
const MEMORY_SPREAD: f64 = 1.68;
/// Statix over nginx at 10,000 connections.
const MEMORY_RATIO: f64 = 1.34;

fn server(name: &'static str) -> Select {
    Select::series("connections").is("server", name)
}

fn at(name: &'static str) -> Select {
    server(name).is("connections", CONNECTIONS)
}

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let over = |metric, other: &'static str, bound, published: &str| {
        let ratio = evidence.ratio(metric, &at("handoff"), &at(other))?;
        let what = format!(
            "Handoff reactor over {other}, {} at 10,000 connections",
            metric.name()
        );
        Ok(Finding::of_ratio(&what, &ratio, bound, published))
    };
    let cpu = |trial: &Measured| {
        let part = |metric| trial.value(metric);
        Some(part(Metric::CpuUserShare)? + part(Metric::CpuKernelShare)?)
    };
    let memory = |trial: &Measured| trial.value(Metric::MemoryBytes);
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
            spread(evidence, "CPU time", &cpu, CPU_SPREAD, "1.08"),
        ),
        Row::new(
            "Its use of memory is stable from 1000 to 10,000 connections (section V, Fig. 9).",
            spread(evidence, "memory", &memory, MEMORY_SPREAD, "1.68"),
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

/// The slope of a straight line through logarithms, for each block.
fn linear(evidence: &Evidence<'_>) -> Result<Finding, String> {
    let select = server("handoff");
    let quantity = |trial: &Measured| trial.value(Metric::CompletedPerS);
    let along = evidence.along(&quantity, &select, "connections")?;
    let slopes: Vec<f64> = blocks(&along)
        .filter_map(|block| slope(&along, block))
        .collect();
    if slopes.is_empty() {
        return Err(evidence.missing(&select));
    }
    let interval = stats::mean_interval(&slopes, stats::LEVEL);
    let what = "Exponent of throughput over connections (1 is linear)";
    let bound = Bound::AtLeast(EXPONENT);
    let value = stats::mean(&slopes);
    Ok(Finding::of_quantity(
        what,
        value,
        interval,
        bound,
        "0.66 (Table I)",
    ))
}

fn blocks(along: &[(f64, BTreeMap<u32, f64>)]) -> impl Iterator<Item = u32> {
    let first = along.first().map(|(_, blocks)| blocks);
    first.into_iter().flat_map(BTreeMap::keys).copied()
}

fn slope(along: &[(f64, BTreeMap<u32, f64>)], block: u32) -> Option<f64> {
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

/// The largest over the smallest, for each block.
fn spread(
    evidence: &Evidence<'_>,
    what: &str,
    quantity: Quantity<'_>,
    most: f64,
    published: &str,
) -> Result<Finding, String> {
    let select = server("handoff");
    let along = evidence.along(quantity, &select, "connections")?;
    let of_block = |block| {
        let values = along
            .iter()
            .filter_map(move |(_, blocks)| blocks.get(&block));
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values {
            (least, most) = (least.min(*value), most.max(*value));
        }
        (most / least).ln()
    };
    let ratio = evidence.compared(blocks(&along).map(of_block), &select)?;
    let what = format!("Largest {what} over smallest, from 1000 to 10,000 connections");
    Ok(Finding::of_ratio(
        &what,
        &ratio,
        Bound::AtMost(most),
        published,
    ))
}
