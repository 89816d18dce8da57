//! Files that have to be read, beside an app of which more is asked than its server can do.
//!
//! Nobody is greedy here: each client has an address and a connection of its own, so shares by client keep nobody
//! from anything, and what helps are queues of their own for files and apps.
//!
//! `cargo test --profile fast -p loadline-server --test architectures files_beside -- --ignored --nocapture`

#![allow(
    clippy::print_stdout,
    reason = "a measurement by hand shows its figures"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use loadline_server::Architecture;

use crate::fairness::{ARCHITECTURES, GOODPUT_MIN, Seen, To, ask, options, run, start};
use crate::shared::is_offered;

const FILE_CLIENTS: u8 = 20;
const APP_CLIENTS: u8 = 64;
const FIRST_APP_CLIENT: u8 = 100;
/// A blocking step that takes no time of its own.
const FILE: &str = "/blocking";
/// They hold their threads for 10 ms and for 500 ms.
const APPS: [&str; 2] = ["/app-work", "/app-long-work"];
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks for the app again and again, until it is to stop.
fn keep_busy(path: &str, source: u8, to: To, stop: &AtomicBool) {
    let mut kept = None;
    while !stop.load(Ordering::Relaxed) {
        match ask(kept.take(), path, source, to) {
            Ok((stream, true)) => kept = Some(stream),
            _ => thread::sleep(PAUSE),
        }
    }
}

/// What those see who ask for files, without the app's clients and beside them.
fn measure(architecture: Architecture, app: &'static str) -> [Seen; 2] {
    let (interval, lasts) = (Duration::from_millis(100), Duration::from_secs(6));
    let server = start(options(architecture));
    let to = To::directly(&server);
    let alone = run(FILE, to, FILE_CLIENTS, interval, lasts);
    let stop = Arc::new(AtomicBool::new(false));
    let client = |source| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || keep_busy(app, source, to, &stop))
    };
    let sources = FIRST_APP_CLIENT..FIRST_APP_CLIENT + APP_CLIENTS;
    let clients: Vec<_> = sources.map(client).collect();
    thread::sleep(Duration::from_secs(3)); // so that the server knows how long the app takes
    let beside = run(FILE, to, FILE_CLIENTS, interval, lasts);
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    [alone, beside]
}

#[test]
#[ignore = "by hand: takes two minutes on a machine that is quiet"]
fn files_beside_a_slow_app_are_read_in_time_by_hand() {
    let mut table = "| architecture | app | good files | late | refused | failed | p99 |\n\
                     |---|---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let mut missed = Vec::new();
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        for app in APPS {
            let [alone, beside] = measure(architecture, app);
            let share = beside.good as f64 / alone.good as f64;
            let latencies_ms = &beside.latencies_ms;
            let p99_ms = latencies_ms.get(latencies_ms.len() * 99 / 100);
            let p99_ms = p99_ms.map(|ms| format!("{ms:.0} ms"));
            table += &format!(
                "| {} | `{app}` | {share:.3} | {} | {} | {} | {} |\n",
                architecture.name(),
                beside.late,
                beside.refused,
                beside.failed,
                p99_ms.unwrap_or_default(),
            );
            if share < GOODPUT_MIN {
                missed.push((architecture, app, share));
            }
        }
    }
    println!("\n{table}");
    assert!(missed.is_empty(), "{missed:?}");
}
