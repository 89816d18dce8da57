//! What has changed since the last look, a second ago or more: for the live page, for the load ratio, and
//! for what the status page says of the last moments.
//!
//! There is no thread for it: whoever reads takes the next sample, if the last one is old enough. So any
//! number of readers cost one sample a second, and a server that nobody looks at takes none.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loadline_capacity::load_ratio::{Goal, LoadRatio, Window, estimate};
use loadline_proto::latency::HistogramCounts;
use loadline_server::{Counts, Role, Snapshot};
use loadline_sys::clock::unix_ms;

use crate::reading::Reading;
use crate::refusals::Refusals;
use crate::stations::Stations;

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
    /// The newest jobs, for the variation of their times.
    jobs: VecDeque<HistogramCounts>,
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
        let now = read();
        if let Some(last) = self.last.replace(now.clone()) {
            self.add(&last, &now, stations, goal);
        }
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
            busy_s,
            server_s,
        };
        self.note_window(now, window, last);
        let load = self.load(stations, now.snapshot.workers_useful, goal);
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

    fn note_window(&mut self, now: &Reading, window: Window, last: &Reading) {
        self.windows.push_back((now.at, window));
        self.jobs.push_back(now.jobs.since(&last.jobs));
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

    fn load(
        &self,
        stations: &Stations,
        workers_useful: Option<usize>,
        goal: Goal,
    ) -> Option<LoadRatio> {
        let mut jobs = HistogramCounts::default();
        self.jobs.iter().for_each(|counts| jobs.add(counts));
        let list = stations.at_most(workers_useful, jobs.scv());
        let windows: Vec<Window> = self.windows.iter().map(|(_, it)| it.clone()).collect();
        estimate(&list, &windows, goal, self.demands_s.as_deref())
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
mod tests {
    use loadline_proto::latency::Histogram;
    use loadline_server::{ServerOptions, ThreadSnapshot};

    use super::*;

    const GOAL: Goal = Goal {
        latency_s: 1.0,
        share: 0.99,
    };

    fn stations() -> Stations {
        let options = ServerOptions {
            workers: 2,
            ..ServerOptions::default()
        };
        Stations::of(&options, 4.0)
    }

    /// A server whose two workers do 100 jobs of 10 ms a second, `age` ago.
    fn reading(age: Duration, seconds: u64) -> Reading {
        let mut total = Counts::default();
        total.answers[1] = 100 * seconds;
        total.jobs = 100 * seconds;
        total.connections = 7;
        let thread = |role, index, busy_us| ThreadSnapshot {
            role,
            index,
            is_in_use: true,
            counts: Counts {
                busy_us,
                ..Counts::default()
            },
        };
        let snapshot = Snapshot {
            per_thread: vec![
                thread(Role::Loop, 0, 20_000 * seconds),
                thread(Role::Worker, 0, 500_000 * seconds),
                thread(Role::Worker, 1, 500_000 * seconds),
            ],
            total,
            ..Snapshot::default()
        };
        let (histogram, mut latencies) = (Histogram::default(), HistogramCounts::default());
        histogram.add(10_000, 100 * seconds);
        histogram.add_to(&mut latencies);
        Reading {
            at: Instant::now().checked_sub(age).unwrap(),
            snapshot,
            latencies,
            jobs: HistogramCounts::default(),
            cpu: Duration::from_millis(30 * seconds),
            resident_bytes: Some(1),
            sizes: vec![("pool", seconds)],
        }
    }

    #[test]
    fn a_second_look_shows_what_has_changed() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        let refresh = |sampler: &mut Sampler, age_s, seconds| {
            let age = Duration::from_secs(age_s);
            sampler.refresh(&stations, GOAL, || reading(age, seconds));
        };
        refresh(&mut sampler, 3, 10);
        assert!(sampler.newest().is_none());
        refresh(&mut sampler, 2, 11);
        refresh(&mut sampler, 0, 13);
        refresh(&mut sampler, 0, 99); // too early: not read
        let numbers: Vec<u64> = sampler.after(None).map(|sample| sample.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(sampler.after(Some(1)).count(), 1);
        assert_eq!(sampler.after(Some(2)).count(), 0);
        // Another server's number.
        assert_eq!(sampler.after(Some(77)).count(), 2);
        let newest = sampler.newest().unwrap();
        let (counts, uses) = (&newest.counts, &newest.use_of);
        assert_eq!((counts.requests(), counts.connections), (200, 7));
        assert_eq!(newest.sizes, [("pool", 13)]);
        let used: Vec<_> = uses.iter().map(|(name, _)| *name).collect();
        assert_eq!(used, ["loops", "workers", "cpus"]);
        assert!((uses[1].1 - 0.5).abs() < 0.01, "{uses:?}");
        let load = newest.load.as_ref().unwrap();
        assert_eq!(stations.list()[load.limit].name, "workers");
        assert!((load.demands_s[1] - 0.01).abs() < 1e-6, "{load:?}");
        assert!((load.ratio - 0.51).abs() < 0.02, "{load:?}");
        assert!(load.interval.is_some());
    }

    /// There was no ratio when nothing came, and none when nothing could be served.
    #[test]
    fn while_nothing_is_served_the_load_is_what_is_refused() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        let mut refresh = |age_s, seconds, refused_late| {
            sampler.refresh(&stations, GOAL, || {
                let mut reading = reading(Duration::from_secs(age_s), seconds);
                reading.snapshot.total.refused_late = refused_late;
                reading
            });
            let load = sampler.newest()?.load.as_ref().unwrap();
            assert!((load.demands_s[1] - 0.01).abs() < 1e-6, "{load:?}");
            Some(load.ratio)
        };
        let at = |found: Option<f64>, ratio: f64| (found.unwrap() - ratio).abs() < 0.05;
        assert_eq!(refresh(1_000, 10, 0), None);
        assert!(at(refresh(999, 11, 0), 0.51));
        // Each time what was before is too old to count.
        assert_eq!(refresh(600, 11, 0), Some(0.0));
        assert!(at(refresh(200, 11, 160_000), 2.04), "400 a second");
        // It serves 100 a second again; for the last 600 s these were 300.
        assert!(at(refresh(0, 211, 160_000), 1.53));
    }

    #[test]
    fn the_server_s_own_pages_are_the_load_that_they_cost() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        for (age_s, seconds) in [(3, 10), (2, 11)] {
            sampler.refresh(&stations, GOAL, || {
                let mut reading = reading(Duration::from_secs(age_s), seconds);
                reading.snapshot.total.answers[1] += 50 * seconds;
                reading.snapshot.total.own_pages = 50 * seconds;
                reading
            });
        }
        let newest = sampler.newest().unwrap();
        let load = newest.load.as_ref().unwrap();
        assert_eq!(newest.counts.requests(), 150);
        assert!((load.ratio - 0.51).abs() < 0.02, "{load:?}");
    }

    /// In half a minute, of two workers; and the sampler after it.
    fn load_of(requests: u64, pages: u64, busy_us: u64) -> (LoadRatio, Sampler) {
        let (mut sampler, stations) = (Sampler::default(), stations());
        sampler.refresh(&stations, GOAL, || reading(Duration::from_secs(30), 0));
        sampler.refresh(&stations, GOAL, || {
            let mut reading = reading(Duration::ZERO, 0);
            reading.snapshot.total.answers[1] = requests + pages;
            reading.snapshot.total.own_pages = pages;
            reading.snapshot.per_thread[1].counts.busy_us = busy_us;
            let histogram = Histogram::default();
            histogram.add(10_000, requests);
            histogram.add_to(&mut reading.latencies);
            reading
        });
        (sampler.newest().unwrap().load.clone().unwrap(), sampler)
    }

    /// All their busy time was that of the one request.
    #[test]
    fn a_hundred_pages_and_one_request_are_little_load() {
        let (load, sampler) = load_of(1, 100, 1_800_000);
        assert!((load.demands_s[1] - 0.018).abs() < 0.009, "{load:?}");
        assert!((0.02..0.1).contains(&load.ratio), "{load:?}");
        assert!(sampler.demands_s.is_some());
    }

    #[test]
    fn pages_alone_are_hardly_load_and_say_nothing_of_requests() {
        let (load, sampler) = load_of(0, 100, 30_000);
        assert!((0.0..0.01).contains(&load.ratio), "{load:?}");
        assert!(sampler.demands_s.is_none());
    }

    /// Ten responses that begin in one window and end in the next.
    #[test]
    fn a_response_that_spans_two_looks_counts_once() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        for (age_s, begun, ended) in [(60, 0, 0), (30, 10, 0), (0, 10, 10)] {
            sampler.refresh(&stations, GOAL, || {
                let mut reading = reading(Duration::from_secs(age_s), 0);
                reading.snapshot.total.answers[1] = begun;
                reading.snapshot.per_thread[1].counts.busy_us = (60 - age_s) * 50_000;
                let histogram = Histogram::default();
                histogram.add(10_000, ended);
                histogram.add_to(&mut reading.latencies);
                reading
            });
        }
        let load = sampler.newest().unwrap().load.as_ref().unwrap();
        assert!((load.demands_s[1] - 0.3).abs() < 1e-6, "{load:?}");
    }

    #[test]
    fn no_more_than_all_of_a_station_is_in_use() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        for (age_s, seconds) in [(3, 10), (2, 14)] {
            let age = Duration::from_secs(age_s);
            sampler.refresh(&stations, GOAL, || reading(age, seconds));
        }
        let newest = sampler.newest().unwrap();
        assert_eq!(newest.use_of[1], ("workers", 1.0));
    }

    #[test]
    fn a_pool_that_grows_is_used_as_it_is_and_carries_what_it_can_get() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        let mut refresh = |age_s, seconds, in_use, useful| {
            sampler.refresh(&stations, GOAL, || {
                let mut reading = reading(Duration::from_secs(age_s), seconds);
                reading.snapshot.workers_useful = Some(useful);
                reading.snapshot.per_thread[2].is_in_use = in_use == 2;
                reading
            });
            let newest = sampler.newest()?;
            let load = newest.load.as_ref().unwrap();
            Some((newest.use_of[1].1, load.utilisations[1], load.ratio))
        };
        assert!(refresh(3, 10, 1, 8).is_none());
        // Each second has one second of work: of one worker, of one and a half, of two.
        let near = |found: Option<(f64, f64, f64)>, expected: (f64, f64, f64)| {
            let found = found.unwrap();
            let apart = [
                found.0 - expected.0,
                found.1 - expected.1,
                found.2 - expected.2,
            ];
            assert!(
                apart.iter().all(|it| it.abs() < 0.02),
                "{found:?}, not {expected:?}"
            );
        };
        near(refresh(2, 11, 1, 8), (1.0, 1.0, 0.13));
        near(refresh(1, 12, 2, 8), (0.67, 0.8, 0.13));
        // Jobs wait, and more workers were found to bring nothing: two are what it can carry.
        near(refresh(0, 13, 2, 2), (0.5, 0.67, 0.51));
    }

    #[test]
    fn a_queue_from_which_nothing_is_taken_grows_old() {
        let of = |taken, wait_us, depth, before_us| {
            let counts = Counts {
                queue_taken: taken,
                queue_wait_us: wait_us,
                queue_depth: depth,
                ..Counts::default()
            };
            queue_age_us(&counts, Duration::from_secs(1), before_us)
        };
        assert_eq!(of(0, 0, 0, Some(7)), None);
        assert_eq!(of(10, 500, 3, None), Some(50));
        assert_eq!(of(10, 0, 0, None), None);
        assert_eq!(of(0, 0, 3, None), Some(1_000_000));
        assert_eq!(of(0, 0, 3, Some(1_000_000)), Some(2_000_000));
    }

    #[test]
    fn after_a_pause_the_page_begins_anew() {
        let (mut sampler, stations) = (Sampler::default(), stations());
        for (age_s, seconds) in [(9, 1), (8, 2), (0, 10)] {
            let age = Duration::from_secs(age_s);
            sampler.refresh(&stations, GOAL, || reading(age, seconds));
        }
        let numbers: Vec<u64> = sampler.after(None).map(|sample| sample.number).collect();
        assert_eq!(numbers, [2]);
        assert!(sampler.newest().unwrap().load.is_some());
    }
}
