//! The form of `vegeta report`, from its source (github.com/tsenart/vegeta, `lib/reporters.go`,
//! `lib/metrics.go`).
//!
//! `Latencies` count from when a request was due, not from when a worker got to it, and are of
//! complete answers only; vegeta mixes the failed ones in. Status 0 is vegeta's for a request
//! without an answer. `Bytes In` are content, as there; `Bytes Out` are all bytes sent, heads
//! included, where vegeta counts content alone.

use loadline_base::sorting::sort;

use super::Block;
use super::family::go_rounded;
use super::parts::{Fates, over};
use super::words::reason;
use crate::distribution::value_at_percent;
use crate::{Distribution, ErrorKind, Tally};

pub(super) fn text(block: &Block<'_>) -> String {
    let results = block.results;
    let tally = &results.tally;
    let fates = Fates::of(tally);
    let total = fates.done();
    let (attack_s, wait_s) = (results.seconds, block.wait_s);
    let succeeded = (tally.statuses[1] + tally.statuses[2]) as f64;
    let requests = format!(
        "{total}, {:.2}, {:.2}",
        over(total as f64, attack_s),
        over(succeeded, attack_s + wait_s)
    );
    let span = |seconds: f64| go_rounded((seconds * 1e9).round() as u64);
    let duration = [attack_s + wait_s, attack_s, wait_s].map(span).join(", ");
    let with_mean = |bytes: u64| format!("{bytes}, {:.2}", bytes as f64 / total.max(1) as f64);
    let rows = [
        ("Requests", "[total, rate, throughput]", requests),
        ("Duration", "[total, attack, wait]", duration),
        (
            "Latencies",
            "[min, mean, 50, 90, 95, 99, max]",
            latencies(&results.latency),
        ),
        ("Bytes In", "[total, mean]", with_mean(tally.content_bytes)),
        ("Bytes Out", "[total, mean]", with_mean(tally.bytes_sent)),
        (
            "Success",
            "[ratio]",
            format!("{:.2}%", over(succeeded, total as f64) * 100.0),
        ),
        ("Status Codes", "[code:count]", codes(tally, fates.errored)),
    ];
    let mut out = String::new();
    for (name, fields, values) in rows {
        out += &format!("{name:<14}{fields:<34}{values}\n");
    }
    out += "Error Set:\n";
    for error in error_set(tally) {
        out += &format!("{error}\n");
    }
    out
}

fn latencies(latency: &Distribution) -> String {
    let at = |percent: f64| value_at_percent(latency.histogram(), percent) * 1000;
    let mean_ns = (latency.mean_us().unwrap_or(0.0) * 1000.0).round() as u64;
    let all_ns = [
        latency.min_us().unwrap_or(0) * 1000,
        mean_ns,
        at(50.0),
        at(90.0),
        at(95.0),
        at(99.0),
        latency.max_us().unwrap_or(0) * 1000,
    ];
    all_ns.map(go_rounded).join(", ")
}

/// In the order of their texts, each followed by two spaces.
fn codes(tally: &Tally, unanswered: u64) -> String {
    let mut counts: Vec<(String, u64)> = Vec::new();
    if unanswered > 0 {
        counts.push(("0".to_owned(), unanswered));
    }
    for (status, count) in &tally.status_codes {
        counts.push((status.to_string(), *count));
    }
    // Answers that were counted by class alone.
    for (index, class_count) in tally.statuses.iter().enumerate() {
        let class = index as u16 + 1;
        let exact = tally.status_codes.iter();
        let exact = exact.filter(|(status, _)| status / 100 == class);
        let exact: u64 = exact.map(|(_, count)| count).sum();
        if *class_count > exact {
            counts.push((format!("{class}xx"), class_count - exact));
        }
    }
    sort(&mut counts);
    counts
        .iter()
        .map(|(code, count)| format!("{code}:{count}  "))
        .collect()
}

/// Each error once: statuses by their names, the others in words.
fn error_set(tally: &Tally) -> Vec<String> {
    let statuses = tally.status_codes.iter().map(|(status, _)| *status);
    let failed = statuses.filter(|status| *status >= 400);
    let named = failed.map(|status| format!("{status} {}", reason(status)));
    let mut errors: Vec<String> = named.map(|name| name.trim_end().to_owned()).collect();
    for kind in ErrorKind::ALL {
        if tally.errors_of(kind) > 0 && !kind.is_of_status() {
            errors.push(kind.words().to_owned());
        }
    }
    errors
}
