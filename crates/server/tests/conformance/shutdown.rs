//! Going down: what was accepted is answered, what is idle goes, the port is free at once.

use std::time::{Duration, Instant};

use loadline_server::{ListenAddr, ServerOptions};

use crate::fixture::{Model, Server, eventually, limits};

const ECHO: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";
const GATE: &str = "GET /-/gate HTTP/1.1\r\nHost: h\r\n\r\n";

every_model! {
    a_drain_closes_idle_connections_at_once,
    a_drain_finishes_what_was_accepted,
    a_drain_waits_for_a_request_that_has_begun,
    a_drain_answers_what_has_arrived_unread,
    the_grace_ends,
    the_second_stage_ends_at_once,
    a_server_restarts_on_its_port_at_once,
    before_a_drain_after_a_delay_all_is_as_ever,
    a_drain_begins_when_its_delay_is_over,
}

pub fn a_drain_closes_idle_connections_at_once(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send(ECHO).answer();
    let started = Instant::now();
    server.control.drain();
    client.end();
    drop(client); // over HTTP/2 the server waits for that
    assert_eq!(server.end(), 0);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

pub fn a_drain_finishes_what_was_accepted(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    // Pipelined requests behind it have arrived too. (A stream overtakes it, where a worker has that.)
    client.send(format!("{GATE}{ECHO}"));
    server.site.gate.await_waiting(1);
    server.control.drain();
    server.site.gate.open();
    assert_eq!(client.answer().body, b"GET /-/gate");
    let last = client.answer();
    assert_eq!(last.status, 200);
    assert!(client.is_last(&last));
    client.end();
    drop(client);
    assert_eq!(server.end(), 0);
}

pub fn a_drain_waits_for_a_request_that_has_begun(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send(ECHO).answer();
    let post = "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    client.send(post);
    eventually("the head has been read", || {
        server.control.snapshot().total.bytes_in == client.bytes_out
    });
    server.control.drain();
    let answer = client.send("hello").answer();
    assert_eq!(answer.body, b"POST /-/echo hello");
    assert!(client.is_last(&answer));
    client.end();
    drop(client);
    assert_eq!(server.end(), 0);
}

pub fn a_drain_answers_what_has_arrived_unread(model: Model) {
    for _ in 0..10 {
        let server = Server::start(model);
        let mut client = server.connect();
        client.send(ECHO).answer();
        client.send(ECHO);
        server.control.drain();
        assert_eq!(
            client.answer().status,
            200,
            "it had arrived before the drain"
        );
        client.end();
        drop(client);
        assert_eq!(server.end(), 0);
    }
}

pub fn the_grace_ends(model: Model) {
    let options = ServerOptions {
        grace: Duration::from_millis(200),
        ..model.options()
    };
    let server = Server::start_with(options, limits());
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    eventually("it has been read", || {
        server.control.snapshot().total.bytes_in == client.bytes_out
    });
    let started = Instant::now();
    assert_eq!(server.end(), 1, "cut, and counted");
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(190), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    assert!(client.rest().is_empty());
}

pub fn the_second_stage_ends_at_once(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    eventually("it has been read", || {
        server.control.snapshot().total.bytes_in == client.bytes_out
    });
    let started = Instant::now();
    server.control.drain();
    server.control.stop_now();
    assert_eq!(server.end(), 1);
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(client.rest().is_empty());
}

fn a_server_restarts_on_its_port_at_once(model: Model) {
    let mut server = Server::start(model);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send(ECHO).answer();
        let address = server.address;
        // The server closes first, so that its side of the connection stays in TIME_WAIT.
        assert_eq!(server.end(), 0);
        client.end();
        let root = tempfile::tempdir().unwrap();
        server = Server::start_at(root, model.options(), limits(), ListenAddr::Tcp(address));
    }
    assert_eq!(server.connect().send(ECHO).answer().status, 200);
}

pub fn before_a_drain_after_a_delay_all_is_as_ever(model: Model) {
    let server = Server::start(model);
    assert!(server.control.is_ready());
    let mut client = server.connect();
    client.send(ECHO).answer();
    server.control.drain_after(Duration::from_secs(3600));
    assert!(!server.control.is_ready() && !server.control.is_draining());
    for _ in 0..3 {
        assert!(!client.send(ECHO).answer().closes());
    }
    client.send(ECHO).answer();
    if model.is_concurrent() {
        let mut late = server.connect();
        assert!(!late.send(ECHO).answer().closes());
    }
    // A drain does not wait for the rest of the delay.
    server.control.drain();
    assert!(server.control.is_draining());
    client.end();
    assert_eq!(server.end(), 0);
}

pub fn a_drain_begins_when_its_delay_is_over(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send(ECHO).answer();
    let delay = Duration::from_millis(50);
    let began = Instant::now();
    server.control.drain_after(delay);
    client.end();
    drop(client);
    let elapsed = began.elapsed();
    assert!(elapsed >= delay, "after {elapsed:?}");
    assert!(server.control.is_draining());
    assert_eq!(server.end(), 0);
}
