//! Connections: slow, half-closed, vanished, idle, many.

use std::io::Read as _;
use std::time::{Duration, Instant};

use loadline_proto::CloseReason;

use crate::fixture::{Model, PATIENCE_MS, Server, eventually, impatient, pattern};

const GET: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

every_model! {
    a_slow_reader_gets_every_byte,
    a_half_close_still_gets_its_answers,
    clients_that_vanish_leave_nothing_behind,
    an_idle_connection_is_closed_without_an_answer,
    a_slow_head_gets_408,
    a_slow_body_gets_408,
    a_client_that_does_not_read_is_closed,
    many_clients_at_once,
    the_counters_agree,
}

pub fn a_slow_reader_gets_every_byte(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    let answer = client.receive_slowly().get("/big.bin", "");
    assert!(answer.body == pattern(3_000_001));
    assert_eq!(client.send(GET).answer().status, 200, "and stays");
}

pub fn a_half_close_still_gets_its_answers(model: Model) {
    let server = Server::start(model);
    let mut client = server.connect();
    client.send(GET).half_close();
    assert_eq!(client.answer().status, 200);
    client.end();
    let mut client = server.connect();
    client
        .send("GET /big.bin HTTP/1.1\r\nHost: h\r\n\r\n")
        .half_close();
    assert!(client.answer().body == pattern(3_000_001));
    client.end();
    let mut client = server.connect();
    client
        .send(GET.replace("echo", "echo-blocking").repeat(3))
        .half_close();
    for _ in 0..3 {
        assert_eq!(client.answer().status, 200);
    }
    client.end();
    // Nothing asked, or half of it.
    let mut client = server.connect();
    client.half_close().end();
    let mut client = server.connect();
    client.send(&GET[..20]).half_close();
    let rest = client.rest();
    assert!(
        rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"),
        "{rest:?}"
    );
}

pub fn clients_that_vanish_leave_nothing_behind(model: Model) {
    let server = Server::start(model);
    let post = "POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345";
    let big = "GET /big.bin HTTP/1.1\r\nHost: h\r\n\r\n";
    for bytes in [
        "",
        &GET[..20],
        post,
        GET,
        big,
        &GET.replace("echo", "echo-blocking"),
    ] {
        for _ in 0..5 {
            let mut client = server.connect();
            client.send(bytes);
            drop(client);
        }
    }
    server.await_no_connections();
    assert_eq!(server.connect().send(GET).answer().status, 200);
}

pub fn an_idle_connection_is_closed_without_an_answer(model: Model) {
    let server = Server::start_with(model.options(), impatient());
    let started = Instant::now();
    let mut client = server.connect();
    client.send(GET).answer();
    client.end();
    let waited = started.elapsed();
    // The server's clock has milliseconds.
    assert!(
        waited >= Duration::from_millis(PATIENCE_MS - 1),
        "{waited:?}"
    );
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    server.await_no_connections();
    assert_eq!(
        server
            .control
            .snapshot()
            .total
            .closed_for(CloseReason::Idle),
        1
    );
}

fn a_slow_head_gets_408(model: Model) {
    let server = Server::start_with(model.options(), impatient());
    let mut client = server.connect();
    client.send(&GET[..20]);
    let answer = client.answer();
    assert_eq!(answer.status, 408);
    assert!(answer.closes());
    client.end();
    drop(client); // otherwise a server with one thread would wait for that
    // A drip buys no time.
    let mut client = server.connect();
    let started = Instant::now();
    client.send("GET /-/echo HTTP/1.1\r\nHost: h\r\nA: ");
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 1000];
    loop {
        match client.stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(_) if answer.is_empty() => drop(client.send_in_vain("a")),
            Err(_) => {}
        }
        assert!(
            started.elapsed() < Duration::from_secs(8),
            "a drip holds it open"
        );
    }
    assert!(answer.starts_with(b"HTTP/1.1 408"));
}

pub fn a_slow_body_gets_408(model: Model) {
    let server = Server::start_with(model.options(), impatient());
    let mut client = server.connect();
    client.send("POST /-/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
    assert_eq!(client.answer().status, 408);
    client.end();
}

pub fn a_client_that_does_not_read_is_closed(model: Model) {
    let server = Server::start_with(model.options(), impatient());
    let mut client = server.connect();
    // More than any socket buffer takes: 60 MB.
    client.send("GET /big.bin HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20));
    eventually("the connection is given up", || {
        server
            .control
            .snapshot()
            .total
            .closed_for(CloseReason::Slow)
            == 1
    });
    assert!(client.rest().len() < 60_000_000);
    assert_eq!(server.connect().send(GET).answer().status, 200);
}

pub fn many_clients_at_once(model: Model) {
    let server = Server::start(model);
    let clients_count = if model.is_concurrent() { 16 } else { 1 };
    let rounds = if model.is_concurrent() { 4 } else { 1 };
    for _ in 0..rounds {
        let mut clients: Vec<_> = (0..clients_count).map(|_| server.connect()).collect();
        for round in 0..20 {
            for (n, client) in clients.iter_mut().enumerate() {
                client.send(format!(
                    "GET /-/echo?{round}-{n} HTTP/1.1\r\nHost: h\r\n\r\n"
                ));
            }
            for (n, client) in clients.iter_mut().enumerate() {
                let body = format!("GET /-/echo?{round}-{n}");
                assert_eq!(client.answer().body, body.as_bytes());
            }
        }
    }
}

pub fn the_counters_agree(model: Model) {
    let server = Server::start(model);
    let (mut bytes_in, mut bytes_out) = (0, 0);
    let mut is_http2 = false;
    for _ in 0..3 {
        let mut client = server.connect();
        is_http2 = client.is_http2;
        for target in [
            "/index.html",
            "/big.bin",
            "/-/echo",
            "/-/echo-blocking",
            "/middle.bin",
        ] {
            assert_eq!(client.get(target, "").status, 200);
        }
        assert_eq!(client.get("/missing", "").status, 404);
        assert_eq!(client.get("/folder", "").status / 100, 3);
        assert_eq!(client.send_last("/-/echo").answer().status, 200);
        client.end();
        bytes_in += client.bytes_in;
        bytes_out += client.bytes_out;
    }
    server.await_no_connections();
    let total = server.control.snapshot().total;
    assert_eq!(total.answers, [0, 18, 3, 3, 0]);
    assert_eq!(total.requests(), 24);
    assert_eq!((total.bytes_in, total.bytes_out), (bytes_out, bytes_in));
    assert_eq!((total.accepted, total.connections), (3, 0));
    let reason = match is_http2 {
        true => CloseReason::Client,
        false => CloseReason::Finished,
    };
    assert_eq!(total.closed_for(reason), 3);
}
