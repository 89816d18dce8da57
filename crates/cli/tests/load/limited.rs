//! The verdict: a client that was the limit is called so, one that was not is not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadline_stub::{Latency, Stub, StubOptions};

use crate::util::{Running, both, load, number, record, server, signal};

/// Lets a process run for a fifth of the time, until told to stop.
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

#[test]
fn a_client_that_waits_for_a_server_of_fixed_capacity_is_not_limited() {
    let stub = Stub::start(StubOptions {
        latency: Latency::Constant { ns: 20_000_000 },
        servers: Some(20),
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let line = format!("http://{}/ -c 40 -d 1s --style weighttp", stub.address());
    let mut verdicts = Vec::new();
    for _ in 0..TRIES {
        let output = load(&line);
        if output.status.code() == Some(0) {
            return;
        }
        assert_eq!(output.status.code(), Some(5), "{}", both(&output));
        verdicts.push(both(&output));
    }
    panic!("limited each time: {}", verdicts.join("\n"));
}

/// Answers to the client within a second, from a stub that answers at once.
fn ceiling(folder: &Path) -> u64 {
    let stub = Stub::start(StubOptions::default()).unwrap();
    let path = folder.join("ceiling.json");
    let url = format!("http://{}/", stub.address());
    let line = format!("{url} -c 40 -d 1s --quiet --allow-client-limited");
    let output = load(&format!("{line} --json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    number(&record(&path)["groups"][0]["total"]["tally"]["completed"])
}

#[test]
fn a_client_at_half_its_ceiling_is_not_limited() {
    let folder = tempfile::tempdir().unwrap();
    let mut verdicts = Vec::new();
    for _ in 0..TRIES {
        let per_s = ceiling(folder.path()) / 2;
        let servers = u32::try_from(per_s / 50).unwrap().max(1);
        let stub = Stub::start(StubOptions {
            latency: Latency::Constant { ns: 20_000_000 },
            servers: Some(servers),
            ..StubOptions::default()
        });
        let stub = stub.unwrap();
        let url = format!("http://{}/", stub.address());
        let output = load(&format!("{url} -c {} -d 1s --style weighttp", 2 * servers));
        if output.status.code() == Some(0) {
            return;
        }
        assert_eq!(output.status.code(), Some(5), "{}", both(&output));
        verdicts.push(format!("{per_s}/s: {}", both(&output)));
    }
    panic!("limited each time: {}", verdicts.join("\n"));
}
