//! The last answer of a connection reaches a client that is still sending: no reset destroys it.

use loadline_proto::{Limits, Pace};

use crate::client::Client;
use crate::failures::LARGE;
use crate::fixture::{Model, Server, limits, pattern};

const ECHO: &str = "GET /-/echo HTTP/1.1\r\nHost: h\r\n\r\n";

every_model! {
    the_error_is_read_by_a_client_that_sends_10_mb_first,
    a_last_answer_is_whole_though_more_came_behind_its_request,
    a_last_answer_is_read_though_more_came_while_it_was_made,
    a_drain_answers_what_came_while_an_answer_was_on_its_way,
}

pub fn the_error_is_read_by_a_client_that_sends_10_mb_first(model: Model) {
    let server = start_patient(model);
    let post = "POST /-/echo HTTP/1.1\r\nHost: h\r\n";
    let content = vec![b'1'; 10_000_000];
    for (head, status) in [
        (format!("{post}Content-Length: 10000000\r\n\r\n"), 413),
        (
            format!("{post}Transfer-Encoding: chunked\r\n\r\n989680\r\n"),
            413,
        ),
        (
            format!("{post}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            400, // over HTTP/2 an error of its stream
        ),
        (
            "POST /index.html HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n".to_owned(),
            405,
        ),
    ] {
        let mut client = server.connect();
        if client.is_http2 && status == 400 {
            continue;
        }
        client.send(&head).send(&content);
        assert_eq!(client.answer().status, status, "{head}");
        client.half_close().end();
    }
}

/// A server that waits for its client's end after the last answer: who reads what sockets hold, and
/// decrypts it, may be slow in a crowd.
fn start_patient(model: Model) -> Server {
    let linger_pace = Pace {
        grace_ms: 20_000,
        ..limits().linger_pace
    };
    let limits = Limits {
        linger_pace,
        ..limits()
    };
    Server::start_with(model.options(), limits)
}

/// Asks for a large file with these field lines, and begins to read it.
fn begin_large_answer(server: &Server, lines: &str) -> Client {
    std::fs::write(server.path().join("large.bin"), pattern(*LARGE)).unwrap();
    let mut client = server.connect();
    client.receive_little();
    client.send(format!("GET /large.bin HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
    client.await_bytes(b"");
    client
}

pub fn a_last_answer_is_whole_though_more_came_behind_its_request(model: Model) {
    let server = start_patient(model);
    let mut client = begin_large_answer(&server, "Connection: close\r\n");
    client.send(ECHO.repeat(100));
    let answer = client.answer();
    assert!(answer.closes());
    assert!(
        answer.body == pattern(*LARGE),
        "{} bytes",
        answer.body.len()
    );
    client.half_close().end();
}

pub fn a_last_answer_is_read_though_more_came_while_it_was_made(model: Model) {
    let server = start_patient(model);
    let mut client = server.connect();
    client.send_last("/-/gate");
    server.site.gate.await_waiting(1);
    client.send(ECHO);
    server.site.gate.open();
    assert!(client.answer().closes());
    client.half_close().end();
}

pub fn a_drain_answers_what_came_while_an_answer_was_on_its_way(model: Model) {
    let server = start_patient(model);
    let mut client = begin_large_answer(&server, "");
    client.send(ECHO);
    server.control.drain();
    let answer = client.answer();
    assert!(
        answer.body == pattern(*LARGE),
        "{} bytes",
        answer.body.len()
    );
    let last = client.answer();
    assert_eq!(last.status, 200);
    assert!(client.is_last(&last));
    client.half_close().end();
    assert_eq!(server.end(), 0);
}
