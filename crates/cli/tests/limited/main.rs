//! The verdict of `loadline load`: a client that was the limit is called so, one that was not is not. And what
//! a server leaves of its capacity under more load. In a program of its own, and one test after the other:
//! another test is a machine that is busy.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod overload;
#[allow(dead_code, reason = "the tests of the server use the rest of it")]
#[path = "../program/util.rs"]
mod program;
#[allow(
    dead_code,
    reason = "the tests of the load generator use the rest of it"
)]
#[path = "../load/util.rs"]
mod util;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loadline_stub::{Latency, Stub, StubOptions};
use serde_json::Value;

use util::{Running, both, load, number, record, server, signal};

/// Held by the test that has the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a process run for a fifth of the time, until it is stopped.
fn held_to_a_fifth(id: u32) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_over);
    let hold = move || {
        while !asked.load(Ordering::Relaxed) {
            signal(id, "STOP");
            std::thread::sleep(Duration::from_millis(80));
            signal(id, "CONT");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    (is_over, std::thread::spawn(hold))
}

#[test]
fn a_client_held_to_a_fifth_of_a_cpu_is_limited() {
    let _alone = alone();
    let (server, _site) = server(&[]);
    let mut running = Running::start(&format!(
        "http://{}/ -c 16 -d 2s --rate 2000 --quiet",
        server.address()
    ));
    let (is_over, holding) = held_to_a_fifth(running.id());
    std::thread::sleep(Duration::from_millis(2_500));
    is_over.store(true, Ordering::Relaxed);
    holding.join().unwrap();
    let (status, out, err) = running.end();
    assert_eq!(status.code(), Some(5), "{out}{err}");
    assert!(err.contains("client-limited: "), "{err}");
}

/// A busy machine may keep a client from running, which the verdict says rightly; so it has some
/// tries.
const TRIES: usize = 10;
/// Stalls of a server of which one at least is to have the expected latencies.
const STALLS: usize = 5;
/// The verdict is about the latest request in a hundred. A client whose thread waits longer for its CPU
/// than this share of the time may be late for that, and so may one on a machine of which the
/// hypervisor keeps as much of a CPU.
const KEPT_SHARE_MAX: f64 = 0.01;

/// Whether others, or the hypervisor, explain that the client was called the limit.
fn is_disturbed(record: &Value) -> bool {
    let mut threads = record["threads"].as_array().unwrap().iter();
    let waited = threads.any(|it| it["run_delay_share"].as_f64().unwrap() > KEPT_SHARE_MAX);
    let ran_s = record["run"]["ran_s"].as_f64().unwrap();
    let stolen_s = record["machine"]["steal_s"].as_f64();
    waited || stolen_s.is_some_and(|stolen_s| stolen_s > ran_s * KEPT_SHARE_MAX)
}

/// That a client is not the limit in one of some runs: what is called a limit in every one is an
/// error of the verdict, unless the machine explains it most of the time, which is printed.
fn is_free_once(case: &str, mut run: impl FnMut(&Path) -> std::process::Output) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("record.json");
    let mut unexplained = Vec::new();
    for _ in 0..TRIES {
        let output = run(&path);
        if output.status.code() == Some(0) {
            return;
        }
        assert_eq!(output.status.code(), Some(5), "{}", both(&output));
        if !is_disturbed(&record(&path)) {
            unexplained.push(both(&output));
        }
    }
    assert!(
        unexplained.len() * 2 <= TRIES,
        "{case}: limited each time, for no reason: {}",
        unexplained.join("\n")
    );
    // Past the capture of the test's output.
    let message = format!("{case}: SKIPPED, the machine disturbed every run\n");
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}

/// A load without what the beginning does to times: all connections ask at once there.
fn steady(url: &str, connections: u32, path: &Path) -> std::process::Output {
    load(&format!(
        "{url} -c {connections} --warm-up 500ms -d 1s --quiet --json {}",
        path.display()
    ))
}

#[test]
fn a_client_that_could_do_more_is_not_limited() {
    let _alone = alone();
    check_a_server_of_fixed_capacity();
    check_half_the_ceiling();
}

/// All that was due while the server stood still is sent as soon as it goes on, so a request due in
/// the stall waits for half of it on average, and the client's verdict is about the client.
#[test]
fn a_stall_of_the_server_is_the_servers() {
    const SECONDS: f64 = 4.0;
    let _alone = alone();
    let (server, _site) = server(&[]);
    let url = format!("http://{}/", server.address());
    // Who is late on a busy machine adds to the mean, though not in each run.
    let mut seen = Vec::new();
    let is_as_expected = (0..STALLS).any(|_| {
        let mut stall = None;
        is_free_once("a client of a server that stands still", |path| {
            // What has waited is sent at once, and is done in a tenth of the stall.
            let rate = (ceiling_at(&url, path) / 10).clamp(1, 1000);
            let (output, bounds_s) =
                stalled(&server, path, &format!("{url} --rate {rate} -d {SECONDS}s"));
            stall = (output.status.code() == Some(0))
                .then(|| (bounds_s, mean_latency_s(&record(path))));
            output
        });
        let Some((bounds_s, mean_s)) = stall else {
            return true; // no run counts, which was said
        };
        seen.push((bounds_s, mean_s));
        let [least_s, most_s] = bounds_s.map(|stalled_s| stalled_s * stalled_s / 2.0 / SECONDS);
        (0.9 * least_s..1.4 * most_s).contains(&mean_s)
    });
    assert!(
        is_as_expected,
        "stalls at least and at most, and the mean latency: {seen:?}"
    );
}

/// A load during which the server stands still, and for how long at least and at most, in seconds.
fn stalled(server: &program::Server, path: &Path, load: &str) -> (std::process::Output, [f64; 2]) {
    let mut running = Running::start(&format!("{load} -c 64 --quiet --json {}", path.display()));
    std::thread::sleep(Duration::from_millis(1_500));
    let before = Instant::now();
    server.signal("STOP");
    let after = Instant::now();
    std::thread::sleep(Duration::from_millis(800));
    let least_s = after.elapsed().as_secs_f64();
    server.signal("CONT");
    let most_s = before.elapsed().as_secs_f64();
    let (status, out, err) = running.end();
    let output = std::process::Output {
        status,
        stdout: out.into(),
        stderr: err.into(),
    };
    (output, [least_s, most_s])
}

fn mean_latency_s(record: &Value) -> f64 {
    let latency = &record["groups"][0]["total"]["latency"];
    latency["mean_us"].as_f64().expect("a mean") / 1e6
}

fn check_a_server_of_fixed_capacity() {
    let stub = Stub::start(StubOptions {
        latency: Latency::Exponential { mean_ns: 20e6 },
        servers: Some(20),
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let url = format!("http://{}/", stub.address());
    is_free_once("a client that waits for its server", |path| {
        steady(&url, 40, path)
    });
}

/// Answers to the client within a second, from a stub that answers at once.
fn ceiling(path: &Path) -> u64 {
    let stub = Stub::start(StubOptions::default()).unwrap();
    ceiling_at(&format!("http://{}/", stub.address()), path)
}

fn ceiling_at(url: &str, path: &Path) -> u64 {
    let line = format!("{url} -c 40 -d 1s --quiet --allow-client-limited");
    let output = load(&format!("{line} --json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    number(&record(path)["groups"][0]["total"]["tally"]["completed"])
}

fn check_half_the_ceiling() {
    is_free_once("a client at half its ceiling", |path| {
        let per_s = ceiling(path) / 2;
        let servers = u32::try_from(per_s / 50).unwrap().max(1);
        let stub = Stub::start(StubOptions {
            latency: Latency::Exponential { mean_ns: 20e6 },
            servers: Some(servers),
            ..StubOptions::default()
        });
        let stub = stub.unwrap();
        steady(&format!("http://{}/", stub.address()), 2 * servers, path)
    });
}
