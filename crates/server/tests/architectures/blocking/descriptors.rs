//! The descriptor limit: a server neither spins nor dies there.
//!
//! The limit is the process's, so the server runs in a child.

use std::time::{Duration, Instant};

use loadline_server::{Architecture, ServerOptions};

use super::util::{
    ChildServer, Client, as_child, backlog_len, eventually, log_lines_max, options, start,
};

/// Descriptors of the child: some 12 are its own.
const DESCRIPTORS: u64 = 40;
/// More clients than that.
const CLIENTS: usize = 60;

/// Not a test of its own: what the other process does.
#[test]
fn server_in_a_child() {
    as_child(DESCRIPTORS, |name| {
        let architecture = Architecture::parse(name).unwrap();
        let options = options(architecture);
        // With a goal a pool has a loop, for which loops/descriptors.rs stands.
        let has_goal = architecture != Architecture::ThreadPool;
        start(ServerOptions {
            threads: 100,
            latency_goal: options.latency_goal.filter(|_| has_goal),
            ..options
        })
    });
}

fn child(architecture: Architecture) -> ChildServer {
    ChildServer::start(module_path!(), architecture.name())
}

#[test]
fn a_pool_at_the_limit_waits_without_spinning_and_then_serves_everybody() {
    let began = Instant::now();
    let mut server = child(Architecture::ThreadPool);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.ask("/");
            client
        })
        .collect();
    eventually(|| server.deferred() >= 2);
    // Who was accepted may not have a thread yet, and is not open before.
    eventually(|| server.counts()[0] + backlog_len(server.address) == CLIENTS as u64);
    let at_limit = Instant::now();
    let (ticks, [open, deferred, _]) = (server.cpu_ticks(), server.counts());
    std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
    assert!(server.cpu_ticks() - ticks <= 10, "it spins");
    assert_eq!(server.counts()[0], open);
    eventually(|| server.deferred() > deferred);
    let retries = server.deferred() - deferred;
    // After 10 ms, then doubling to half a second.
    let retries_max = 7 + at_limit.elapsed().as_millis() as u64 / 500;
    assert!(retries <= retries_max, "{retries}");
    for client in clients.drain(..) {
        let mut client = client;
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let log = server.end();
    let lines = log.matches("out of descriptors").count();
    assert!((1..=log_lines_max(began)).contains(&lines), "{log}");
}

#[test]
fn threads_at_the_limit_let_the_oldest_idle_connection_go() {
    let mut server = child(Architecture::ThreadPerConnection);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(server.address);
        assert_eq!(client.get("/").status, 200);
        clients.push(client);
    }
    assert!(server.deferred() >= 1);
    assert!(clients[0].is_closed());
    assert_eq!(clients[CLIENTS - 1].get("/").status, 200);
    drop(clients);
    server.end();
}

#[test]
fn threads_at_the_limit_with_nobody_idle_refuse_and_do_not_spin() {
    let began = Instant::now();
    let mut server = child(Architecture::ThreadPerConnection);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.ask("/gate");
            client
        })
        .collect();
    eventually(|| server.deferred() >= 2);
    let ticks = server.cpu_ticks();
    std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
    assert!(server.cpu_ticks() - ticks <= 10, "it spins");
    server.open_the_gate();
    let mut statuses: Vec<u16> = Vec::new();
    for mut client in clients.drain(..) {
        statuses.extend(client.answer().map(|answer| answer.status)); // or a reset
    }
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!(
        passed >= 15 && refused >= 1,
        "{passed} passed, {refused} refused"
    );
    let log = server.end();
    let lines = log.matches("out of descriptors").count();
    assert!((1..=log_lines_max(began)).contains(&lines), "{log}");
}
