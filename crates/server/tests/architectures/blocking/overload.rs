//! More work than can be done within the latency goal.

use std::time::{Duration, Instant};

use loadline_server::{Architecture, ServerOptions};

use super::util::{ChildServer, Client, as_child, eventually, options, start};

const GOAL: Duration = Duration::from_millis(200);
const DESCRIPTORS: u64 = 100;

/// Not a test of its own: what the other process does.
#[test]
fn server_in_a_child() {
    as_child(DESCRIPTORS, |name| {
        let architecture = Architecture::parse(name).unwrap();
        start(ServerOptions {
            latency_goal: Some(GOAL),
            ..options(architecture)
        })
    });
}

#[test]
fn what_has_waited_for_its_thread_beyond_the_goal_is_refused() {
    let architecture = Architecture::ThreadPerConnection.name();
    let server = ChildServer::start(module_path!(), architecture);
    server.open_the_gate();
    let mut client = Client::connect(server.address);
    assert_eq!(client.get("/").status, 200);
    server.set_stopped(true); // as if all its threads waited for a CPU
    client.ask("/gate");
    let asked = Instant::now();
    eventually(|| asked.elapsed() > GOAL + GOAL / 2);
    server.set_stopped(false);
    let answer = client.answer().unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.says("retry-after: "), "{answer:?}");
    assert_eq!(client.get("/gate").status, 200);
    server.end();
}

/// What comes later over its connection has not waited: it used to be refused as well, while the thread of a
/// pool kept the connection.
#[test]
fn a_connection_whose_request_came_too_late_is_served_again() {
    let server = start(ServerOptions {
        latency_goal: Some(GOAL),
        threads: 2,
        ..options(Architecture::ThreadPool)
    });
    let mut held = [server.connect(), server.connect()];
    held.iter_mut().for_each(|client| client.ask("/gate"));
    server.handler.gate.await_waiting(2);
    let mut late = [server.connect(), server.connect(), server.connect()];
    late.iter_mut().for_each(|client| client.ask("/nap"));
    eventually(|| server.handle.snapshot().total.queue_depth == 3);
    let asked = Instant::now();
    eventually(|| asked.elapsed() > GOAL + GOAL / 2);
    server.handler.gate.open();
    for client in held.iter_mut().chain(&mut late) {
        client.answer().unwrap();
    }
    for client in &mut late {
        assert_eq!(client.get("/nap").status, 200);
    }
}

#[test]
fn what_has_waited_in_the_backlog_beyond_the_goal_is_refused() {
    let server = start(ServerOptions {
        latency_goal: Some(GOAL),
        ..options(Architecture::Sequential)
    });
    let mut first = server.connect();
    first.ask("/gate");
    server.handler.gate.await_waiting(1);
    let mut late = server.connect();
    late.ask("/gate");
    let asked = Instant::now();
    eventually(|| asked.elapsed() > GOAL + GOAL / 2);
    server.handler.gate.open();
    assert_eq!(first.answer().unwrap().status, 200);
    drop(first);
    assert_eq!(late.answer().unwrap().status, 503);
    assert_eq!(late.get("/gate").status, 200);
    assert_eq!(server.handle.snapshot().total.refused_late, 1);
}
