//! Latencies on the status page: by listener and mount.

use std::collections::BTreeMap;

use loadline_proto::latency::{HistogramCounts, LISTENERS_MEASURED, MOUNTS_MEASURED};
use loadline_server::{ListenAddr, Timings};
use serde_json::{Value, json};

use crate::exposition::Exposition;

/// Buckets for Prometheus: powers of two from 64 us to a minute. The server's own are finer; these are
/// exact sums of them, and few enough to be stored.
const POWER_MIN: u32 = 6;
const POWERS: usize = 21;

/// The names of listeners and mounts.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    listeners: Vec<String>,
    mounts: Vec<String>,
}

impl Labels {
    pub(crate) fn new(listeners: &[ListenAddr], mounts: Vec<String>) -> Self {
        Self {
            listeners: listeners.iter().map(ToString::to_string).collect(),
            mounts,
        }
    }

    /// Counts by name, those of the same names together.
    fn named(&self, timings: &Timings) -> BTreeMap<(String, String), HistogramCounts> {
        let mut all: BTreeMap<_, HistogramCounts> = BTreeMap::new();
        for (listener, mount, counts) in &timings.requests {
            let listener = name(&self.listeners, *listener, LISTENERS_MEASURED);
            let mount = name(&self.mounts, *mount, MOUNTS_MEASURED);
            all.entry((listener, mount)).or_default().add(counts);
        }
        all
    }
}

/// The last one that is counted stands for all further ones.
pub(crate) fn name(names: &[String], index: usize, count: usize) -> String {
    if index + 1 == count && names.len() > count {
        return "others".to_owned();
    }
    names.get(index).cloned().unwrap_or_default()
}

/// All listeners and mounts together.
pub(crate) fn sum(requests: &[(usize, usize, HistogramCounts)]) -> HistogramCounts {
    let mut all = HistogramCounts::default();
    requests.iter().for_each(|(_, _, counts)| all.add(counts));
    all
}

pub(crate) fn json(labels: &Labels, timings: &Timings) -> Value {
    let series = labels.named(timings).into_iter();
    series
        .map(|((listener, mount), counts)| {
            let mut series = counts_json(&counts);
            series["listener"] = listener.into();
            series["mount"] = mount.into();
            series
        })
        .collect()
}

/// How long jobs of workers took, or requests kept threads busy; `None` where there was none.
pub(crate) fn jobs_json(timings: &Timings) -> Option<Value> {
    (timings.jobs.count() > 0).then(|| counts_json(&timings.jobs))
}

fn counts_json(counts: &HistogramCounts) -> Value {
    let buckets: Vec<(u64, u64)> = counts.filled_buckets().collect();
    json!({
        "count": counts.count(),
        "sum_us": counts.sum_us,
        "p50_us": counts.quantile_us(0.5),
        "p99_us": counts.quantile_us(0.99),
        "p999_us": counts.quantile_us(0.999),
        "buckets_us": buckets,
    })
}

/// The histograms of requests and of jobs.
pub(crate) fn show(text: &mut Exposition, labels: &Labels, timings: &Timings) {
    let name = "request_duration_seconds";
    let help = "Time from the arrival of a request to the end of its response";
    text.family(name, "histogram", help);
    for ((listener, mount), counts) in labels.named(timings) {
        let (listener, mount) = (escaped(&listener), escaped(&mount));
        let labels = format!("listener=\"{listener}\",mount=\"{mount}\"");
        show_one(text, name, &labels, &counts);
    }
    if timings.jobs.count() > 0 {
        let name = "job_duration_seconds";
        let help = "Time that jobs keep workers or threads busy";
        text.family(name, "histogram", help);
        show_one(text, name, "", &timings.jobs);
    }
}

fn show_one(text: &mut Exposition, name: &str, labels: &str, counts: &HistogramCounts) {
    let comma = if labels.is_empty() { "" } else { "," };
    let bucket = format!("{name}_bucket");
    for (end_us, below) in counts.below_powers(POWER_MIN, 1).take(POWERS) {
        let end_s = end_us as f64 / 1e6;
        let labels = format!("{{{labels}{comma}le=\"{end_s}\"}}");
        text.sample(&bucket, &labels, below as f64);
    }
    let count = counts.count() as f64;
    text.sample(&bucket, &format!("{{{labels}{comma}le=\"+Inf\"}}"), count);
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{labels}}}"),
    };
    text.sample(&format!("{name}_sum"), &labels, counts.sum_us as f64 / 1e6);
    text.sample(&format!("{name}_count"), &labels, count);
}

/// A label's value: backslash, quote and line feed have to be escaped.
pub(crate) fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use loadline_proto::latency::Histogram;

    use super::*;

    fn counts(times_us: &[u64]) -> HistogramCounts {
        let (histogram, mut counts) = (Histogram::default(), HistogramCounts::default());
        times_us.iter().for_each(|us| histogram.add(*us, 1));
        histogram.add_to(&mut counts);
        counts
    }

    /// A planner cannot have it from percentiles.
    #[test]
    fn the_json_has_the_histograms() {
        let (short, long) = (counts(&[10, 1_000, 10]), counts(&[1 << 40]));
        let timings = Timings {
            requests: vec![(0, 0, short), (0, 1, long)],
            jobs: counts(&[7]),
        };
        let mounts = vec!["/".to_owned(), "/app".to_owned()];
        let series = json(&Labels::new(&[], mounts), &timings);
        assert_eq!(series[0]["mount"], "/");
        assert_eq!(series[0]["buckets_us"], json!([[11, 2], [1024, 1]]));
        let longest = json!([[1_u64 << 27, 1]]);
        assert_eq!(series[1]["buckets_us"], longest, "{series}");
        let jobs = jobs_json(&timings).unwrap();
        assert_eq!(jobs["buckets_us"], json!([[8, 1]]));
    }
}
