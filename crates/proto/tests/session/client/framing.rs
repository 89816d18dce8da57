//! Where well-formed answers end, what they contain, and whether the connection stays.

use super::tape::{get, play};
use loadline_proto::{Limits, Method, ReplyFault};

#[test]
fn content_is_framed_by_its_head() {
    // Fields and content behind "HTTP/1.1 200 OK"; the content; the connection stays; it had to end.
    let table: &[(&str, &str, bool, bool)] = &[
        ("Content-Length: 5\r\n\r\nhello", "hello", true, false),
        ("content-length:5\r\n\r\nhello", "hello", true, false),
        ("CONTENT-LENGTH: \t5 \t\r\n\r\nhello", "hello", true, false),
        ("Content-Length: 00005\r\n\r\nhello", "hello", true, false),
        ("Content-Length: 0\r\n\r\n", "", true, false),
        ("Content-Length: 4\r\n\r\n\r\n\r\n", "\r\n\r\n", true, false),
        ("\r\nhello", "hello", false, true),
        ("\r\n", "", false, true),
        ("Connection: keep-alive\r\n\r\nhello", "hello", false, true),
        (
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "",
            true,
            false,
        ),
        (
            "transfer-encoding:CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "hello",
            true,
            false,
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n2;a=\"b\"\r\nhe\r\n003\r\nllo\r\n000\r\nA: b\r\n\r\n",
            "hello",
            true,
            false,
        ),
        (
            "Content-Length: 2\r\nConnection: close\r\n\r\nok",
            "ok",
            false,
            false,
        ),
        (
            "Content-Length: 2\r\nConnection: x, Close,\r\n\r\nok",
            "ok",
            false,
            false,
        ),
        (
            "Connection: closed\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            true,
            false,
        ),
        (
            "Connection: keep-alive\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            false,
            false,
        ),
    ];
    for (rest, content, keep_alive, at_eof) in table {
        let outcome = get(format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes());
        let reply = outcome.result.unwrap();
        assert_eq!(outcome.seen.content, content.as_bytes(), "{rest:?}");
        assert_eq!(reply.content_bytes, content.len() as u64, "{rest:?}");
        assert_eq!(reply.keep_alive, *keep_alive, "{rest:?}");
        assert_eq!(outcome.at_eof, *at_eof, "{rest:?}");
        assert_eq!((reply.status, reply.excess_bytes), (200, 0));
    }
}

#[test]
fn some_answers_have_no_content_whatever_they_announce() {
    let fields = [
        "",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: none\r\n",
    ];
    for fields in fields {
        for (method, status) in [
            (Method::Head, 200),
            (Method::Head, 404),
            (Method::Get, 204),
            (Method::Get, 304),
        ] {
            let answer = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
            let outcome = play(method, &[answer.as_bytes()], &Limits::default());
            let reply = outcome.result.unwrap();
            assert!(reply.keep_alive && !outcome.at_eof, "{answer:?}");
            assert_eq!((reply.status, reply.content_bytes), (status, 0));
            assert_eq!(outcome.seen.heads, answer.as_bytes());
        }
    }
}

#[test]
fn http_1_0_stays_only_if_it_says_so() {
    for (answer, keep_alive, at_eof) in [
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false,
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nok",
            true,
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, close\r\n\r\nok",
            false,
            false,
        ),
        ("HTTP/1.0 200 OK\r\n\r\nok", false, true),
        (
            "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
            true,
            false,
        ),
    ] {
        let outcome = get(answer.as_bytes());
        let reply = outcome.result.unwrap();
        assert_eq!(reply.keep_alive, keep_alive, "{answer:?}");
        assert_eq!(outcome.at_eof, at_eof, "{answer:?}");
        assert_eq!(outcome.seen.content, b"ok");
    }
}

#[test]
fn interim_answers_are_passed_over() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n";
    let outcome = get(format!("{interim}{last}ok").as_bytes());
    assert_eq!(outcome.result.unwrap().status, 201);
    assert_eq!(outcome.seen.heads, last.as_bytes());
    let limits = Limits::default();
    let most = usize::from(limits.interim_answers_max) / 2;
    assert!(
        get(format!("{}{last}ok", interim.repeat(most)).as_bytes())
            .result
            .is_ok()
    );
    let outcome = get(format!("{}{last}ok", interim.repeat(most + 1)).as_bytes());
    assert!(matches!(outcome.result, Err(ReplyFault::Malformed(_))));
}

#[test]
fn bytes_behind_an_answer_are_counted_and_end_the_connection() {
    for (method, answer, excess) in [
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!",
            1,
        ),
        (
            Method::Head,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            2,
        ),
        (Method::Get, "HTTP/1.1 304 x\r\n\r\nHTTP", 4),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\r\n",
            2,
        ),
    ] {
        let outcome = play(method, &[answer.as_bytes()], &Limits::default());
        let reply = outcome.result.unwrap();
        assert_eq!(
            (reply.excess_bytes, reply.keep_alive),
            (excess, false),
            "{answer:?}"
        );
    }
}
