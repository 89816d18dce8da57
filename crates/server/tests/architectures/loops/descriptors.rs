//! The descriptor limit: a server neither spins nor dies there.
//!
//! The limit is the process's, so the server runs in a child.

use std::time::{Duration, Instant};

use loadline_proto::Limits;
use loadline_server::{Accept, Architecture, ServerOptions};

use super::util::*;

on_loops! {
    at_the_limit_the_oldest_idle_connection_goes,
    at_the_limit_with_none_idle_one_is_refused_and_nothing_spins,
}

/// Descriptors of the child: some 25 are its own.
const DESCRIPTORS: u64 = 60;
/// More clients than that.
const CLIENTS: usize = 80;
/// Threads of a pool, with a descriptor each: more than what is left for connections.
const THREADS: usize = 25;

/// Not a test of its own: what the other process does.
#[test]
fn server_in_a_child() {
    as_child(DESCRIPTORS, |what| {
        let (name, accept) = what.split_once(' ').unwrap();
        let architecture = Architecture::parse(name).unwrap();
        let options = ServerOptions {
            accept: Accept::parse(accept).unwrap(),
            threads: THREADS,
            ..options(architecture, 2, CLIENTS)
        };
        let limits = Limits {
            idle_timeout_ms: 600_000, // longer than any test
            ..Limits::default()
        };
        start_with(options, TestHandler::default(), limits)
    });
}

fn child(architecture: Architecture, accept: Accept) -> ChildServer {
    let what = format!("{} {}", architecture.name(), accept.name());
    ChildServer::start(module_path!(), &what)
}

fn at_the_limit_the_oldest_idle_connection_goes(architecture: Architecture) {
    for accept in Accept::ALL {
        let mut server = child(architecture, *accept);
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = Client::connect(server.address);
            assert_eq!(client.get("/").status, 200, "{accept:?}");
            clients.push(client);
        }
        assert!(server.deferred() >= 1);
        assert!(clients[0].is_closed());
        assert_eq!(clients[CLIENTS - 1].get("/").status, 200);
        drop(clients);
        server.end();
    }
}

fn at_the_limit_with_none_idle_one_is_refused_and_nothing_spins(architecture: Architecture) {
    for accept in Accept::ALL {
        let began = Instant::now();
        let mut server = child(architecture, *accept);
        let mut clients: Vec<Client> = Vec::new();
        for count in 1..=CLIENTS as u64 {
            let mut client = Client::connect(server.address);
            client.ask("/gate");
            clients.push(client);
            // Not idle before the next one comes, which would be given its place.
            eventually(|| {
                let [_, deferred, waiting] = server.counts();
                deferred > 0 || waiting == count
            });
        }
        eventually(|| server.deferred() >= 2);
        let ticks = server.cpu_ticks();
        std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
        assert!(server.cpu_ticks() - ticks <= 15, "it spins");
        server.open_the_gate();
        let mut statuses: Vec<u16> = Vec::new();
        for client in &mut clients {
            statuses.extend(client.answer().map(|answer| answer.status)); // or a reset
        }
        let passed = statuses.iter().filter(|status| **status == 200).count();
        let refused = statuses.iter().filter(|status| **status == 503).count();
        assert!(
            passed >= 15 && refused >= 1,
            "{accept:?}: {passed} passed, {refused} refused"
        );
        drop(clients);
        let log = server.end();
        let lines = log.matches("out of descriptors").count();
        assert!(
            (1..=2 * log_lines_max(began)).contains(&lines),
            "two threads accept: {log}"
        );
    }
}

/// The threads kept all connections, and their loop knew of no idle one that could go.
#[test]
fn at_the_limit_threads_that_share_give_up_idle_connections() {
    let server = child(Architecture::ThreadPool, Accept::Shared);
    let mut clients: Vec<Client> = Vec::new();
    let mut is_served = || {
        let mut client = Client::connect(server.address);
        client.ask("/");
        let answer = client.answer();
        clients.push(client);
        answer.is_ok_and(|answer| answer.status == 200)
    };
    let mut served = 0;
    while served < CLIENTS && is_served() {
        served += 1;
    }
    eventually(is_served); // the first one may have been refused
    drop(clients);
    server.end();
}
