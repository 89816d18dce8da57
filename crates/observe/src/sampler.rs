//! What has changed since the last look, a second ago or more: for the live page, for the load ratio, and
//! for what the status page says of the last moments.
//!
//! There is no thread for it: whoever reads takes the next sample, if the last one is old enough. So any
//! number of readers cost one sample a second, and a server that nobody looks at takes none.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loadline_capacity::load_ratio::{Goal, LoadRatio, Server, Window, estimate};
use loadline_proto::latency::HistogramCounts;
use loadline_server::{Counts, Role, Snapshot};
use loadline_sys::clock::unix_ms;

use crate::reading::Reading;
use crate::refusals::Refusals;
use crate::stations::{Jobs, Stations, app_queues, apps};

/// A little less than a second, so that readers who come once a second always find a new sample.
const INTERVAL: Duration = Duration::from_millis(900);

/// After a pause like this nobody has been watching: the live page begins anew.
const PAUSE: Duration = Duration::from_secs(5);

/// Samples that the live page can show: two minutes.
const SAMPLES_MAX: usize = 120;

/// The present load is that of the last half minute, or of the last samples if they are rarer.
const LOAD_PERIOD: Duration = Duration::from_secs(30);
const LOAD_WINDOWS_MIN: usize = 4;
/// What is older says nothing of the present load.
const LOAD_PERIOD_MAX: Duration = Duration::from_secs(300);

/// What happened between two readings.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) number: u64,
    pub(crate) at_ms: u64,
    pub(crate) span_s: f64,
    /// What was counted in that time; gauges as they are now.
    pub(crate) counts: Counts,
    pub(crate) latencies: HistogramCounts,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) refusals: Refusals,
    /// How long the work had waited that was taken from a queue, on average. While none is taken although
    /// some waits, it grows with the time. `None`: nothing waits.
    pub(crate) queue_age_us: Option<u64>,
    pub(crate) memory_budget_bytes: Option<u64>,
    pub(crate) memory_used_bytes: u64,
    pub(crate) socket_buffers_estimated_bytes: u64,
    /// The share of each station that was busy.
    pub(crate) use_of: Vec<(&'static str, f64)>,
    /// Threads by role.
    pub(crate) threads: Vec<(&'static str, usize)>,
    /// Sizes of other parts of the program.
    pub(crate) sizes: Vec<(&'static str, u64)>,
    pub(crate) load: Option<LoadRatio>,
    /// As the live page takes it, once somebody has asked: one text for all who watch.
    pub(crate) event: OnceLock<Arc<str>>,
}

/// The samples of the last two minutes.
#[derive(Default)]
pub(crate) struct Sampler {
    last: Option<Reading>,
    samples: VecDeque<Sample>,
    numbers: u64,
    windows: VecDeque<(Instant, Window)>,
    /// The demands of the last estimate, which hold while nothing is served.
    demands_s: Option<Vec<f64>>,
    /// Of the same windows, for the variation of their times.
    jobs: VecDeque<Jobs>,
    /// CPU time that the samples have cost.
    own_cpu: Duration,
}

impl Sampler {
    /// Takes a sample if the last one is old enough.
    pub(crate) fn refresh(
        &mut self,
        stations: &Stations,
        goal: Goal,
        read: impl FnOnce() -> Reading,
    ) {
        let is_recent = |last: &Reading| last.at.elapsed() < INTERVAL;
        if self.last.as_ref().is_some_and(is_recent) {
            return;
        }
        let mut now = read();
        // Samples are taken for whoever looks, not for requests.
        now.cpu = now.cpu.saturating_sub(self.own_cpu);
        if let Some(last) = self.last.replace(now.clone()) {
            self.add(&last, &now, stations, goal);
        }
    }

    /// A sample has cost so much CPU time.
    pub(crate) fn add_own_cpu(&mut self, cpu: Duration) {
        self.own_cpu += cpu;
    }

    /// The newest sample.
    pub(crate) fn newest(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// The samples after the one with this number.
    pub(crate) fn after(&self, number: Option<u64>) -> impl Iterator<Item = &Sample> {
        // A number that was never given comes from an earlier server.
        let number = number.filter(|number| *number <= self.numbers);
        let is_newer = move |sample: &&Sample| number.is_none_or(|number| sample.number > number);
        self.samples.iter().filter(is_newer)
    }

    fn add(&mut self, last: &Reading, now: &Reading, stations: &Stations, goal: Goal) {
        let span = now.at.saturating_duration_since(last.at);
        if span > PAUSE {
            self.samples.clear();
        }
        let span_s = span.as_secs_f64();
        let counts = since(&now.snapshot.total, &last.snapshot.total);
        let busy_s = stations.busy_s(last, now);
        // A size may have changed between the two; half-way is near enough.
        let sizes =
            (stations.servers(&last.snapshot).into_iter()).zip(stations.servers(&now.snapshot));
        let server_s: Vec<f64> = sizes.map(|(a, b)| f64::midpoint(a, b) * span_s).collect();
        let uses = stations.list().iter().zip(&busy_s).zip(&server_s);
        // The turn of a loop counts when it ends, and may have begun before the last reading.
        let use_of =
            uses.map(|((it, busy_s), server_s)| (it.name, (busy_s / server_s).clamp(0.0, 1.0)));
        let use_of = use_of.collect();
        let refusals = Refusals::of(&counts);
        let before = self.samples.back().and_then(|sample| sample.queue_age_us);
        let queue_age_us = queue_age_us(&counts, span, before);
        let latencies = now.latencies.since(&last.latencies);
        let window = Window {
            seconds: span_s,
            served: latencies.count() as f64,
            others: counts.own_pages as f64,
            refused: refusals.requests() as f64,
            late: refusals.late() as f64,
            busy_s,
            server_s,
            apps: apps(last, now),
        };
        self.note_window(now, window, stations.jobs(last, now));
        let load = self.load(stations, &now.snapshot, goal);
        // What the server's own pages need says nothing of requests.
        let has_served = self.windows.iter().any(|(_, it)| it.served > 0.0);
        if let Some(load) = load.as_ref().filter(|_| has_served) {
            self.demands_s = Some(load.demands_s.clone());
        }
        self.numbers += 1;
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            number: self.numbers,
            at_ms: unix_ms(),
            span_s,
            counts,
            refusals,
            queue_age_us,
            latencies,
            resident_bytes: now.resident_bytes,
            memory_budget_bytes: now.snapshot.memory_budget_bytes,
            memory_used_bytes: now.snapshot.memory_used_bytes,
            socket_buffers_estimated_bytes: now.snapshot.socket_buffers_estimated_bytes,
            use_of,
            threads: threads(&now.snapshot),
            sizes: now.sizes.clone(),
            load,
            event: OnceLock::new(),
        });
    }

    fn note_window(&mut self, now: &Reading, window: Window, jobs: Jobs) {
        self.windows.push_back((now.at, window));
        self.jobs.push_back(jobs);
        while let Some((at, _)) = self.windows.front() {
            let age = now.at.saturating_duration_since(*at);
            let is_old = age > LOAD_PERIOD && self.windows.len() > LOAD_WINDOWS_MIN;
            if !is_old && age <= LOAD_PERIOD_MAX {
                break;
            }
            self.windows.pop_front();
            self.jobs.pop_front();
        }
    }

    fn load(&self, stations: &Stations, now: &Snapshot, goal: Goal) -> Option<LoadRatio> {
        let mut jobs = Jobs::default();
        self.jobs.iter().for_each(|of_window| jobs.add(of_window));
        let server = Server {
            stations: &stations.at_most(now.workers_useful, &jobs),
            apps: &app_queues(now),
            goal,
        };
        let windows: Vec<Window> = self.windows.iter().map(|(_, it)| it.clone()).collect();
        estimate(server, &windows, self.demands_s.as_deref())
    }
}

fn queue_age_us(counts: &Counts, span: Duration, before_us: Option<u64>) -> Option<u64> {
    let taken = counts.queue_taken;
    if taken == 0 && counts.queue_depth > 0 {
        let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        return Some(before_us.unwrap_or(0) + span_us); // none was taken
    }
    let has_queue = taken > 0 && counts.queue_wait_us > 0;
    has_queue.then(|| counts.queue_wait_us / taken)
}

/// What was counted since an earlier moment; gauges as they are now.
fn since(now: &Counts, then: &Counts) -> Counts {
    let mut counts = now.clone();
    counts.subtract(then);
    counts
}

fn threads(snapshot: &Snapshot) -> Vec<(&'static str, usize)> {
    let of = |role: Role| (role.name(), snapshot.threads(role));
    let all = [Role::Acceptor, Role::Loop, Role::Worker, Role::Thread].map(of);
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests;
