//! A run that never ran: a journal and HDR logs of a made-up machine, the same every time.
//!
//! Three series: four architectures by service time with A/A cells, loops by workers as a surface, and
//! servers by name. Three trials are discarded.

use std::fs;
use std::path::Path;

use loadline_lab::journal::{
    JOURNAL_FILE, Level, Levels, Line, RunHead, SCHEMA, ServerFacts, Trial,
};
use loadline_record::distribution::compressed;
use loadline_record::export::write_hdr;
use loadline_record::{
    Distribution, GroupRecord, PhaseRecord, Rates, Results, SecondBlobs, SecondRecord, Tally,
    TrialRecord, latencies,
};

/// The plan that the run is of.
pub(crate) const PLAN: &str = r#"name = "made-up"
title = "Which architecture carries most, and for how long a service time?"
seed = 7

[servers.loadline]
[servers.nginx-tuned]
[servers.apache-event]

[[series]]
name = "models"
servers = ["loadline"]
replicates = 5
[series.factors]
architecture = ["thread-pool", "reactor", "proactor", "thread-per-connection"]
service_us = [0, 100, 200, 400, 700, 1000]

[[series]]
name = "surface"
servers = ["loadline"]
replicates = 3
[series.factors]
loops = [1, 2, 4, 8, 16, 50]
workers = [1, 2, 4, 8, 16, 50]
service_us = [0, 200]

[[series]]
name = "servers"
replicates = 5
[series.factors]
file_bytes = [1024, 1048576]

[[chart]]
series = "models"
title = "Throughput against service time"
note = "A worker that sleeps for the service time leaves its CPU to others."
x = "service_us"
lines = "architecture"
reference = [{ label = "Published, one loop", points = [[0, 21000], [100, 8000], [400, 2300], [1000, 950]] }]

[[chart]]
series = "models"
kind = "lines"
title = "The slowest of a hundred answers"
metric = "p99_us"
x = "service_us"
lines = "architecture"
spread = "min_max"
log_y = true

[[chart]]
series = "surface"
kind = "surface"
title = "Throughput over loops and workers"
x = "loops"
y = "workers"
facets = "service_us"

[[chart]]
series = "surface"
kind = "heat_map"
title = "CPU time of a request"
metric = "cpu_us_per_request"
x = "loops"
y = "workers"
only = { service_us = 200 }

[[chart]]
series = "servers"
kind = "bars"
title = "Beside other servers"
x = "file_bytes"
lines = "server"

[[chart]]
series = "models"
kind = "spectrum"
title = "Latency of all answers at 200 µs"
metric = "p50_us"
lines = "architecture"
only = { service_us = 200 }

[[chart]]
series = "models"
kind = "time_series"
title = "Second by second at 200 µs"
lines = "architecture"
only = { service_us = 200 }
"#;

/// Seconds of load, the first of them warm-up.
const SECONDS: u32 = 9;
const START_UNIX_MS: u64 = 1_795_000_000_000;

/// A small generator (Knuth's MMIX constants), so that the run is the same on every machine.
struct Lot(u64);

impl Lot {
    /// Between 0 and 1.
    fn draw(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About 1, by a few per cent.
    fn noise(&mut self, size: f64) -> f64 {
        1.0 + (self.draw() + self.draw() + self.draw() - 1.5) * size
    }
}

/// Writes the run into `folder` and returns its trials as the journal has them.
pub(crate) fn write_run(folder: &Path) -> Vec<Trial> {
    write_long_run(folder, 1)
}

/// The same with so many times as many replicates.
pub(crate) fn write_long_run(folder: &Path, times: u32) -> Vec<Trial> {
    let mut lot = Lot(2026);
    let mut trials = planned(times);
    for (number, trial) in trials.iter_mut().enumerate() {
        trial.number = number as u32;
        trial.start_unix_ms = START_UNIX_MS + number as u64 * 11_000;
        measure(trial, &mut lot);
    }
    for (at, why) in [
        (
            3,
            "the client was the limit: its busiest thread ran 97 % of the time",
        ),
        (40, "the server died: signal 11 <\"&'>"),
        (131, "the hypervisor kept 6.1 % of the machine's time"),
    ] {
        trials[at].discarded = vec![why.to_owned()];
    }
    // Beside one of them, and counting in all but its times.
    trials[4].times_discarded = vec!["one request in a hundred was sent 900 us late".to_owned()];
    trials[40].load = None;
    trials[40].hdr_file = None;
    // The client was the limit of one cell.
    let is_limited = |trial: &&mut Trial| {
        trial.series == "models"
            && trial.levels["architecture"] == Level::from("proactor")
            && trial.levels["service_us"] == Level::Number(0.0)
    };
    for trial in trials.iter_mut().filter(is_limited) {
        trial.client_limited = true;
    }
    trials[7].notes = vec!["no steady state was seen".to_owned()];
    write(folder, &mut trials);
    trials
}

fn write(folder: &Path, trials: &mut [Trial]) {
    let head = RunHead {
        schema: SCHEMA.to_owned(),
        name: "made-up".to_owned(),
        plan_toml: PLAN.to_owned(),
        plan_folder: "/plans".to_owned(),
        seed: 7,
        version: "0.1.0".to_owned(),
        command: ["loadline", "lab", "run", "made up.toml", "--out", "results"]
            .map(str::to_owned)
            .to_vec(),
        start_unix_ms: START_UNIX_MS,
        cpus: vec![0, 1],
        left_out: vec!["lighttpd".to_owned()],
    };
    let mut journal = line(&Line::Run(Box::new(head)));
    fs::create_dir_all(folder.join("hdr")).expect("a folder for logs");
    for trial in trials {
        if let (Some(load), Some(file)) = (&trial.load, &trial.hdr_file) {
            let mut log = Vec::new();
            write_hdr(&[(**load).clone()], &mut log).expect("a log in memory");
            fs::write(folder.join(file), log).expect("a log is written");
        }
        journal += &line(&Line::Trial(Box::new(trial.clone())));
        // What the journal has is what a reader knows.
        if let Some(load) = &mut trial.load {
            let json = serde_json::to_string(load).expect("JSON");
            **load = serde_json::from_str(&json).expect("JSON");
        }
    }
    fs::write(folder.join(JOURNAL_FILE), journal).expect("a journal is written");
}

fn line(line: &Line) -> String {
    serde_json::to_string(line).expect("JSON") + "\n"
}

fn trial(series: &str, replicate: u32, levels: &[(&str, Level)]) -> Trial {
    let mut all: Levels = levels
        .iter()
        .map(|(name, level)| ((*name).to_owned(), level.clone()))
        .collect();
    all.entry("server".to_owned())
        .or_insert_with(|| Level::from("loadline"));
    Trial {
        series: series.to_owned(),
        levels: all,
        replicate,
        block: replicate - 1,
        ..Trial::default()
    }
}

fn planned(times: u32) -> Vec<Trial> {
    let mut trials = Vec::new();
    for replicate in 1..=5 * times {
        for architecture in [
            "thread-pool",
            "reactor",
            "proactor",
            "thread-per-connection",
        ] {
            for service_us in [0.0, 100.0, 200.0, 400.0, 700.0, 1000.0] {
                let levels = [
                    ("architecture", Level::from(architecture)),
                    ("service_us", Level::Number(service_us)),
                ];
                trials.push(trial("models", replicate, &levels));
            }
        }
        let levels = [
            ("architecture", Level::from("reactor")),
            ("service_us", Level::Number(0.0)),
        ];
        let mut again = trial("models", replicate, &levels);
        again.is_a_a = true;
        trials.push(again);
    }
    for replicate in 1..=3 * times {
        for loops in [1.0, 2.0, 4.0, 8.0, 16.0, 50.0] {
            for workers in [1.0, 2.0, 4.0, 8.0, 16.0, 50.0] {
                for service_us in [0.0, 200.0] {
                    let levels = [
                        ("loops", Level::Number(loops)),
                        ("workers", Level::Number(workers)),
                        ("service_us", Level::Number(service_us)),
                    ];
                    trials.push(trial("surface", replicate, &levels));
                }
            }
        }
    }
    for replicate in 1..=5 * times {
        for server in ["loadline", "nginx-tuned", "apache-event"] {
            for file_bytes in [1024.0, 1_048_576.0] {
                let levels = [
                    ("server", Level::from(server)),
                    ("file_bytes", Level::Number(file_bytes)),
                ];
                trials.push(trial("servers", replicate, &levels));
            }
        }
    }
    trials
}

fn number(trial: &Trial, factor: &str) -> Option<f64> {
    match trial.levels.get(factor) {
        Some(Level::Number(number)) => Some(*number),
        _ => None,
    }
}

fn is(trial: &Trial, factor: &str, name: &str) -> bool {
    trial.levels.get(factor) == Some(&Level::from(name))
}

/// What the made-up server carries.
fn rate(trial: &Trial) -> f64 {
    let service_us = number(trial, "service_us").unwrap_or(0.0);
    if let (Some(loops), Some(workers)) = (number(trial, "loops"), number(trial, "workers")) {
        let threads = loops.min(6.0).powf(0.5) * workers.min(12.0).powf(0.35);
        let switching = 1.0 + 0.012 * (loops + workers);
        return 12_000.0 * threads / switching / (1.0 + service_us / (60.0 * workers.min(16.0)));
    }
    if let Some(bytes) = number(trial, "file_bytes") {
        let of_server = match () {
            () if is(trial, "server", "loadline") => 1.06,
            () if is(trial, "server", "nginx-tuned") => 1.0,
            () => 0.55,
        };
        return of_server * 52_000.0 / (1.0 + bytes / 90_000.0);
    }
    let (base, threads) = match () {
        () if is(trial, "architecture", "thread-pool") => (31_000.0, 8.0),
        () if is(trial, "architecture", "reactor") => (46_000.0, 14.0),
        () if is(trial, "architecture", "proactor") => (46_500.0, 14.0),
        () => (24_000.0, 90.0),
    };
    1.0 / (1.0 / base + service_us / 1e6 / threads)
}

fn measure(trial: &mut Trial, lot: &mut Lot) {
    let rate = rate(trial) * lot.noise(0.03);
    let connections = 64.0;
    let mean_us = connections / rate * 1e6;
    let mut record = TrialRecord::default();
    record.run.start_unix_ms = trial.start_unix_ms;
    record.run.ran_s = f64::from(SECONDS);
    record.run.connections = 64;
    record.run.command = ["loadline", "load", "http://127.0.0.1/"]
        .map(str::to_owned)
        .to_vec();
    record.machine.cpu_model = "Made-up 9000".to_owned();
    record.machine.cpus = 2;
    record.machine.kernel = "6.12.0".to_owned();
    record.machine.steal_s = Some(0.012);
    record.phases = vec![
        PhaseRecord {
            label: "warm-up".to_owned(),
            end_s: 1.0,
            ..PhaseRecord::default()
        },
        PhaseRecord {
            begin_s: 1.0,
            end_s: f64::from(SECONDS),
            counted: true,
            ..PhaseRecord::default()
        },
    ];
    let mut group = GroupRecord {
        name: "clients".to_owned(),
        ..GroupRecord::default()
    };
    let mut phases = [latencies(), latencies()];
    let mut counts = [0_u64, 0];
    for second in 0..SECONDS {
        let completed = (rate * lot.noise(0.06) * if second == 0 { 0.8 } else { 1.0 }) as u64;
        let mut histogram = latencies();
        // Twenty times fewer samples than answers, each for twenty: a fixture need not be large.
        let weight = 20;
        for _ in 0..completed / weight {
            let slow = if lot.draw() < 0.01 { 6.0 } else { 1.0 };
            let us = mean_us * (0.35 - 0.65 * (1.0 - lot.draw()).ln()) * slow;
            histogram.saturating_record_n(us.max(1.0) as u64, weight);
        }
        let at = usize::from(second > 0);
        phases[at].add(&histogram).expect("the same bounds");
        counts[at] += histogram.len();
        let of_second = Distribution::new(histogram.clone());
        let blob = compressed(&histogram).expect("a histogram");
        group.series.push(SecondRecord {
            second,
            offered: histogram.len(),
            sent: histogram.len(),
            completed: histogram.len(),
            good: histogram.len(),
            p50_us: of_second.percentile_us(50.0),
            p90_us: of_second.percentile_us(90.0),
            p99_us: of_second.percentile_us(99.0),
            max_us: of_second.max_us(),
            in_flight: Some(connections),
            bytes_received: histogram.len() * 300,
            blobs: SecondBlobs {
                latency: blob.clone(),
                service: blob,
            },
            ..SecondRecord::default()
        });
    }
    group.phases = (0..2)
        .map(|at| results(&phases[at], counts[at], [1.0, f64::from(SECONDS - 1)][at]))
        .collect();
    group.total = group.phases[1].clone();
    serve(trial, counts[1], lot);
    record.groups = vec![group];
    trial.load = Some(Box::new(record));
    trial.hdr_file = Some(format!("hdr/{}.hlog", trial.number));
    trial.took_s = f64::from(SECONDS) + 1.3;
}

fn results(histogram: &hdrhistogram::Histogram<u64>, count: u64, seconds: f64) -> Results {
    let rate = count as f64 / seconds;
    Results {
        seconds,
        rates: Rates {
            offered_per_s: rate,
            sent_per_s: rate,
            completed_per_s: rate,
            good_per_s: rate,
            bytes_received_per_s: rate * 300.0,
            bytes_sent_per_s: rate * 80.0,
            ..Rates::default()
        },
        tally: Tally {
            offered: count,
            sent: count,
            completed: count,
            good: count,
            ..Tally::default()
        },
        in_flight: Some(64.0),
        latency: Distribution::new(histogram.clone()),
        service: Distribution::new(histogram.clone()),
        ..Results::default()
    }
}

fn serve(trial: &mut Trial, completed: u64, lot: &mut Lot) {
    let workers = number(trial, "workers").unwrap_or(4.0);
    let cpu_us = 14.0 + workers.sqrt() * 2.4 * lot.noise(0.05);
    let cpu_s = completed as f64 * cpu_us / 1e6;
    let name = match trial.levels.get("server") {
        Some(Level::Text(name)) => name.clone(),
        _ => String::new(),
    };
    let configuration = name
        .starts_with("nginx")
        .then(|| "worker_processes 1;\nevents { worker_connections 4096; }\n".to_owned());
    trial.server = ServerFacts {
        version: format!("{name}/1.0"),
        command: vec![name.clone(), "--port".to_owned(), "40001".to_owned()],
        configuration,
        name,
        cpus: "1".to_owned(),
        client_cpus: "0".to_owned(),
        cpu_user_s: cpu_s * 0.3,
        cpu_kernel_s: cpu_s * 0.7,
        busiest_thread: Some(0.93),
        busiest_thread_name: Some("loop 0".to_owned()),
        context_switches: Some((completed as f64 * 0.4 * workers.sqrt()) as u64),
        pss_bytes_max: Some((9.0e6 + workers * 4.0e5) as u64),
        threads_max: Some(workers as u32 + 2),
        ..ServerFacts::default()
    };
}
