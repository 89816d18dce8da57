//! The status page's contents: the server's counts as JSON and as Prometheus text.
//!
//! The Prometheus form is written by hand: the client libraries own their counters, while these are
//! read from rows that each serving thread keeps for itself; and the form is a few lines.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use loadline_apps::{CacheUse, StatusSource};
use loadline_proto::CloseReason;
use loadline_server::{Architecture, Control, Counts, Role, ServerOptions, Snapshot};
use serde_json::{Map, Value, json};

use crate::accounts::Mounted;
use crate::diagnostics;
use crate::line_writer::LineWriter;
use crate::logs::Logs;

/// Rows of one kind of thread that Prometheus is shown one by one. Beyond it only the sum: each
/// label value is a time series that has to be stored.
const SERIES_PER_ROLE_MAX: usize = 128;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const BLAMES: [&str; 4] = ["peer", "local", "limit", "timeout"];

/// Counts by a label of their own, beside the thread's.
struct Labelled {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&Counts) -> Vec<(&'static str, u64)>,
}

const LABELLED: [Labelled; 3] = [
    Labelled {
        name: "answers",
        help: "Answers begun",
        label: "class",
        values: |counts| CLASSES.into_iter().zip(counts.answers).collect(),
    },
    Labelled {
        name: "faults",
        help: "Faults by blame",
        label: "blame",
        values: |counts| BLAMES.into_iter().zip(counts.faults).collect(),
    },
    Labelled {
        name: "closed",
        help: "Connections closed",
        label: "reason",
        values: |counts| {
            let reasons = CloseReason::ALL.into_iter();
            let count = |(reason, name)| (name, counts.closed_for(reason));
            reasons.map(count).collect()
        },
    },
];

/// Counts that go up and down; the others only rise.
const GAUGES: [&str; 3] = ["connections", "app_requests_in_progress", "queue_depth"];

/// Where the status page gets its texts.
pub(crate) struct Status {
    pub(crate) began: Instant,
    pub(crate) options: ServerOptions,
    /// Known only once the server runs, which needs the handler first.
    pub(crate) control: OnceLock<Control>,
    pub(crate) logs: Logs,
    pub(crate) cache: Box<dyn Fn() -> CacheUse + Send + Sync>,
    pub(crate) accounts: Option<Mounted>,
}

impl StatusSource for Status {
    fn json(&self) -> String {
        let snapshot = self.snapshot();
        let threads = snapshot.rows.iter().map(|row| {
            let mut object = counts_json(&row.counts);
            object.insert("name".into(), row.to_string().into());
            object.insert("role".into(), row.role.name().into());
            Value::Object(object)
        });
        let cache = (self.cache)();
        let accounts = self.accounts.as_ref().map(|accounts| {
            let named = accounts.counters().named();
            let pairs = named.map(|(name, value)| (name.to_owned(), Value::from(value)));
            Value::Object(pairs.into_iter().collect())
        });
        let is = |architecture| self.options.architecture == architecture;
        let has_loops = self.options.architecture.has_loops();
        let page = json!({
            "server": {
                "version": env!("CARGO_PKG_VERSION"),
                "architecture": self.options.architecture.name(),
                "loops": has_loops.then_some(self.options.loops),
                "workers": has_loops.then_some(self.options.workers),
                "threads": is(Architecture::ThreadPool).then_some(self.options.threads),
                "connections_max": self.options.connections_max,
                "uptime_seconds": self.began.elapsed().as_secs(),
                "process": std::process::id(),
            },
            "total": counts_json(&snapshot.total),
            "connections_cut": snapshot.cut,
            "threads": threads.collect::<Vec<_>>(),
            "access_log": log_json(self.logs.access.as_ref()),
            "connection_log": log_json(self.logs.connections.as_ref()),
            "diagnostics": log_json(diagnostics::log()),
            "accounts": accounts,
            "cache": {
                "entries": cache.entries,
                "misses": cache.misses,
                "weight_bytes": cache.weight,
            },
        });
        format!("{page:#}\n")
    }

    fn prometheus(&self) -> String {
        let snapshot = self.snapshot();
        let mut text = Exposition::default();
        let up_s = self.began.elapsed().as_secs_f64();
        text.single("up_seconds", "gauge", "Time since the server began", up_s);
        let shown: Vec<(String, &Counts)> = shown_rows(&snapshot);
        for it in &LABELLED {
            let name = format!("{}_total", it.name);
            text.family(&name, "counter", it.help);
            for (thread, counts) in &shown {
                for (value, count) in (it.values)(counts) {
                    let labels = format!("{{{thread},{}=\"{value}\"}}", it.label);
                    text.sample(&name, &labels, count as f64);
                }
            }
        }
        for (index, (name, _)) in snapshot.total.named().into_iter().enumerate() {
            let metric = Metric::of(name);
            text.family(&metric.name, metric.kind, &name.replace('_', " "));
            for (thread, counts) in &shown {
                let value = counts.named()[index].1;
                text.sample(&metric.name, &format!("{{{thread}}}"), metric.scaled(value));
            }
        }
        show_log(&mut text, "access_log", self.logs.access.as_ref());
        show_log(&mut text, "connection_log", self.logs.connections.as_ref());
        show_log(&mut text, "diagnostics", diagnostics::log());
        let cache = (self.cache)();
        for (name, help, value) in [
            (
                "cache_entries",
                "Files and directories in the cache",
                cache.entries as f64,
            ),
            (
                "cache_weight_bytes",
                "Weight of the cache",
                cache.weight as f64,
            ),
        ] {
            text.single(name, "gauge", help, value);
        }
        if let Some(accounts) = &self.accounts {
            show_accounts(&mut text, accounts);
        }
        text.0
    }
}

impl Status {
    /// Whether more requests are welcome. A probe that comes before the end of the start is answered
    /// already.
    pub(crate) fn is_ready(&self) -> bool {
        self.control.get().is_none_or(Control::is_ready)
    }

    fn snapshot(&self) -> Snapshot {
        self.control
            .get()
            .map(Control::snapshot)
            .unwrap_or_default()
    }
}

/// The rows as Prometheus sees them: a label and counts; roles with too many rows as one sum.
fn shown_rows(snapshot: &Snapshot) -> Vec<(String, &Counts)> {
    let of_role = |role: Role| snapshot.rows.iter().filter(move |row| row.role == role);
    let is_crowded = snapshot
        .rows
        .iter()
        .any(|row| of_role(row.role).count() > SERIES_PER_ROLE_MAX);
    if is_crowded {
        return vec![("thread=\"all\"".to_owned(), &snapshot.total)];
    }
    let rows = snapshot.rows.iter();
    rows.map(|row| (format!("thread=\"{row}\""), &row.counts))
        .collect()
}

fn counts_json(counts: &Counts) -> Map<String, Value> {
    let own = |(name, value): (&str, u64)| (name.to_owned(), Value::from(value));
    let mut map: Map<_, _> = counts.named().into_iter().map(own).collect();
    map.insert("requests".into(), counts.requests().into());
    for it in &LABELLED {
        let pairs = (it.values)(counts).into_iter().map(own);
        map.insert(it.name.into(), Value::Object(pairs.collect()));
    }
    map
}

/// A count as Prometheus names it: times in seconds, what only rises with `_total`.
struct Metric {
    name: String,
    kind: &'static str,
    unit: f64,
}

impl Metric {
    fn of(name: &str) -> Self {
        if GAUGES.contains(&name) {
            return Self {
                name: name.to_owned(),
                kind: "gauge",
                unit: 1.0,
            };
        }
        let (name, unit) = match name.strip_suffix("_us") {
            Some(name) => (format!("{name}_seconds_total"), 1e6),
            None => (format!("{name}_total"), 1.0),
        };
        Self {
            name,
            kind: "counter",
            unit,
        }
    }

    fn scaled(&self, value: u64) -> f64 {
        value as f64 / self.unit
    }
}

/// Prometheus' text format, version 0.0.4.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(
            self.0,
            "# HELP loadline_{name} {help}.\n# TYPE loadline_{name} {kind}"
        );
    }

    /// A family of one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// `labels` with their braces, or empty.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "loadline_{name}{labels} {value}");
    }
}

fn log_json(log: Option<&Arc<LineWriter>>) -> Option<Value> {
    let counts = log?.counts();
    Some(json!({
        "lines_written": counts.written,
        "lines_dropped": counts.dropped,
        "write_errors": counts.errors,
    }))
}

fn show_log(text: &mut Exposition, log: &str, writer: Option<&Arc<LineWriter>>) {
    let Some(writer) = writer else { return };
    let counts = writer.counts();
    for (what, value) in [
        ("lines_total", counts.written),
        ("lines_dropped_total", counts.dropped),
        ("write_errors_total", counts.errors),
    ] {
        let name = format!("{log}_{what}");
        text.single(&name, "counter", &name.replace('_', " "), value as f64);
    }
}

fn show_accounts(text: &mut Exposition, accounts: &Mounted) {
    for (name, value) in accounts.counters().named() {
        let metric = Metric::of(name);
        let full = format!("accounts_{}", metric.name);
        let help = name.replace('_', " ");
        text.single(&full, metric.kind, &help, metric.scaled(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadline_server::RowSnapshot;

    fn snapshot(rows: usize) -> Snapshot {
        let row = |index| RowSnapshot {
            role: Role::Loop,
            index,
            counts: Counts::default(),
        };
        Snapshot {
            rows: (0..rows).map(row).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn labels_are_bounded() {
        assert_eq!(shown_rows(&snapshot(128)).len(), 128);
        let crowded = snapshot(129);
        let shown = shown_rows(&crowded);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].0, "thread=\"all\"");
    }

    #[test]
    fn times_are_seconds_and_what_rises_is_a_total() {
        let wait = Metric::of("queue_wait_us");
        assert_eq!(
            (wait.name.as_str(), wait.kind),
            ("queue_wait_seconds_total", "counter")
        );
        assert_eq!(wait.scaled(1_500_000), 1.5);
        assert_eq!(Metric::of("connections").name, "connections");
        assert_eq!(Metric::of("bytes_in").name, "bytes_in_total");
    }
}
