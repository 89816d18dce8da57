//! One trial as figures: what is kept of a journal line once its histograms have been read.

use std::collections::BTreeMap;

use loadline_base::sorting::to_map;
use loadline_capacity::stats::Range;
use loadline_record::{
    Distribution, ErrorKind, GroupRecord, LoadRecord, MachineRecord, TrialRecord,
};
use serde::{Deserialize, Serialize};

use super::Metric;
use crate::journal::{CpuQuota, Levels, ServerFacts, Trial, WorkerJobs};

/// Percentiles of spectra, in percent, evenly spread over powers of the share beyond.
pub const SPECTRUM_PERCENTS: [f64; 22] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5,
    99.75, 99.9, 99.95, 99.99, 99.995, 99.999,
];

/// Everything that analyses look at in a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// As in [`Trial`].
    pub number: u32,
    /// As in [`Trial`].
    pub series: String,
    /// As in [`Trial`].
    pub levels: Levels,
    /// As in [`Trial`].
    pub replicate: u32,
    /// As in [`Trial`].
    pub block: u32,
    /// As in [`Trial`].
    pub is_a_a: bool,
    /// As in [`Trial`].
    pub start_unix_ms: u64,
    /// As in [`Trial`].
    pub commit: String,
    /// As in [`Trial`].
    pub server: ServerFacts,
    /// As in [`Trial`].
    pub discarded: Vec<String>,
    /// As in [`Trial`].
    pub times_discarded: Vec<String>,
    /// As in [`Trial`].
    pub notes: Vec<String>,
    /// As in [`Trial`].
    pub client_limited: bool,
    /// Whether it was a closed loop of fewer than three cycles: its mean latency is that by Little's
    /// law, and the one time that counts.
    pub is_short: bool,
    /// As in [`Trial`].
    pub took_s: f64,
    /// What share of its CPUs the server used, or of one CPU its busiest thread, whichever is
    /// larger; `None`: it was not seen.
    pub server_busy: Option<f64>,
    /// The client's machine.
    pub machine: MachineRecord,
    /// What could be measured.
    pub values: BTreeMap<Metric, f64>,
    /// Percent and microseconds, as far as there are samples enough.
    pub latency_us: Vec<(f64, u64)>,
    /// The same for service times.
    pub service_us: Vec<(f64, u64)>,
    /// The seconds, warm-up included.
    pub seconds: Vec<Second>,
    /// Requests of the plain clients that became due after the warm-up.
    pub offered: u64,
    /// Connections that came to be, from the begin of the warm-up until nothing was in flight any more.
    pub connections: u64,
    /// Those of them that were given up because an answer took too long.
    pub timeouts: u64,
}

/// One second of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Whole seconds since the load began, at its begin.
    pub second: u32,
    /// Whether it is in the totals: the warm-up is not.
    pub counted: bool,
    /// What could be measured.
    pub values: BTreeMap<Metric, f64>,
}

impl Measured {
    /// Of a line of the journal.
    #[must_use]
    pub fn new(trial: Trial) -> Self {
        let server_values = server_values(&trial);
        let mut measured = Self {
            number: trial.number,
            series: trial.series,
            levels: trial.levels,
            replicate: trial.replicate,
            block: trial.block,
            is_a_a: trial.is_a_a,
            start_unix_ms: trial.start_unix_ms,
            commit: trial.commit,
            discarded: trial.discarded,
            times_discarded: trial.times_discarded,
            notes: trial.notes,
            client_limited: trial.client_limited,
            took_s: trial.took_s,
            server_busy: server_busy(&server_values, trial.server.cpus_usable()),
            server: trial.server,
            values: server_values,
            ..Self::default()
        };
        let Some(load) = trial.load else {
            return measured;
        };
        if let Some(group) = load.headline() {
            measured.values.extend(client_values(&load, group));
            measured.offered = group.total.tally.offered;
            measured.latency_us = spectrum(&group.total.latency);
            measured.service_us = spectrum(&group.total.service);
            measured.seconds = seconds(&load, group);
        }
        if let Some(mean_s) = load.verdict.cycle_mean_s
            && load.verdict.short.is_some()
        {
            measured.is_short = true;
            measured.values.insert(Metric::MeanUs, mean_s * 1e6);
        }
        measured.connections = load.everything.connections;
        measured.timeouts = load.everything.errors_of(ErrorKind::Timeout);
        measured.machine = load.machine;
        measured
    }

    /// Whether it counts, if only for what are no times.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.discarded.is_empty()
    }

    /// Why it does not count for a metric: nothing if it does.
    #[must_use]
    pub fn discarded_for(&self, metric: Metric) -> &[String] {
        let is_by_little = self.is_short && metric == Metric::MeanUs;
        match self.discarded.is_empty() && metric.is_of_times() && !is_by_little {
            true => &self.times_discarded,
            false => &self.discarded,
        }
    }

    /// The value of a metric that it counts for.
    #[must_use]
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let value = self.measured(metric);
        value.filter(|_| self.discarded_for(metric).is_empty())
    }

    /// What was measured, whether it counts or not.
    #[must_use]
    pub fn measured(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    /// The value, and how far it may be from what the server can do.
    ///
    /// A client of a closed loop that was at its end carried the least that the server can carry. How
    /// much more that is can be estimated by the utilisation law: its throughput over the part of the
    /// time for which it was busy, if a request costs as much at its end. That is no bound: requests
    /// cost less where one turn answers several, and threads that sleep are no CPU's matter. Times are
    /// the other way round, since in a closed loop they are the requests in flight over the throughput
    /// (Little's law).
    #[must_use]
    pub fn range(&self, metric: Metric) -> Option<Range> {
        let value = self.value(metric)?;
        let room = match self.client_limited {
            true => 1.0 / self.server_busy.unwrap_or(0.0).clamp(BUSY_SHARE_MIN, 1.0),
            false => 1.0,
        };
        let room = if room <= ROOM_NONE { 1.0 } else { room };
        let (low, high) = match metric {
            Metric::CompletedPerS | Metric::GoodPerS | Metric::BytesPerS => (value, value * room),
            Metric::InFlight | Metric::InGoalPerS | Metric::InGoalShare => (value, value),
            _ if metric.is_of_times() => (value / room, value),
            _ => (value, value),
        };
        Some(Range { low, value, high })
    }
}

/// A server that was seen to do nothing, or not seen, has so much room: more says nothing either.
const BUSY_SHARE_MIN: f64 = 0.01;
/// A server that was busy 95 % of the time was the limit itself. Servers of which a client that was
/// half idle asked for all they had were seen at 93 to 97 %: the rest is the kernel's, for the packets
/// of both sides.
const ROOM_NONE: f64 = 1.0 / 0.95;

/// Of all CPUs that it could use, by its quota too, or of one by its busiest thread.
fn server_busy(values: &BTreeMap<Metric, f64>, cpus: Option<f64>) -> Option<f64> {
    let share = |metric| values.get(&metric).copied();
    let all = share(Metric::CpuUserShare)? + share(Metric::CpuKernelShare)?;
    let of_cpus = all / cpus.unwrap_or(1.0);
    let busiest = share(Metric::BusiestThreadShare).unwrap_or(0.0);
    Some(of_cpus.max(busiest))
}

/// What the client's plain group says; discarded trials have it too, as far as it goes.
fn client_values(load: &TrialRecord, group: &GroupRecord) -> BTreeMap<Metric, f64> {
    let total = &group.total;
    let error_share = total.tally.errors_total() as f64 / total.tally.offered as f64;
    let has_goal = load.run.latency_goal_s.is_some();
    let in_goal_per_s = has_goal.then_some(total.rates.in_goal_per_s);
    let in_goal_share = total.tally.in_goal as f64 / total.tally.good as f64;
    let retries_per_s = (load.run.retries_max > 0).then_some(total.rates.retries_per_s);
    let us = |us: Option<u64>| us.map(|us| us as f64);
    let percentile = |percent| us(total.latency.percentile_us(percent));
    let values = [
        (Metric::CompletedPerS, Some(total.rates.completed_per_s)),
        (Metric::GoodPerS, Some(total.rates.good_per_s)),
        (Metric::OfferedPerS, Some(total.rates.offered_per_s)),
        (Metric::BytesPerS, Some(total.rates.bytes_received_per_s)),
        (Metric::ErrorShare, Some(error_share)),
        (Metric::MeanUs, total.latency.mean_us()),
        (Metric::StdevUs, total.latency.stdev_us()),
        (Metric::P50Us, percentile(50.0)),
        (Metric::P90Us, percentile(90.0)),
        (Metric::P99Us, percentile(99.0)),
        (Metric::P999Us, percentile(99.9)),
        (Metric::MaxUs, us(total.latency.max_us())),
        (Metric::ServiceP50Us, us(total.service.percentile_us(50.0))),
        (Metric::ServiceP99Us, us(total.service.percentile_us(99.0))),
        (Metric::InFlight, total.in_flight),
        (Metric::InGoalPerS, in_goal_per_s),
        (Metric::InGoalShare, has_goal.then_some(in_goal_share)),
        (Metric::RetriesPerS, retries_per_s),
        (Metric::RecoveryUs, recovery_us(load, group)),
        (Metric::ResumedShare, total.tally.resumed_share()),
        (Metric::StalledShare, stalled_share(load, group)),
    ];
    present(&values)
}

/// What the server used, for each answer that came while it was looked at.
fn server_values(trial: &Trial) -> BTreeMap<Metric, f64> {
    let server = &trial.server;
    let total = trial.load.as_ref().and_then(|load| load.headline());
    let seconds = total.map_or(0.0, |group| group.total.seconds);
    // All groups together: slow clients cost CPU time too.
    let completed = trial.load.as_ref().map_or(0.0, |load| {
        let rates = load.groups.iter().map(|group| &group.total);
        rates
            .map(|total| total.rates.completed_per_s * total.seconds)
            .sum()
    });
    let (user_s, kernel_s) = (server.cpu_user_s, server.cpu_kernel_s);
    let cpu_s = user_s + kernel_s;
    let is_seen = cpu_s > 0.0;
    // Shares are of the whole run, which hardly differs from the part that counts.
    let client_s = seconds
        * trial.load.as_ref().map_or(0.0, |load| {
            load.threads.iter().map(|thread| thread.cpu_share).sum()
        });
    let imbalance = loop_imbalance(&server.responses_by_loop);
    let per_request = |amount: f64| (completed > 0.0).then(|| amount / completed);
    let us = |cpu_s: f64| per_request(cpu_s * 1e6).filter(|_| is_seen);
    let share = |cpu_s: f64| (is_seen && seconds > 0.0).then(|| cpu_s / seconds);
    let values = [
        (Metric::CpuUsPerRequest, us(cpu_s)),
        (Metric::CpuBothUsPerRequest, us(cpu_s + client_s)),
        (Metric::CpuUserUsPerRequest, us(user_s)),
        (Metric::CpuKernelUsPerRequest, us(kernel_s)),
        (Metric::CpuUserShare, share(user_s)),
        (Metric::CpuKernelShare, share(kernel_s)),
        (Metric::CpuShare, share(cpu_s)),
        (Metric::ClientCpuShare, share(client_s)),
        (Metric::BusiestThreadShare, server.busiest_thread),
        (Metric::LoopImbalance, imbalance),
        (
            Metric::ContextSwitchesPerRequest,
            server
                .context_switches
                .and_then(|count| per_request(count as f64)),
        ),
        (
            Metric::QueueWaitUs,
            server.jobs.and_then(WorkerJobs::mean_wait_us),
        ),
        (
            Metric::ThrottledShare,
            (server.cpu_quota.as_ref()).and_then(CpuQuota::throttled_share),
        ),
        (
            Metric::MemoryBytes,
            server.pss_bytes_max.map(|bytes| bytes as f64),
        ),
        (Metric::Threads, server.threads_max.map(f64::from)),
    ];
    present(&values)
}

/// The largest over the mean; `None`: there is nothing to be divided.
fn loop_imbalance(by_loop: &[u64]) -> Option<f64> {
    let all: u64 = by_loop.iter().sum();
    let largest = by_loop
        .iter()
        .max()
        .filter(|_| by_loop.len() > 1 && all > 0)?;
    Some(*largest as f64 * by_loop.len() as f64 / all as f64)
}

/// Those that are numbers: a share of nothing is none.
fn present(values: &[(Metric, Option<f64>)]) -> BTreeMap<Metric, f64> {
    let finite = |value: &f64| value.is_finite();
    let values = values.iter();
    to_map(values.filter_map(|(metric, value)| Some((*metric, value.filter(finite)?))))
}

/// Percentiles that are backed by samples enough; the smallest value stands at 0.
pub(crate) fn spectrum(of: &Distribution) -> Vec<(f64, u64)> {
    let value = |percent: f64| match percent {
        0.0 => of.min_us(),
        _ => of.percentile_us(percent),
    };
    SPECTRUM_PERCENTS
        .into_iter()
        .filter_map(|percent| Some((percent, value(percent)?)))
        .collect()
}

fn seconds(load: &TrialRecord, group: &GroupRecord) -> Vec<Second> {
    // The last second is not whole: its counts are no rates.
    let is_whole = |second: u32| f64::from(second) + 1.0 <= load.run.ran_s + 0.001;
    let records = group.series.iter().filter(|record| is_whole(record.second));
    records
        .map(|record| {
            let us = |us: Option<u64>| us.map(|us| us as f64);
            let share = record.errors as f64 / record.offered.max(1) as f64;
            let in_goal = (load.run.latency_goal_s).map(|_| record.in_goal as f64);
            Second {
                second: record.second,
                counted: load.phase_of(record.second).is_none_or(|it| it.counted),
                values: present(&[
                    (Metric::CompletedPerS, Some(record.completed as f64)),
                    (Metric::GoodPerS, Some(record.good as f64)),
                    (Metric::InGoalPerS, in_goal),
                    (Metric::RetriesPerS, Some(record.retries as f64)),
                    (Metric::OfferedPerS, Some(record.offered as f64)),
                    (Metric::BytesPerS, Some(record.bytes_received as f64)),
                    (Metric::ErrorShare, Some(share)),
                    (Metric::P50Us, us(record.p50_us)),
                    (Metric::P90Us, us(record.p90_us)),
                    (Metric::P99Us, us(record.p99_us)),
                    (Metric::MaxUs, us(record.max_us)),
                    (Metric::InFlight, record.in_flight),
                ]),
            }
        })
        .collect()
}

/// `None`: they are no players, or nobody knows how many.
fn stalled_share(load: &TrialRecord, group: &GroupRecord) -> Option<f64> {
    let players = load.run.spec.get("players");
    let count = players.filter(|_| group.name == "players")?;
    let of_text = || count.as_str()?.parse().ok();
    let count: f64 = count.as_f64().or_else(of_text)?;
    let stalled_s = group.total.tally.stalled_ns as f64 / 1e9;
    Some(stalled_s / (count * group.total.seconds))
}

/// How long after its last fall the offered rate still met errors; `None`: it never fell.
fn recovery_us(load: &TrialRecord, group: &GroupRecord) -> Option<f64> {
    let LoadRecord::Open { segments, .. } = &load.run.load else {
        return None;
    };
    let mut fell_s = None;
    let (mut at_s, mut before) = (0.0, 0.0);
    for segment in segments {
        if segment.begin_per_s < before {
            fell_s = Some(at_s);
        }
        at_s += segment.len_s;
        if segment.end_per_s < segment.begin_per_s {
            fell_s = Some(at_s);
        }
        before = segment.end_per_s;
    }
    let fell_s = fell_s?;
    let failed = group.series.iter().filter(|second| second.errors > 0);
    let ends_s = failed.map(|second| (f64::from(second.second) + 1.0).min(load.run.ran_s));
    let last_s = ends_s.fold(fell_s, f64::max);
    Some((last_s - fell_s) * 1e6)
}

#[cfg(test)]
mod tests {
    use loadline_record::{SecondRecord, SegmentRecord};

    use super::*;

    #[test]
    fn recovery_ends_with_the_last_second_that_had_an_error() {
        let recovery = |failed: &[u32], rates: &[[f64; 2]]| {
            let segment = |[begin_per_s, end_per_s]: &[f64; 2]| SegmentRecord {
                len_s: 2.5,
                begin_per_s: *begin_per_s,
                end_per_s: *end_per_s,
            };
            let mut load = TrialRecord::default();
            load.run.ran_s = 10.0;
            load.run.load = LoadRecord::Open {
                arrivals: String::new(),
                overflow: String::new(),
                segments: rates.iter().map(segment).collect(),
            };
            let series = (0..10).map(|second| SecondRecord {
                second,
                errors: u64::from(failed.contains(&second)),
                ..SecondRecord::default()
            });
            let group = GroupRecord {
                series: series.collect(),
                ..GroupRecord::default()
            };
            recovery_us(&load, &group).map(|us| us / 1e6)
        };
        let steps = [100.0, 900.0, 90.0, 90.0].map(|rate| [rate; 2]);
        assert_eq!(recovery(&[0, 1, 3, 6], &steps), Some(2.0));
        assert_eq!(recovery(&[3], &steps), Some(0.0));
        assert_eq!(recovery(&[5, 9], &steps), Some(5.0));
        assert_eq!(recovery(&[5], &[[100.0; 2], [200.0; 2]]), None);
        // Over a ramp the rate has fallen at its end.
        let ramps = [[100.0, 1000.0], [1000.0, 100.0], [100.0, 100.0]];
        assert_eq!(recovery(&[1, 6], &ramps), Some(2.0));
        assert_eq!(recovery(&[1], &ramps), Some(0.0));
        assert_eq!(recovery(&[5], &ramps[..1]), None);
    }

    #[test]
    fn the_mean_of_a_short_closed_loop_is_littles() {
        let mut group = GroupRecord::default();
        let mut times = loadline_record::latencies();
        times.saturating_record_n(600_000, 500);
        times.saturating_record_n(1_000_000, 500);
        group.total.latency = Distribution::new(times);
        group.total.tally.offered = 1_000;
        let mut load = TrialRecord {
            groups: vec![group],
            ..TrialRecord::default()
        };
        load.verdict.cycle_mean_s = Some(5.0);
        let trial = |load: &TrialRecord, times_discarded: &[&str]| {
            Measured::new(Trial {
                load: Some(Box::new(load.clone())),
                times_discarded: times_discarded.iter().map(|&one| one.to_owned()).collect(),
                ..Trial::default()
            })
        };
        let long = trial(&load, &[]);
        assert_eq!(long.offered, 1_000);
        assert!(long.value(Metric::MeanUs).unwrap() < 1e6);
        let stdev_us = long.value(Metric::StdevUs).unwrap();
        assert!((stdev_us - 2e5).abs() < 2e3, "{stdev_us}");
        load.verdict.short = Some("One cycle takes about 5 s.".to_owned());
        let short = trial(&load, &["One cycle takes about 5 s."]);
        assert_eq!(short.value(Metric::MeanUs), Some(5e6));
        assert_eq!(short.value(Metric::P50Us), None);
        assert_eq!(short.value(Metric::StdevUs), None);
    }

    #[test]
    fn players_stand_still_for_a_part_of_their_time() {
        let mut group = GroupRecord {
            name: "players".to_owned(),
            ..GroupRecord::default()
        };
        group.total.seconds = 8.0;
        group.total.tally.stalled_ns = 20_000_000_000;
        let mut load = TrialRecord::default();
        assert_eq!(stalled_share(&load, &group), None);
        for count in [serde_json::json!(10), serde_json::json!("10")] {
            load.run.spec.insert("players".to_owned(), count);
            assert_eq!(stalled_share(&load, &group), Some(0.25));
        }
        group.name = "clients".to_owned();
        assert_eq!(stalled_share(&load, &group), None);
    }

    #[test]
    fn loops_are_even_if_each_has_the_mean() {
        for (by_loop, imbalance) in [
            (&[5, 5, 5, 5][..], Some(1.0)),
            (&[30, 10], Some(1.5)),
            (&[0, 0, 9], Some(3.0)),
            (&[7], None),
            (&[0, 0], None),
            (&[], None),
        ] {
            assert_eq!(loop_imbalance(by_loop), imbalance, "{by_loop:?}");
        }
    }

    #[test]
    fn how_long_jobs_wait_for_a_worker_is_their_mean() {
        let wait_us = |jobs: Option<WorkerJobs>| {
            let server = ServerFacts {
                jobs,
                ..ServerFacts::default()
            };
            let trial = Trial {
                server,
                ..Trial::default()
            };
            Measured::new(trial).measured(Metric::QueueWaitUs)
        };
        let jobs = WorkerJobs {
            count: 4,
            waited_us: 10,
        };
        assert_eq!(wait_us(Some(jobs)), Some(2.5));
        assert_eq!(wait_us(Some(WorkerJobs::default())), None);
        assert_eq!(wait_us(None), None);
    }

    #[test]
    fn a_client_at_its_end_leaves_room() {
        let mut trial = Measured {
            values: [(Metric::GoodPerS, 900.0), (Metric::P99Us, 500.0)].into(),
            server_busy: Some(0.5),
            ..Measured::default()
        };
        let range = |trial: &Measured, metric| {
            let it = trial.range(metric).unwrap();
            (it.low, it.value, it.high)
        };
        assert_eq!(range(&trial, Metric::GoodPerS), (900.0, 900.0, 900.0));
        trial.client_limited = true;
        assert_eq!(range(&trial, Metric::GoodPerS), (900.0, 900.0, 1800.0));
        assert_eq!(range(&trial, Metric::P99Us), (250.0, 500.0, 500.0));
        // The server was at its end, too.
        trial.server_busy = Some(0.96);
        assert_eq!(range(&trial, Metric::GoodPerS), (900.0, 900.0, 900.0));
        trial.server_busy = None;
        assert_eq!(range(&trial, Metric::GoodPerS), (900.0, 900.0, 90_000.0));
        assert_eq!(trial.range(Metric::MeanUs), None);
    }

    #[test]
    fn a_server_is_busy_by_its_cpus_or_by_one_thread() {
        let values = |user, kernel, busiest| {
            [
                (Metric::CpuUserShare, user),
                (Metric::CpuKernelShare, kernel),
                (Metric::BusiestThreadShare, busiest),
            ]
            .into()
        };
        assert_eq!(server_busy(&values(0.5, 1.0, 0.9), Some(2.0)), Some(0.9));
        assert_eq!(server_busy(&values(0.5, 1.0, 0.3), Some(2.0)), Some(0.75));
        assert_eq!(server_busy(&BTreeMap::new(), Some(1.0)), None);
    }

    /// A server that may use 40 % of a CPU and uses 38 % is not idle for 62 % of the time.
    #[test]
    fn a_server_with_a_quota_is_busy_by_that() {
        let mut facts = ServerFacts {
            cpus: "1-2".to_owned(),
            ..ServerFacts::default()
        };
        assert_eq!(facts.cpus_usable(), Some(2.0));
        facts.cpu_quota = Some(CpuQuota {
            cpus: 0.4,
            periods: 200,
            periods_throttled: 150,
            ..CpuQuota::default()
        });
        let values = [
            (Metric::CpuUserShare, 0.30),
            (Metric::CpuKernelShare, 0.08),
            (Metric::BusiestThreadShare, 0.38),
        ];
        let busy = server_busy(&values.into(), facts.cpus_usable()).unwrap();
        assert!((busy - 0.95).abs() < 1e-9, "{busy}");
        let trial = Trial {
            server: facts,
            ..Trial::default()
        };
        let throttled = Measured::new(trial).measured(Metric::ThrottledShare);
        assert_eq!(throttled, Some(0.75));
    }
}
