//! Memory that runs short while one client holds most of it, at no loop as much as others.

use std::io::Write;

use loadline_base::{MemoryBudget, MemoryPressure};
use loadline_proto::{CloseReason, Limits, Pace};
use loadline_server::{Accept, Architecture, Role, ServerOptions};

use crate::shared::*;

const LOOPS: u8 = 4;
const BUDGET_BYTES: u64 = 64 << 20;

/// At each loop.
const HOLDERS_CONNECTIONS: usize = 18;
const OTHERS_CONNECTIONS: usize = 20;

const HOLDER: [u8; 4] = [127, 0, 0, 2];
const STRANGER: [u8; 4] = [127, 0, 0, 3];

/// Another client for each loop.
fn other(of_loop: u8) -> [u8; 4] {
    [127, 0, 1, of_loop + 1]
}

/// A pool's threads wait for slow clients, and the sequential server's do for each.
const ARCHITECTURES: [Architecture; 3] = [
    Architecture::Reactor,
    Architecture::Proactor,
    Architecture::ThreadPerConnection,
];

/// How a client comes: the address that its connection comes from, what it begins with, and what is left.
struct Way {
    source: fn([u8; 4]) -> [u8; 4],
    begin: fn([u8; 4]) -> String,
    rest: &'static [u8],
}

fn padding() -> String {
    "x".repeat(100 << 10)
}

/// With half a head.
const DIRECTLY: Way = Way {
    source: |client| client,
    begin: |_| format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", padding()),
    rest: b"\r\n\r\n",
};

/// With a head, and a part of its content: who it is stands in the head.
const BY_PROXY: Way = Way {
    source: |_| PROXY,
    begin: |client| {
        let (from, padding) = (forwarded_for(client), padding());
        format!(
            "POST /upload HTTP/1.1\r\nHost: h\r\n{from}X: {padding}\r\nContent-Length: 10\r\n\r\nx"
        )
    },
    rest: b"123456789",
};

#[test]
fn who_holds_most_of_all_gives_up_first() {
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        gives_up_first(architecture, &DIRECTLY);
    }
}

#[test]
fn which_client_of_a_proxy_holds_most_of_all_gives_up_first() {
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        gives_up_first(architecture, &BY_PROXY);
    }
}

/// They looked like those beyond `--connections-max`.
#[test]
fn new_connections_without_memory_for_them_have_a_reason_of_their_own() {
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        let options = ServerOptions {
            architecture,
            loops: 2,
            workers: 0,
            accept: Accept::Handoff,
            defer_accept: false,
            ..ServerOptions::default()
        };
        let budget = MemoryBudget::new(Some(BUDGET_BYTES));
        let server = Server::start_behind_proxy(options, Limits::default(), Some(&budget));
        budget.reserve(BUDGET_BYTES);
        assert_eq!(budget.pressure(), MemoryPressure::Full);
        let mut client = server.connect_from(STRANGER);
        // Where even its 503 would take too much, there is none.
        if let Ok(answer) = client.answer() {
            assert_eq!(answer.status, 503);
        }
        drop(client);
        let total = || server.handle.snapshot().total;
        eventually(|| total().closed_for(CloseReason::RefusedMemory) == 1);
        assert_eq!(total().closed_for(CloseReason::Refused), 0);
    }
}

/// They were asked once, when memory had been short for a moment.
#[test]
fn others_are_served_while_one_client_takes_all_memory_again_and_again() {
    for architecture in ARCHITECTURES.into_iter().filter(|it| is_offered(*it)) {
        serves_others(architecture);
    }
}

/// Nobody is too slow, however long the machine takes for so many.
fn limits() -> Limits {
    let patient = Pace {
        grace_ms: 600_000,
        bytes_per_second_min: 1,
        total_max_ms: u64::MAX,
    };
    Limits {
        head_bytes_max: 256 << 10,
        head_pace: patient,
        body_pace: patient,
        ..Limits::default()
    }
}

/// Connections come to one loop after the other.
fn options(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        architecture,
        loops: LOOPS.into(),
        workers: 0,
        accept: Accept::Handoff,
        latency_goal: None,
        defer_accept: false,
        ..ServerOptions::default()
    }
}

/// A request that has begun is answered each time that connections are closed for memory, and one over a new
/// connection soon.
fn serves_others(architecture: Architecture) {
    let budget = MemoryBudget::new(Some(BUDGET_BYTES));
    let server = Server::start_behind_proxy(options(architecture), limits(), Some(&budget));
    let total = || server.handle.snapshot().total;
    let closed = || {
        let reasons = [CloseReason::Memory, CloseReason::RefusedMemory];
        let total = total();
        reasons.map(|it| total.closed_for(it)).iter().sum::<u64>()
    };
    // Some 70 connections of the holder take the rest.
    budget.reserve(BUDGET_BYTES / 32 * 26 - budget.used_bytes());
    let half = (DIRECTLY.begin)(HOLDER);
    let mut holders = Vec::new();
    let mut hold = || {
        assert!(holders.len() < 1_000, "none is closed for memory");
        let (received, lost) = (total().bytes_in + half.len() as u64, closed());
        let mut holder = server.connect_from(HOLDER);
        let _ = holder.stream.write_all(half.as_bytes()); // or it is closed
        holders.push(holder);
        eventually(|| total().bytes_in >= received || closed() > lost);
    };
    let [slow, _] = SLOW_AND_IDLE;
    let [begin, rest] = slow.map(str::as_bytes);
    let mut quiet = server.connect_from(other(0));
    quiet.stream.write_all(begin).unwrap();
    for round in 0..5 {
        // Fewer than were closed in the round before, of which some may still be about to be.
        (0..10).for_each(|_| hold());
        let before = closed();
        while closed() == before {
            hold();
        }
        let which = format!("{}, round {round}", architecture.name());
        quiet.stream.write_all(rest).unwrap();
        assert_eq!(quiet.answer().unwrap().status, 200, "{which}");
        quiet.stream.write_all(begin).unwrap(); // once it is idle for a second it may be closed
        eventually(|| {
            let mut new = server.connect_from(STRANGER);
            let _ = new.stream.write_all(slow.concat().as_bytes()); // it may be refused
            new.answer().is_ok_and(|answer| answer.status == 200)
        });
    }
}

/// Memory runs short by a sixteenth: nobody but the holder has to give up anything for that.
fn gives_up_first(architecture: Architecture, way: &Way) {
    let budget = MemoryBudget::new(Some(BUDGET_BYTES));
    let server = Server::start_behind_proxy(options(architecture), limits(), Some(&budget));
    let total = || server.handle.snapshot().total;
    let mut sent = 0;
    let mut hold = |client| {
        let half = (way.begin)(client);
        let mut connection = server.connect_from((way.source)(client));
        connection.stream.write_all(half.as_bytes()).unwrap();
        sent += half.len() as u64;
        eventually(|| total().bytes_in == sent);
        connection
    };
    let mut others = Vec::new();
    for _ in 0..OTHERS_CONNECTIONS {
        others.extend((0..LOOPS).map(|index| hold(other(index))));
    }
    let holders: Vec<_> = (0..HOLDERS_CONNECTIONS * usize::from(LOOPS))
        .map(|_| hold(HOLDER))
        .collect();
    if architecture.has_loops() {
        let each = (OTHERS_CONNECTIONS + HOLDERS_CONNECTIONS) as u64;
        let threads = server.handle.snapshot().per_thread;
        let loops = threads.iter().filter(|thread| thread.role == Role::Loop);
        let connections: Vec<_> = loops.map(|thread| thread.counts.connections).collect();
        assert_eq!(connections, [each; LOOPS as usize]);
    }
    assert_eq!(budget.pressure(), MemoryPressure::None);

    let slow_bytes = BUDGET_BYTES / 32 * 30 + 1;
    budget.reserve(slow_bytes - budget.used_bytes());
    assert_eq!(budget.pressure(), MemoryPressure::Slow);
    assert_eq!(server.connect_from(STRANGER).get("/").status, 200);
    eventually(|| budget.pressure() < MemoryPressure::Slow);
    for client in &mut others {
        client.stream.write_all(way.rest).unwrap();
        let answer = client.answer().unwrap_or_else(|error| {
            let closed = total().closed_for(CloseReason::Memory);
            panic!("{}: {error:?}; {closed} closed", architecture.name())
        });
        assert_eq!(answer.status, 200, "{}", architecture.name());
    }
    assert!(total().closed_for(CloseReason::Memory) > 0);
    drop(holders);
}
