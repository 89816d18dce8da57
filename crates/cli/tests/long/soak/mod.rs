//! Half a minute of everything at once, under each architecture, while the files are replaced: no
//! answer is wrong, and in the end the server holds what it held after the first seconds.
//!
//! Each test takes 35 s.

mod site;
mod visits;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use self::site::{LARGE, Random, SMALL_COUNT, Site, small};
use self::visits::KINDS;
use crate::client::Connection;
use crate::program::{Server, exchange, until};
use crate::{alone, options};

/// So long, until everything has been used that is kept: buffers, threads, connections to the database.
const FIRST: Duration = Duration::from_secs(8);
const THEN: Duration = Duration::from_secs(20);
/// From one file to the next that is replaced; the large one comes after so many small ones.
const REPLACE_EVERY: Duration = Duration::from_millis(20);
const LARGE_EVERY: u64 = 20;
/// Memory of its own that a server may hold more than after the first seconds, which are less than a
/// third of the rest: what is kept has its size by then, and what allocators set aside varies by some
/// MiB. Some tens of thousands of requests come in between, so 200 bytes that one of them leaves would
/// be more than this.
const GROWTH_KIB_MAX: u64 = 8 << 10;

/// Descriptors that a server may hold more: contexts of threads are kept for later connections, with their
/// wakers and cached files, as many as there were connections at the same moment. On a busy machine more
/// of them meet. Of the connections between, tens of thousands, one in a thousand that leaves a descriptor
/// would be more than this.
const SPARE_DESCRIPTORS: usize = 32;

#[test]
#[ignore = "long: 35 s"]
fn soak_sequential() {
    soak("sequential");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_thread_per_connection() {
    soak("thread-per-connection");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_thread_pool() {
    soak("thread-pool");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_reactor() {
    soak("reactor");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_reactor_with_workers() {
    soak("reactor with workers");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_reactor_whose_workers_do_socket_io() {
    soak("reactor whose workers do socket I/O");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_proactor() {
    soak("proactor");
}

#[test]
#[ignore = "long: 35 s"]
fn soak_proactor_with_workers() {
    soak("proactor with workers");
}

fn soak(architecture: &str) {
    let _alone = alone();
    let Some(mut more) = options(architecture) else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}/accounts.db", state.path().display());
    let log = state.path().join("access.log");
    more.extend(["--status-path", "/-/status", "--accounts", &database]);
    // With the machine's other work, a request may wait for longer than the goal of 1 s.
    more.extend(["--latency-goal", "60s"]);
    // All connections to the database are there after the first seconds.
    more.extend([
        "--accounts-pool",
        "2",
        "--access-log",
        log.to_str().unwrap(),
    ]);
    let folder = site::make();
    let mut server = Server::start(folder.path(), &more);
    let site = Site::new(folder, server.address(), architecture == "sequential");

    let first = run(&site, FIRST, 0);
    let before = rest(&server);
    let then = run(&site, THEN, 1_000_000);
    let after = rest(&server);
    assert!(
        after.anonymous_kib <= before.anonymous_kib + GROWTH_KIB_MAX,
        "{before:?}, then {after:?}; visits {first:?}, then {then:?}"
    );
    // What rests goes in its own time: threads of the blocking kind after 10 s.
    let most = before.descriptors.values().sum::<usize>() + SPARE_DESCRIPTORS;
    until(
        &format!("as few descriptors as {before:?} (after {after:?})"),
        || {
            let now = descriptors(&server).values().sum::<usize>();
            (now <= most).then_some(())
        },
    );
    until("as few threads as before", || {
        (threads(&server) <= before.threads).then_some(())
    });
    drain(&mut server, &site);
    // Each visit has asked at least once, but for those that break off.
    let visits = first.iter().chain(&then);
    let visits = visits.filter(|(name, _)| *name != "broken off");
    let least = visits.map(|(_, count)| count).sum::<u64>();
    let lines = fs::read_to_string(&log).unwrap().lines().count();
    assert!(
        u64::try_from(lines).unwrap() > least,
        "{lines} lines, {least} visits"
    );
}

/// Has all clients come for so long; returns how many visits of each kind there were.
fn run(site: &Site, time: Duration, seed: u64) -> Vec<(&'static str, u64)> {
    let until = Instant::now() + time;
    let counts: Vec<AtomicU64> = KINDS.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let mut seeds = seed..;
        for ((_, clients, visit), count) in KINDS.iter().zip(&counts) {
            for seed in seeds.by_ref().take(*clients) {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    while Instant::now() < until {
                        visit(site, &mut random);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        scope.spawn(|| replace(site, until, seed));
    });
    let names = KINDS.iter().map(|(name, ..)| *name);
    let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
    let visits: Vec<_> = names.zip(counts).collect();
    assert!(visits.iter().all(|(_, count)| *count > 0), "{visits:?}");
    visits
}

/// Replaces one file after the other.
fn replace(site: &Site, until: Instant, first: u64) {
    let mut version = first;
    while Instant::now() < until {
        version += 1;
        site.replace(&small(version % SMALL_COUNT), version);
        if version.is_multiple_of(LARGE_EVERY) {
            site.replace(LARGE, version);
        }
        thread::sleep(REPLACE_EVERY);
    }
}

/// What a server holds when nobody is there.
#[derive(Debug)]
struct Rest {
    /// How many there are of what.
    descriptors: BTreeMap<String, usize>,
    threads: usize,
    /// Memory that is its own, and no file's.
    anonymous_kib: u64,
}

/// Waits until nobody is there but who asks, and measures.
fn rest(server: &Server) -> Rest {
    until("the end of all connections and requests", || {
        let (_, content) = exchange(server.connect(), "/-/status");
        let status: Value = serde_json::from_str(&content).unwrap();
        let total = &status["total"];
        let dropped = &status["access_log"]["lines_dropped"];
        assert_eq!(dropped, 0, "lines of the access log");
        let left = ["app_requests_in_progress", "queue_depth"].map(|name| total[name].as_u64());
        (total["connections"] == 1 && left == [Some(0); 2]).then_some(())
    });
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.id())).unwrap();
    let line = rollup.lines().find_map(|it| it.strip_prefix("Pss_Anon:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    Rest {
        descriptors: descriptors(server),
        threads: threads(server),
        anonymous_kib: kib.parse().unwrap(),
    }
}

/// What a server has open: files by their names, everything else by its kind.
fn descriptors(server: &Server) -> BTreeMap<String, usize> {
    let entries = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mut found = BTreeMap::new();
    for link in links {
        let name = link.file_name().unwrap_or_default().to_string_lossy();
        let kind = name.split(":[").next().unwrap_or_default();
        *found.entry(kind.to_owned()).or_default() += 1;
    }
    found
}

fn threads(server: &Server) -> usize {
    let entries = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    entries.count()
}

/// Ends the server while connections rest that have been answered.
fn drain(server: &mut Server, site: &Site) {
    let clients = match site.is_sequential {
        true => 1,
        false => 8,
    };
    let mut resting = Vec::new();
    for _ in 0..clients {
        let mut connection = Connection::new(site.server);
        assert_eq!(connection.get("/small-3.html").status, 200);
        resting.push(connection);
    }
    server.signal("TERM");
    for connection in &mut resting {
        connection.ends();
    }
    let status = server.wait();
    let lines = server.rest();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let is_bad = |line: &&String| line.contains("panicked") || line.contains(" WARN");
    let bad: Vec<_> = lines.iter().filter(is_bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
