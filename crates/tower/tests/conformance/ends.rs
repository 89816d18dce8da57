//! Clients that leave, and time that passes.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use loadline_proto::Limits;

use crate::fixture::{Running, eventually};
use crate::model::Model;

every_model! {
    a_client_that_leaves_drops_the_future_of_an_app_that_is_notified,
    a_client_that_resets_drops_the_future,
    a_client_that_half_closes_gets_its_answer,
    an_app_that_takes_too_long,
    requests_that_wait_hold_no_worker,
}

pub fn a_client_that_leaves_drops_the_future_of_an_app_that_is_notified(model: Model) {
    let server = Running::start_notifying(model);
    for target in ["GET /hang", "GET /hang-late", "POST /hang"] {
        let mut client = server.connect();
        client.send(format!(
            "{target} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        ));
        server.await_hanging(1);
        server.await_in_progress(1);
        client.stream.shutdown(Shutdown::Both).unwrap();
        server.await_hanging(0);
        server.await_in_progress(0);
    }
    assert_eq!(server.connect().get("/hello", "").body, b"hello");
}

pub fn a_client_that_resets_drops_the_future(model: Model) {
    let server = Running::start(model);
    for target in ["GET /hang", "GET /hang-late", "POST /hang"] {
        for half_closed in [false, true] {
            let mut client = server.connect();
            client.send(format!(
                "{target} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
            ));
            server.await_hanging(1);
            if half_closed {
                client.half_close();
            }
            rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
            drop(client);
            server.await_hanging(0);
            server.await_in_progress(0);
        }
    }
}

pub fn a_client_that_half_closes_gets_its_answer(model: Model) {
    let server = Running::start(model);
    for (request, body) in [
        (
            "GET /drivers HTTP/1.1\r\nHost: h\r\n\r\n",
            "from a socket and a thread",
        ),
        (
            "POST /swallow HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "5",
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            "hello",
        ),
    ] {
        let mut client = server.connect();
        client.send(request).half_close();
        assert_eq!(client.answer().body, body.as_bytes(), "{request}");
        client.end();
    }
    // While the app is at work.
    let mut client = server.connect();
    client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    server.shared.events.send("before".to_owned()).unwrap();
    client.await_bytes(b"");
    client.half_close();
    for n in 0..10 {
        server.shared.events.send(n.to_string()).unwrap();
    }
    client.await_bytes(b"data: 9\n\n\r\n");
    // That it closes altogether is found out when it is sent something.
    drop(client);
    eventually("the app is not asked any more", || {
        server.shared.events.send("again".to_owned()).unwrap();
        server.shared.hanging.load(SeqCst) == 0
    });
}

pub fn an_app_that_takes_too_long(model: Model) {
    let limits = Limits {
        app_answer_timeout_ms: 100,
        ..Limits::default()
    };
    let server = Running::start_with(model.options(), limits);
    for _ in 0..3 {
        let mut client = server.connect();
        let answer = client.get("/hang", "");
        assert_eq!((answer.status, client.is_last(&answer)), (503, true));
        server.await_hanging(0);
    }
    let limits = Limits {
        app_silence_timeout_ms: 300,
        ..Limits::default()
    };
    let server = Running::start_with(model.options(), limits);
    for _ in 0..3 {
        let mut client = server.connect();
        client.send("GET /hang-late HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(
            client.rest().ends_with(b"\r\n\r\n5\r\nbegun\r\n"),
            "then the end"
        );
        server.await_hanging(0);
    }
    assert_eq!(server.connect().get("/hello", "").body, b"hello");
}

pub fn requests_that_wait_hold_no_worker(model: Model) {
    let options = model.options();
    if !options.architecture.has_loops() || options.workers == 0 {
        return;
    }
    let server = Running::start_notifying(model);
    let mut clients = VecDeque::new();
    while clients.len() < options.workers + 3 {
        let mut client = server.connect();
        client.send("GET /hang HTTP/1.1\r\nHost: h\r\n\r\n");
        clients.push_back(client);
        server.await_hanging(clients.len() as u64);
        server.await_in_progress(clients.len() as u64);
        server.await_waiting(0);
    }
    assert_eq!(server.connect().get("/hello", "").body, b"hello");
    while clients.pop_front().is_some() {
        server.await_hanging(clients.len() as u64);
        server.await_in_progress(clients.len() as u64);
    }
    assert_eq!(server.connect().get("/hello", "").body, b"hello");
}
