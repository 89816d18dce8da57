use loadline_proto::latency::Histogram;
use loadline_server::{AppCounts, Architecture, ServerOptions, ThreadSnapshot};

use super::*;
use crate::reading::CpuUse;

const GOAL: Goal = Goal {
    latency_s: 1.0,
    share: 0.99,
};

fn mounts() -> Vec<String> {
    ["/", "/a", "/b", "/c", "/d"].map(str::to_owned).to_vec()
}

fn stations() -> Stations {
    let options = ServerOptions {
        workers: 2,
        ..ServerOptions::default()
    };
    Stations::of(&options, mounts(), 4.0)
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
        usage: None,
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
        cpu_uses: Vec::new(),
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
    assert_eq!(stations.list()[load.limit.unwrap()].name, "workers");
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

/// As by an app that waits within itself: loops and workers could carry more.
#[test]
fn where_requests_are_late_the_capacity_is_what_was_served() {
    let (mut sampler, stations) = (Sampler::default(), stations());
    for (age_s, seconds) in [(2, 10), (0, 12)] {
        sampler.refresh(&stations, GOAL, || {
            let mut reading = reading(Duration::from_secs(age_s), seconds);
            reading.snapshot.total.refused_late = 100 * seconds;
            reading
        });
    }
    let newest = sampler.newest().unwrap();
    let load = newest.load.as_ref().unwrap();
    assert!((load.ratio - 2.0).abs() < 0.01, "{load:?}");
    let json = crate::live::load_json(newest, &stations);
    assert_eq!(json["limit"], "waits", "{json}");
}

/// The app at /a can do 200 a second, as is known from an overload. Of that at /b too little is known.
#[test]
fn an_app_that_is_known_to_be_a_queue_can_be_the_limit() {
    let (mut sampler, stations) = (Sampler::default(), stations());
    for (age_s, seconds) in [(3, 10), (2, 11), (1, 12), (0, 13)] {
        sampler.refresh(&stations, GOAL, || {
            let mut reading = reading(Duration::from_secs(age_s), seconds);
            let app = |answered, queued_us, queued_answers| AppCounts {
                answered,
                queued_us,
                queued_answers,
                ..AppCounts::default()
            };
            let known = app(140 * seconds, 5_000_000, 1_000);
            let young = app(100 * seconds, 20_000, 10);
            let others = app(20 * seconds, 5_000_000, 1_000);
            reading.snapshot.apps = vec![AppCounts::default(), known, young, others];
            reading
        });
    }
    let newest = sampler.newest().unwrap();
    let load = newest.load.as_ref().unwrap();
    assert!((load.ratio - 0.7165).abs() < 0.01, "{load:?}");
    assert!(load.interval.is_some_and(|it| it.contains(0.7)), "{load:?}");
    let json = crate::live::load_json(newest, &stations);
    assert_eq!(json["limit"], "app /a", "{json}");
    assert_eq!(json["demand_s"]["app /a"], 0.005, "{json}");
    assert!(json["demand_s"]["workers"].is_number(), "{json}");
    assert!(json["utilisation"]["app /b"].is_null(), "{json}");
    let others = json["utilisation"]["app others"].as_f64().unwrap();
    assert!((others - 0.1).abs() < 0.01, "{json}");
    let mut text = crate::exposition::Exposition::default();
    crate::live::show_load(&mut text, newest, &stations);
    let line = "loadline_station_demand_seconds{station=\"app /a\"} 0.005\n";
    assert!(text.0.contains(line), "{}", text.0);
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

/// A server whose two workers have done so many jobs that compute for 10 ms, on one CPU. They have waited for
/// it for as long as they have computed, and for a third of that before a job.
fn computing(age: Duration, jobs: u64) -> Reading {
    let mut reading = reading(age, 0);
    reading.snapshot.total.answers[1] = jobs;
    let each = Duration::from_millis(5 * jobs);
    let used = CpuUse {
        cpu: each,
        run_delay: each * 4 / 3,
        waits: 2 * jobs,
    };
    for thread in &mut reading.snapshot.per_thread[1..] {
        thread.counts.busy_us = 10_000 * jobs;
        thread.counts.jobs = jobs / 2;
    }
    reading.cpu_uses = vec![None, Some(used), Some(used)];
    reading.cpu = 2 * each;
    let histogram = Histogram::default();
    histogram.add(20_000, jobs);
    histogram.add_to(&mut reading.latencies);
    histogram.add_to(&mut reading.jobs);
    reading
}

fn on_one_cpu() -> Stations {
    let options = ServerOptions {
        workers: 2,
        ..ServerOptions::default()
    };
    Stations::of(&options, mounts(), 1.0)
}

#[test]
fn time_in_which_workers_wait_for_a_cpu_is_not_that_of_workers() {
    let (mut sampler, stations) = (Sampler::default(), on_one_cpu());
    for (age_s, jobs) in [(30, 0), (0, 2_700)] {
        let age = Duration::from_secs(age_s);
        sampler.refresh(&stations, GOAL, || computing(age, jobs));
    }
    let newest = sampler.newest().unwrap();
    let load = newest.load.as_ref().unwrap();
    assert_eq!(stations.list()[load.limit.unwrap()].name, "cpus");
    assert!((load.demands_s[1] - 0.01).abs() < 1e-6, "{load:?}");
    assert!((newest.use_of[1].1 - 0.45).abs() < 0.01, "{load:?}");
}

/// Requests that all compute for 10 ms: 97.7 a second keep the goal. If their times were exponential, 95.4.
#[test]
fn the_measured_variation_of_jobs_is_that_of_cpu_time() {
    let (mut sampler, stations) = (Sampler::default(), on_one_cpu());
    for (age_s, jobs) in [(30, 0), (0, 2_700)] {
        let age = Duration::from_secs(age_s);
        sampler.refresh(&stations, GOAL, || computing(age, jobs));
    }
    let load = sampler.newest().unwrap().load.as_ref().unwrap();
    assert!((load.capacity_per_s - 97.7).abs() < 0.1, "{load:?}");
}

/// Ten samples, each of which takes 0.1 s of CPU time before the CPU clock is read, and 0.2 s after that.
#[test]
fn cpu_time_that_samples_take_is_not_that_of_requests() {
    let (mut sampler, stations) = (Sampler::default(), on_one_cpu());
    for number in 0..10 {
        sampler.refresh(&stations, GOAL, || {
            let mut reading = computing(Duration::from_secs(30 - 3 * number), 100 * number);
            reading.cpu += Duration::from_millis(300 * number + 100);
            reading
        });
        sampler.add_own_cpu(Duration::from_millis(300));
    }
    let load = sampler.newest().unwrap().load.as_ref().unwrap();
    assert!((load.demands_s[2] - 0.01).abs() < 1e-6, "{load:?}");
}

/// It was that of latencies, in which waits for a thread are.
#[test]
fn the_measured_variation_of_what_requests_keep_threads_busy_is_that_of_threads() {
    let options = ServerOptions {
        architecture: Architecture::ThreadPool,
        threads: 2,
        ..ServerOptions::default()
    };
    let (mut sampler, stations) = (Sampler::default(), Stations::of(&options, mounts(), 1.0));
    for (age_s, jobs) in [(30, 0), (0, 2_700)] {
        sampler.refresh(&stations, GOAL, || {
            let mut reading = computing(Duration::from_secs(age_s), jobs);
            for thread in &mut reading.snapshot.per_thread[1..] {
                thread.role = Role::Thread;
            }
            let waited = Histogram::default();
            waited.add(20_000, jobs / 2);
            waited.add(900_000, jobs - jobs / 2);
            reading.latencies = HistogramCounts::default();
            waited.add_to(&mut reading.latencies);
            reading
        });
    }
    let load = sampler.newest().unwrap().load.as_ref().unwrap();
    assert!((load.capacity_per_s - 97.7).abs() < 0.1, "{load:?}");
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
