//! The status page's contents: the server's counts as JSON and as Prometheus text.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use loadline_apps::{LiveSource, StatusSource};
use loadline_capacity::load_ratio::Goal;
use loadline_proto::{CloseReason, Http2Count};
use loadline_server::{
    Architecture, Control, Counts, Role, ServerHandle, ServerOptions, Snapshot, Timings,
};
use loadline_sys::{affinity, memory, usage};
use serde_json::{Map, Value, json};

use crate::exposition::Exposition;
use crate::latency::{self, Labels};
use crate::live;
use crate::object::object;
use crate::reading::{CpuUse, Reading};
use crate::sampler::{Sample, Sampler};
use crate::section::{Figure, Metric, Section};
use crate::stations::Stations;

/// Threads of one kind that are shown one by one. Beyond it only the sum: for Prometheus each label value is a
/// time series that has to be stored, and 10,000 threads were 14 MB of JSON.
const SHOWN_PER_ROLE_MAX: usize = 128;

const ROLES: [Role; 4] = [Role::Acceptor, Role::Loop, Role::Worker, Role::Thread];

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const BLAMES: [&str; 4] = ["peer", "local", "limit", "timeout"];

/// Counts by a label of their own, beside the thread's.
struct Labelled {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    values: fn(&Counts) -> Vec<(&'static str, u64)>,
}

const LABELLED: [Labelled; 4] = [
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
    Labelled {
        name: "http2",
        help: "What clients of HTTP/2 do, or are kept from doing",
        label: "what",
        values: |counts| {
            let all = Http2Count::ALL.into_iter().zip(counts.http2);
            all.map(|((_, name), count)| (name, count)).collect()
        },
    },
];

/// The share of requests that are to be answered within the latency goal.
const SHARE: f64 = 0.99;

/// Where the status page and the live page get their texts, and the probe of readiness its answer.
pub struct Status {
    began: Instant,
    /// Known only once the server runs, which needs the handler first.
    shown: OnceLock<Shown>,
    sections: Vec<Section>,
    sampler: Mutex<Sampler>,
}

/// The server that is shown.
struct Shown {
    control: Control,
    labels: Labels,
    stations: Stations,
}

impl Status {
    /// Shows these sections beside the server's own counts.
    #[must_use]
    pub fn new(sections: Vec<Section>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            shown: OnceLock::new(),
            sections,
            sampler: Mutex::default(),
        })
    }

    /// Shows this server from now on. Of several, the first one counts.
    pub fn attach(&self, server: &ServerHandle) {
        let control = server.control();
        let cpus = affinity::cpu_budget().cpu_seconds_per_second();
        let mounts = control.mounts();
        let _ = self.shown.set(Shown {
            labels: Labels::new(server.addresses(), mounts.clone()),
            stations: Stations::of(control.options(), mounts, cpus),
            control,
        });
    }

    /// Whether more requests are welcome: from the end of the start until a drain begins.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shown
            .get()
            .is_some_and(|shown| shown.control.is_ready())
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.shown.get().map(|shown| shown.control.snapshot());
        snapshot.unwrap_or_default()
    }

    /// With the samples up to now; `None` before the server runs.
    fn with_samples<T>(&self, read: impl FnOnce(&Shown, &Sampler) -> T) -> Option<T> {
        let shown = self.shown.get()?;
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let read_now = || shown.read(&self.sections);
        let cpu_before = usage::thread_cpu();
        sampler.refresh(&shown.stations, shown.goal(), read_now);
        sampler.add_own_cpu(usage::thread_cpu().saturating_sub(cpu_before));
        Some(read(shown, &sampler))
    }

    fn with_newest<T>(&self, read: impl FnOnce(&Shown, &Sample) -> T) -> Option<T> {
        self.with_samples(|shown, sampler| Some(read(shown, sampler.newest()?)))?
    }

    fn server_json(&self) -> Value {
        let options = self.shown.get().map(|shown| shown.control.options());
        let options = options.cloned().unwrap_or_default();
        let ServerOptions {
            architecture,
            loops,
            workers,
            threads,
            connections_max,
            ..
        } = options;
        let has_loops = architecture.has_loops();
        let is_pool = architecture == Architecture::ThreadPool;
        let range = options.changing_sizes();
        let present = |size: usize, role| match range {
            Some(_) => self.snapshot().threads(role),
            None => size,
        };
        let range = range.map(|range| [range.min, range.max]);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "architecture": architecture.name(),
            "loops": has_loops.then_some(loops),
            "workers": has_loops.then(|| present(workers, Role::Worker)),
            "workers_range": range.filter(|_| has_loops),
            "threads": is_pool.then(|| present(threads, Role::Thread)),
            "threads_range": range.filter(|_| is_pool),
            "connections_max": connections_max,
            "uptime_seconds": self.began.elapsed().as_secs(),
            "process": std::process::id(),
        })
    }
}

impl StatusSource for Status {
    fn json(&self) -> String {
        let snapshot = self.snapshot();
        let shown = self.shown.get();
        let timings = shown.map(|shown| shown.control.timings());
        let labelled = shown.zip(timings.as_ref());
        let mut page = json!({
            "server": self.server_json(),
            "total": counts_json(&snapshot.total),
            "connections_cut": snapshot.cut,
            "memory_budget_bytes": snapshot.memory_budget_bytes,
            "memory_used_bytes": snapshot.memory_used_bytes,
            "socket_buffers_estimated_bytes": snapshot.socket_buffers_estimated_bytes,
            "threads": threads_json(&snapshot),
            "latencies": labelled.map(|(shown, timings)| latency::json(&shown.labels, timings)),
            "job_times": timings.as_ref().and_then(latency::jobs_json),
            "last": self.with_newest(|_, sample| live::last_json(sample)),
            "load": self.with_newest(|shown, sample| live::load_json(sample, &shown.stations)),
        });
        for section in &self.sections {
            let figures = section.figures().map(|figures| {
                let value = |it: &Figure| match &it.text {
                    Some(text) => text.as_str().into(),
                    None => Value::from(it.value),
                };
                let pairs = figures.iter().map(|it| (it.name, value(it)));
                Value::Object(object(pairs))
            });
            page[section.name] = figures.into();
        }
        format!("{page:#}\n")
    }

    fn prometheus(&self) -> String {
        let snapshot = self.snapshot();
        let mut text = Exposition::default();
        let up_s = self.began.elapsed().as_secs_f64();
        text.single("up_seconds", "gauge", "Time since the server began", up_s);
        let help = "Threads that there are, by what they do";
        text.family("threads", "gauge", help);
        for role in ROLES {
            let labels = format!("{{role=\"{}\"}}", role.name());
            text.sample("threads", &labels, snapshot.threads(role) as f64);
        }
        let shown: Vec<(String, &Counts)> = shown_threads(&snapshot);
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
        show_memory(&mut text, &snapshot);
        if let Some(shown) = self.shown.get() {
            let timings = shown.control.timings();
            latency::show(&mut text, &shown.labels, &timings);
        }
        self.with_newest(|shown, sample| live::show_load(&mut text, sample, &shown.stations));
        for section in &self.sections {
            show_section(&mut text, section);
        }
        text.0
    }
}

impl LiveSource for Status {
    fn events(&self, after: Option<u64>) -> String {
        let events = self.with_samples(|shown, sampler| {
            let options = shown.control.options();
            let event = |sample| live::event(sample, &shown.stations, options);
            sampler.after(after).map(event).collect::<Vec<_>>()
        });
        events.unwrap_or_default().concat()
    }
}

impl Shown {
    fn goal(&self) -> Goal {
        let goal = self.control.options().latency_goal;
        Goal {
            latency_s: goal.map_or(f64::INFINITY, |goal| goal.as_secs_f64()),
            share: SHARE,
        }
    }

    fn read(&self, sections: &[Section]) -> Reading {
        let Timings { requests, jobs } = self.control.timings();
        let (at, snapshot) = (Instant::now(), self.control.snapshot());
        Reading {
            at,
            cpu_uses: CpuUse::of_threads(&snapshot),
            snapshot,
            latencies: latency::sum(&requests),
            jobs,
            cpu: usage::process_cpu(),
            resident_bytes: memory::resident_bytes(),
            sizes: sections.iter().flat_map(Section::sizes).collect(),
        }
    }
}

/// The threads as Prometheus sees them: a label and counts; one sum of all if a role has too many.
fn shown_threads(snapshot: &Snapshot) -> Vec<(String, &Counts)> {
    let threads = || snapshot.per_thread.iter();
    let of_role = |role: Role| threads().filter(move |thread| thread.role == role);
    let has_too_many = threads().any(|thread| of_role(thread.role).count() > SHOWN_PER_ROLE_MAX);
    if has_too_many {
        return vec![("thread=\"all\"".to_owned(), &snapshot.total)];
    }
    threads()
        .map(|thread| (format!("thread=\"{thread}\""), &thread.counts))
        .collect()
}

/// The threads as the JSON shows them: if a role has too many, one entry for all of them.
fn threads_json(snapshot: &Snapshot) -> Vec<Value> {
    let entry = |counts: &Counts, role: Role, name: String, count: usize| {
        let mut object = counts_json(counts);
        object.insert("name".into(), name.into());
        object.insert("role".into(), role.name().into());
        object.insert("count".into(), count.into());
        Value::Object(object)
    };
    let mut shown = Vec::new();
    for role in ROLES {
        let of_role = || snapshot.per_thread.iter().filter(move |it| it.role == role);
        let count = of_role().count();
        if count <= SHOWN_PER_ROLE_MAX {
            shown.extend(of_role().map(|it| entry(&it.counts, role, it.to_string(), 1)));
            continue;
        }
        let mut sum = Counts::default();
        for thread in of_role() {
            sum += &thread.counts;
        }
        shown.push(entry(&sum, role, format!("{}s", role.name()), count));
    }
    shown
}

fn counts_json(counts: &Counts) -> Map<String, Value> {
    let own = |(name, value): (&'static str, u64)| (name, Value::from(value));
    let mut map = object(counts.named().into_iter().map(own));
    map.insert("requests".into(), counts.requests().into());
    for it in &LABELLED {
        let pairs = (it.values)(counts).into_iter().map(own);
        map.insert(it.name.into(), Value::Object(object(pairs)));
    }
    map
}

fn show_memory(text: &mut Exposition, snapshot: &Snapshot) {
    let mut show = |name: &str, help: &str, bytes: u64| {
        text.single(name, "gauge", help, bytes as f64);
    };
    let help = "Memory that counts towards the budget";
    show("memory_used_bytes", help, snapshot.memory_used_bytes);
    if let Some(bytes) = snapshot.memory_budget_bytes {
        show("memory_budget_bytes", "The budget of memory", bytes);
    }
    let help = "What the kernel may keep for connections beside the budget, estimated";
    let bytes = snapshot.socket_buffers_estimated_bytes;
    show("socket_buffers_estimated_bytes", help, bytes);
}

fn show_section(text: &mut Exposition, section: &Section) {
    let figures = section.figures().unwrap_or_default();
    for it in figures.into_iter().filter(|it| it.text.is_none()) {
        let metric = it.metric;
        let full = format!("{}_{}", section.name, metric.name);
        let help = format!("{} {}", section.name, it.name).replace('_', " ");
        text.single(&full, metric.kind, &help, metric.scaled(it.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadline_server::ThreadSnapshot;

    #[test]
    fn nothing_is_ready_before_the_server_listens() {
        assert!(!Status::new(Vec::new()).is_ready());
    }

    fn snapshot(threads: usize) -> Snapshot {
        let thread = |index| ThreadSnapshot {
            role: Role::Loop,
            index,
            is_in_use: true,
            usage: None,
            counts: Counts::default(),
        };
        Snapshot {
            per_thread: (0..threads).map(thread).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn labels_are_bounded() {
        assert_eq!(shown_threads(&snapshot(128)).len(), 128);
        let crowded = snapshot(129);
        let shown = shown_threads(&crowded);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].0, "thread=\"all\"");
    }
}
