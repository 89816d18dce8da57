//! Records made by hand: every figure in them is known.

use std::sync::LazyLock;

use hdrhistogram::Histogram;
use loadline_record::{
    Distribution, ErrorKind, GroupRecord, LittleRecord, LoadRecord, MachineRecord, NetworkRecord,
    PhaseRecord, Rates, Results, RunRecord, SecondRecord, SegmentRecord, Tally, ThreadRecord,
    TrialRecord, Verdict, WatchedRecord, latencies,
};

/// The `count` quantiles of an exponential distribution behind a constant part, in microseconds.
fn shifted_exponential(count: u64, constant_us: f64, mean_us: f64) -> Histogram<u64> {
    let mut histogram = latencies();
    for index in 0..count {
        let quantile = (index as f64 + 0.5) / count as f64;
        let us = constant_us - mean_us * (1.0 - quantile).ln();
        histogram.saturating_record(us.round() as u64);
    }
    histogram
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn rates(tally: &Tally, seconds: f64) -> Rates {
    let per_second = |count: u64| count as f64 / seconds;
    Rates {
        offered_per_s: per_second(tally.offered),
        sent_per_s: per_second(tally.sent),
        completed_per_s: per_second(tally.completed),
        in_goal_per_s: tally.in_goal as f64 / seconds,
        retries_per_s: tally.retries as f64 / seconds,
        good_per_s: per_second(tally.good),
        bytes_received_per_s: per_second(tally.bytes_received),
        bytes_sent_per_s: per_second(tally.bytes_sent),
    }
}

/// What had come when the run ended.
fn in_time(results: &Results) -> Tally {
    let (all, late) = (&results.tally, &results.after_end);
    Tally {
        completed: all.completed - late.completed,
        good: all.good - late.good,
        bytes_received: all.bytes_received - late.bytes_received,
        ..all.clone()
    }
}

/// Answers of 347 bytes, 100 of them content, to requests of 62.
pub(crate) fn answered(
    offered: u64,
    statuses: &[(u16, u64)],
    failed: &[(ErrorKind, u64)],
) -> Tally {
    let completed = statuses.iter().map(|(_, count)| count).sum();
    let good = statuses.iter().filter(|(status, _)| *status < 300);
    let mut tally = Tally {
        offered,
        sent: offered,
        completed,
        good: good.map(|(_, count)| count).sum(),
        status_codes: statuses.iter().copied().filter(|one| one.1 > 0).collect(),
        connections: 100,
        bytes_received: completed * 347,
        content_bytes: completed * 100,
        bytes_sent: offered * 62,
        ..Tally::default()
    };
    for (status, count) in statuses.iter().filter(|(_, count)| *count > 0) {
        tally.statuses[usize::from(status / 100) - 1] += count;
        if *status >= 400 {
            tally.unexpected_statuses.push((*status, *count));
        }
    }
    for (kind, count) in failed {
        tally.errors[*kind as usize] += count;
        if *kind == ErrorKind::Refused {
            tally.sent -= count;
        }
    }
    tally
}

pub(crate) fn results(seconds: f64, tally: Tally, constant_us: f64, mean_us: f64) -> Results {
    let service = shifted_exponential(tally.completed, constant_us, mean_us);
    // What waits, waits longest at the end.
    let latency = shifted_exponential(tally.completed, constant_us, mean_us * 1.5);
    let first_byte = shifted_exponential(tally.completed, constant_us * 0.9, mean_us * 0.9);
    let mut failure = latencies();
    failure.saturating_record_n(2_000_000, tally.errors_of(ErrorKind::Timeout));
    failure.saturating_record_n(1_000, tally.errors_of(ErrorKind::Refused));
    Results {
        seconds,
        rates: rates(&tally, seconds),
        in_flight: Some(tally.completed as f64 / seconds * (constant_us + mean_us) / 1e6),
        tally,
        after_end: Tally::default(),
        latency: Distribution::new(latency),
        service: Distribution::new(service),
        first_byte: Distribution::new(first_byte),
        connect: Distribution::default(),
        handshake: Distribution::default(),
        failure: Distribution::new(failure),
    }
}

fn series(completed: &[u64]) -> Vec<SecondRecord> {
    let second = |(index, &completed): (usize, &u64)| SecondRecord {
        second: u32::try_from(index).unwrap(),
        completed,
        ..SecondRecord::default()
    };
    completed.iter().enumerate().map(second).collect()
}

fn engine(name: &str, cpu_share: f64, lag_us: f64) -> ThreadRecord {
    ThreadRecord {
        name: name.to_owned(),
        wall_s: 30.0,
        cpu_share,
        busy_share: cpu_share + 0.01,
        after_end_s: 0.0042,
        turns: 40_000,
        batch: 1.5,
        lag: Distribution::new(shifted_exponential(10_000, lag_us, lag_us)),
        read_lag: Distribution::new(shifted_exponential(2_000, 8.0, lag_us)),
        ..ThreadRecord::default()
    }
}

fn phase(label: &str, begin_s: f64, end_s: f64, rate: Option<f64>) -> PhaseRecord {
    PhaseRecord {
        label: label.to_owned(),
        begin_s,
        end_s,
        planned_per_s: rate,
        counted: true,
    }
}

/// 2000/s for 30 s in an open loop, with timeouts, server errors and a watched server.
pub(crate) fn open() -> TrialRecord {
    static RECORD: LazyLock<TrialRecord> = LazyLock::new(make_open);
    RECORD.clone()
}

/// The same by clients that tried again.
pub(crate) fn retried() -> TrialRecord {
    let mut record = open();
    record.run.retries_max = 2;
    record.run.latency_goal_s = Some(1.0);
    let total = &mut record.groups[0].total;
    let tally = &mut total.tally;
    (tally.in_goal, tally.retries) = (tally.good - 40, 55);
    tally.retried[ErrorKind::Status5xx as usize] = 35;
    tally.retried[ErrorKind::Timeout as usize] = 21;
    // Those that were tried again were answered, too.
    tally.completed += 35;
    tally.statuses[4] += 35;
    tally.status_codes[1].1 += 35;
    total.rates = rates(&total.tally, total.seconds);
    record
}

fn make_open() -> TrialRecord {
    let failed = [(ErrorKind::Timeout, 41), (ErrorKind::Status5xx, 20)];
    let tally = answered(60_001, &[(200, 59_940), (503, 20)], &failed);
    let total = results(30.0, tally, 800.0, 400.0);
    let completed: Vec<u64> = (0..30).map(|second| 1990 + second % 3 * 8).collect();
    let clients = GroupRecord {
        name: "clients".to_owned(),
        phases: vec![total.clone()],
        total,
        series: series(&completed),
        ..GroupRecord::default()
    };
    TrialRecord {
        run: RunRecord {
            urls: vec!["http://127.0.0.1:8080/".to_owned()],
            servers: vec!["127.0.0.1:8080".to_owned()],
            command: words("loadline load http://127.0.0.1:8080/ --rate 2000"),
            load: LoadRecord::Open {
                arrivals: "poisson".to_owned(),
                overflow: "queue".to_owned(),
                segments: vec![SegmentRecord {
                    len_s: 30.0,
                    begin_per_s: 2000.0,
                    end_per_s: 2000.0,
                }],
            },
            connections: 100,
            planned_s: Some(30.0),
            ran_s: 30.0,
            ..RunRecord::default()
        },
        phases: vec![phase("all", 0.0, 30.0, Some(2000.0))],
        groups: vec![clients],
        threads: vec![
            engine("engine 0", 0.40, 12.0),
            engine("engine 1", 0.38, 11.0),
        ],
        verdict: Verdict {
            busiest_share: Some(0.41),
            busiest_thread: Some("engine 0".to_owned()),
            lag_p99_us: Some(67),
            sent_share: Some(1.0),
            little: Some(LittleRecord {
                in_flight: 2.41,
                expected: 2.40,
                expected_max: 5.13,
                tolerance: 0.05,
                tolerance_requests: 0.5,
                holds: true,
            }),
            ..Verdict::default()
        },
        watched: vec![server()],
        ..TrialRecord::default()
    }
}

fn server() -> WatchedRecord {
    WatchedRecord {
        name: "server".to_owned(),
        pid: 4242,
        seconds: 30.0,
        cpu_user_s: 4.31,
        cpu_kernel_s: 9.87,
        run_delay_s: 0.124,
        completed_per_cpu_s: Some(59_960.0 / 14.18),
        pss_bytes_max: Some(12_700_000),
        processes_max: 1,
        threads_max: 3,
        descriptors_max: Some(112),
        switches_voluntary: 31_245,
        switches_involuntary: 812,
        ..WatchedRecord::default()
    }
}

/// As many as it gets in 5 s on new connections, 10,000 at once; the client is the limit.
pub(crate) fn closed(round: u32, rounds: u32) -> TrialRecord {
    let completed = 100_000 + u64::from(round) * 1_000;
    let failed = [(ErrorKind::Refused, 250), (ErrorKind::Reset, 50)];
    let mut tally = answered(completed + 300, &[(200, completed)], &failed);
    tally.connections = completed + 50;
    let total = results(5.0, tally, 20_000.0, 400_000.0);
    let a_second = completed / 5;
    let clients = GroupRecord {
        name: "clients".to_owned(),
        phases: vec![total.clone()],
        total,
        series: series(&[a_second - 100, a_second, a_second, a_second, a_second + 100]),
        ..GroupRecord::default()
    };
    TrialRecord {
        run: RunRecord {
            urls: vec!["http://127.0.0.1:8080/".to_owned()],
            servers: vec!["127.0.0.1:8080".to_owned()],
            load: LoadRecord::Closed {
                think_s: 0.0,
                coalesces: true,
            },
            method: Some("GET".to_owned()),
            http: Some("1.1".to_owned()),
            connections: 10_000,
            requests_per_connection: Some(1),
            planned_s: Some(5.0),
            ran_s: 5.0,
            processes: 2,
            round,
            rounds,
            ..RunRecord::default()
        },
        phases: vec![phase("all", 0.0, 5.0, None)],
        groups: vec![clients],
        threads: vec![engine("engine 0", 0.93, 40.0)],
        verdict: Verdict {
            client_limited: true,
            reasons: vec![
                "Thread \"engine 0\" of the client was busy 94 % of the time (CPU 93 %); more than \
                 80 % is too much."
                    .to_owned(),
            ],
            busiest_share: Some(0.94),
            busiest_thread: Some("engine 0".to_owned()),
            little: Some(LittleRecord {
                in_flight: 9_980.0,
                expected: 8_400.0,
                expected_max: 8_400.0,
                tolerance: 0.05,
                tolerance_requests: 0.5,
                holds: false,
            }),
            ..Verdict::default()
        },
        machine: MachineRecord {
            cpus: 2,
            steal_s: Some(0.3),
            network_before: NetworkRecord {
                listen_overflows: Some(7),
                retransmits: Some(1000),
                ..NetworkRecord::default()
            },
            network_after: NetworkRecord {
                listen_overflows: Some(19),
                retransmits: Some(1340),
                ..NetworkRecord::default()
            },
            ..MachineRecord::default()
        },
        limits: vec![
            "28,232 ephemeral ports are too few for 10,000 connections at a time that are closed \
             at once: connections came from 127.0.0.2 to 127.0.0.5"
                .to_owned(),
        ],
        ..TrialRecord::default()
    }
}

/// 100/s, 200/s and 300/s for 10 s each, after a warm-up; the last one is too much.
pub(crate) fn steps() -> TrialRecord {
    let mut warm_up = phase("warm-up", 0.0, 5.0, Some(100.0));
    warm_up.counted = false;
    let mut phases = vec![warm_up];
    let mut each = vec![results(
        5.0,
        answered(500, &[(200, 500)], &[]),
        700.0,
        300.0,
    )];
    let mut total_tally = Tally::default();
    let mut completed = vec![100; 5];
    for (index, rate) in [100, 200, 300].into_iter().enumerate() {
        let begin_s = 5.0 + 10.0 * index as f64;
        let label = format!("{rate}/s");
        phases.push(phase(&label, begin_s, begin_s + 10.0, Some(rate as f64)));
        let offered = rate * 10;
        let tally = match rate {
            300 => {
                let failed = [(ErrorKind::Timeout, 150), (ErrorKind::Status4xx, 9)];
                answered(offered, &[(200, 2841), (404, 9)], &failed)
            }
            _ => answered(offered, &[(200, offered)], &[]),
        };
        completed.extend([tally.completed / 10; 10]);
        total_tally.merge(&tally);
        let mut results = results(10.0, tally, 700.0, rate as f64 * 3.0);
        if rate == 300 {
            results.after_end = answered(0, &[(200, 2)], &[]);
            results.after_end.connections = 0;
            results.rates = rates(&in_time(&results), 10.0);
        }
        each.push(results);
    }
    let mut total = results(30.0, total_tally, 700.0, 600.0);
    total.after_end = each[3].after_end.clone();
    total.rates = rates(&in_time(&total), 30.0);
    let clients = GroupRecord {
        name: "clients".to_owned(),
        total,
        phases: each,
        series: series(&completed),
        ..GroupRecord::default()
    };
    let mut record = open();
    record.run.planned_s = Some(35.0);
    record.run.ran_s = 35.0;
    record.run.load = LoadRecord::Open {
        arrivals: "constant".to_owned(),
        overflow: "drop".to_owned(),
        segments: [100.0, 200.0, 300.0].map(step).to_vec(),
    };
    record.phases = phases;
    record.groups = vec![clients];
    record.watched.clear();
    record.verdict.notes =
        vec!["in 300/s all connections were waiting for the server for a time".to_owned()];
    record
}

fn step(per_s: f64) -> SegmentRecord {
    SegmentRecord {
        len_s: 10.0,
        begin_per_s: per_s,
        end_per_s: per_s,
    }
}

/// Interrupted, with few answers, beside slow readers.
pub(crate) fn interrupted() -> TrialRecord {
    let mut tally = answered(60, &[(200, 40)], &[(ErrorKind::Timeout, 8)]);
    tally.sent = 48;
    tally.errors[ErrorKind::Dropped as usize] = 7;
    tally.unfinished = 5;
    let total = results(1.5, tally, 3000.0, 9000.0);
    let clients = GroupRecord {
        name: "clients".to_owned(),
        phases: vec![total.clone()],
        total,
        series: series(&[25, 15]),
        ..GroupRecord::default()
    };
    let slow = answered(200, &[(200, 12)], &[(ErrorKind::Reset, 3)]);
    let slow = results(1.5, slow, 400_000.0, 300_000.0);
    let slow_readers = GroupRecord {
        name: "slow-readers".to_owned(),
        phases: vec![slow.clone()],
        total: slow,
        series: series(&[5, 7]),
        ..GroupRecord::default()
    };
    let mut record = open();
    record.run.interrupted = true;
    record.run.ran_s = 1.5;
    record
        .run
        .urls
        .push("http://127.0.0.1:8080/second".to_owned());
    record.phases = vec![phase("all", 0.0, 1.5, Some(40.0))];
    record.groups = vec![clients, slow_readers];
    record.watched.clear();
    record.verdict.little = None;
    record.verdict.lag_p99_us = None;
    record
}

/// Nothing came back.
pub(crate) fn silent() -> TrialRecord {
    let mut record = open();
    let tally = answered(10, &[], &[(ErrorKind::Refused, 10)]);
    let total = results(30.0, tally, 1.0, 1.0);
    record.groups[0].phases = vec![total.clone()];
    record.groups[0].total = total;
    record.groups[0].series.clear();
    record.watched.clear();
    record.verdict = Verdict::default();
    record
}
