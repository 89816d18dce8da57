//! What reaches the client.

use crate::app::pattern;
use crate::fixture::Running;
use crate::model::Model;

every_model! {
    statuses_and_empty_answers,
    fields_as_given,
    content_of_known_and_unknown_length,
    to_http_1_0,
    to_head,
    trailers,
    trailers_behind_a_length_of_http_1,
    lengths_that_do_not_hold,
    timers_sockets_and_tasks,
    a_panic_is_a_500,
}

pub fn statuses_and_empty_answers(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for status in [200, 201, 204, 299, 301, 304, 404, 418, 500, 503, 599, 999] {
        let answer = client.get(&format!("/status/{status}"), "");
        assert_eq!(
            (answer.status, answer.body.len()),
            (status, 0),
            "no page of ours"
        );
        let stated = answer.field("content-length");
        let expected = if matches!(status, 204 | 304) {
            None
        } else {
            Some("0")
        };
        assert_eq!(stated, expected, "{status}");
    }
    assert_eq!(client.get("/status/101", "").status, 500);
    assert_eq!(client.get("/form/empty", "").body, b"");
    assert_eq!(client.get("/form/empty-frames", "").body, b"x");
    assert_eq!(client.get("/none", "").status, 404);
}

pub fn fields_as_given(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    let bytes = client.send_last("/fields").rest();
    let has = |line: &[u8]| {
        bytes
            .windows(line.len())
            .filter(|part| *part == line)
            .count()
    };
    assert_eq!(has(b"\r\nset-cookie: a=1\r\n"), 1);
    assert_eq!(has(b"\r\nset-cookie: b=2\r\n"), 1);
    assert_eq!(has(b"\r\nx-opaque: \xff\xfe\tx\r\n"), 1);
    assert_eq!(has(b"\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), 1);
    assert_eq!(has(b"\r\nserver: its own\r\n"), 1);
    assert_eq!(
        (has(b"Date: "), has(b"Server: "), has(b"keep-alive")),
        (0, 0, 0)
    );
    assert!(bytes.ends_with(b"\r\n\r\nfields"));
}

pub fn content_of_known_and_unknown_length(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for len in [0, 1, 600, 16_384, 16_385, 65_536, 65_537, 1_000_003] {
        let answer = client.get(&format!("/known/{len}"), "");
        assert_eq!(answer.field("content-length"), Some(&*len.to_string()));
        assert!(answer.body == pattern(len), "{len}");
        let answer = client.get(&format!("/unknown/{len}"), "");
        assert!(answer.body == pattern(len), "{len}");
        if len > 0 {
            assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
        }
    }
    let get = |n: usize| format!("GET /unknown/{n} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send((1..20).map(|n| get(n * 3000)).collect::<String>());
    for n in 1..20 {
        assert!(client.answer().body == pattern(n * 3000), "pipelined");
    }
}

fn to_http_1_0(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    client.send("GET /known/70000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(client.answer().body == pattern(70_000));
    client.send("GET /unknown/70000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answers = crate::answers::parse_answers(&client.rest(), |_| false);
    assert!(answers[0].closes() && answers[0].body == pattern(70_000));
}

pub fn to_head(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for (target, stated) in [
        ("/hello", Some("5")),
        ("/known/100000", Some("100000")),
        ("/unknown/100000", None),
        ("/status/404", Some("0")),
    ] {
        let answer = client.head(target, "");
        assert_eq!(answer.field("content-length"), stated, "{target}");
    }
    assert_eq!(
        client.get("/hello", "").body,
        b"hello",
        "nothing came behind"
    );
}

pub fn trailers(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    let answer = client.get("/form/trailers", "TE: trailers\r\n");
    assert_eq!(answer.body, b"content");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    for (target, te) in [
        ("/form/trailers", ""),
        ("/form/forbidden-trailers", "TE: trailers\r\n"),
        ("/form/connection-trailers", "TE: trailers\r\n"),
    ] {
        assert_eq!(client.get(target, te).trailers, [], "{target}");
    }
    // They are the last that is asked of a body.
    let answer = client.get("/form/trailers-without-an-end", "TE: trailers\r\n");
    assert_eq!((&answer.body[..], answer.trailers.len()), (&b"x"[..], 1));
    let answer = client.get("/form/trailers-alone", "TE: trailers\r\n");
    assert_eq!((answer.body.len(), answer.trailers.len()), (0, 1));
}

/// Nothing may follow content of a stated length: they are dropped, as by hyper.
fn trailers_behind_a_length_of_http_1(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for _ in 0..2 {
        let answer = client.get("/form/trailers-of-known-length", "TE: trailers\r\n");
        assert_eq!(answer.field("content-length"), Some("7"));
        assert_eq!(answer.body, b"content");
        assert_eq!(answer.trailers, []);
    }
    // Nor do they come behind the next response.
    let answer = client.get("/unknown/10", "TE: trailers\r\n");
    assert_eq!((answer.body.len(), answer.trailers.len()), (10, 0));
}

pub fn lengths_that_do_not_hold(model: Model) {
    let server = Running::start(model);
    assert_eq!(server.connect().get("/form/exact", "").body, b"exact");
    for form in ["short", "none-of-it", "long"] {
        let mut client = server.connect();
        client.send(format!("GET /form/{form} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let bytes = client.rest();
        let content = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        assert!(
            content.is_none_or(|at| bytes.len() - at - 4 < 5),
            "cut, not completed"
        );
    }
    let mut client = server.connect();
    assert_eq!(client.get("/form/fails-first", "").status, 500);
    client.send("GET /form/fails-late HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(!client.rest().ends_with(b"0\r\n\r\n"), "cut, not completed");
}

pub fn timers_sockets_and_tasks(model: Model) {
    let server = Running::start(model);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(
            client.get("/drivers", "").body,
            b"from a socket and a thread"
        );
    }
}

pub fn a_panic_is_a_500(model: Model) {
    let server = Running::start(model);
    for _ in 0..20 {
        assert_eq!(server.connect().get("/panic", "").status, 500);
    }
    assert_eq!(server.connect().get("/hello", "").body, b"hello");
}
