//! When a connection stays open and what the answer says of it; lengths of answers.

use crate::drive::{Driver, config, echo, parse_answers};
use loadline_proto::{Body, Context, Exchange, Limits, Outcome, SessionConfig, Status};

/// Request lines and fields, whether the connection stays, and what the answer says of it.
#[test]
fn keep_alive_rules_of_both_versions() {
    let table: &[(&str, bool, Option<&str>)] = &[
        ("GET / HTTP/1.1\r\nHost: h\r\n", true, None),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n",
            true,
            None,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: foo, close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: close ,foo\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: ,,close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: foo\r\nConnection: close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n",
            true,
            None,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: not-close\r\n",
            true,
            None,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n",
            true,
            None,
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nX-Connection: close\r\n",
            true,
            None,
        ),
        ("GET / HTTP/1.2\r\nHost: h\r\n", true, None),
        ("GET / HTTP/1.0\r\n", false, Some("close")),
        (
            "GET / HTTP/1.0\r\nConnection: close\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.0\r\nConnection: foo\r\n",
            false,
            Some("close"),
        ),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n",
            true,
            Some("keep-alive"),
        ),
        (
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n",
            true,
            Some("keep-alive"),
        ),
        (
            "GET / HTTP/1.0\r\nConnection: foo, keep-alive\r\n",
            true,
            Some("keep-alive"),
        ),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n",
            false,
            Some("close"),
        ),
    ];
    for (head, stays, said) in table {
        let mut driver = Driver::echo();
        driver.feed(format!("{head}\r\n").as_bytes());
        let answers = driver.answers();
        assert_eq!(answers.len(), 1, "{head}");
        let field = answers[0].field("connection").map(str::to_ascii_lowercase);
        if *stays && said.is_none() {
            assert_ne!(field.as_deref(), Some("close"), "{head}");
        } else if *stays || field.is_some() {
            assert_eq!(field.as_deref(), *said, "{head}");
        } else {
            // To HTTP/1.0 the end need not be announced.
            assert!(head.contains("HTTP/1.0"), "{head}");
        }
        assert_eq!(
            !driver.is_closed() && !driver.is_lingering(),
            *stays,
            "{head}"
        );
        if !stays {
            assert!(
                driver.is_closed(),
                "nothing unread: Close follows at once: {head}"
            );
        }
    }
}

#[test]
fn keep_alive_off_closes_after_each_answer() {
    let config = std::sync::Arc::new(SessionConfig {
        keep_alive: false,
        ..SessionConfig::default()
    });
    for head in [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let mut driver = Driver::new(&config, echo);
        driver.feed(head.as_bytes());
        assert!(driver.answers()[0].closes(), "{head}");
        assert!(driver.is_closed(), "{head}");
    }
}

#[test]
fn nothing_after_close_is_served() {
    let mut driver = Driver::echo();
    driver.feed(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(driver.statuses(), [200]);
    assert_eq!(driver.seen.len(), 1);
    if !driver.is_closed() {
        driver.eof();
    }
    assert!(driver.is_closed());
}

#[test]
fn a_handler_can_close() {
    let mut driver = Driver::new(&config(Limits::default()), |exchange, _| {
        exchange.response.close = true;
        Outcome::Ready
    });
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(driver.answers()[0].closes() && driver.is_closed());
}

fn answer_with(status: Status, body: Body, request: &str) -> (String, usize) {
    let mut body = Some(body);
    let mut driver = Driver::new(
        &config(Limits::default()),
        |exchange: &mut Exchange, _: &mut Context<'_>| {
            exchange.response.status = status;
            exchange.response.body = body.take().unwrap_or_default();
            Outcome::Ready
        },
    );
    driver.feed(request.as_bytes());
    assert!(!driver.is_closed(), "the connection stays");
    let is_head = request.starts_with("HEAD");
    let answers = parse_answers(&driver.output, |_| is_head);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].status, status.code());
    let len = answers[0].field("content-length").unwrap_or("none");
    (len.to_owned(), answers[0].body.len())
}

#[test]
fn lengths_of_answers() {
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let head = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
    let bytes = |n: usize| Body::Bytes(vec![b'x'; n]);
    let shared = || Body::Shared {
        bytes: std::sync::Arc::from(vec![b'x'; 100_000]),
        start: 10,
        end: 90_010,
    };
    assert_eq!(answer_with(Status::OK, Body::Empty, get), ("0".into(), 0));
    assert_eq!(answer_with(Status::OK, bytes(5), get), ("5".into(), 5));
    assert_eq!(answer_with(Status::OK, bytes(5), head), ("5".into(), 0));
    assert_eq!(
        answer_with(Status::OK, bytes(100_000), get),
        ("100000".into(), 100_000)
    );
    assert_eq!(
        answer_with(Status::OK, bytes(100_000), head),
        ("100000".into(), 0)
    );
    assert_eq!(
        answer_with(Status::OK, shared(), get),
        ("90000".into(), 90_000)
    );
    assert_eq!(answer_with(Status::OK, shared(), head), ("90000".into(), 0));
    assert_eq!(
        answer_with(Status::NO_CONTENT, Body::Empty, get),
        ("none".into(), 0)
    );
    // A 304 says what the 200 would, or nothing; never zero for something that has content.
    assert_eq!(answer_with(Status::NOT_MODIFIED, Body::Empty, get).1, 0);
    // An error without a body gets its page, and HEAD its length.
    let (len, sent) = answer_with(Status::NOT_FOUND, Body::Empty, get);
    assert_eq!(len, sent.to_string());
    assert!(sent > 0);
    assert_eq!(answer_with(Status::NOT_FOUND, Body::Empty, head), (len, 0));
    // One that no table knows.
    let odd = Status::new(299).expect("in range");
    assert_eq!(answer_with(odd, bytes(3), get), ("3".into(), 3));
}

#[test]
fn a_file_is_sent_without_being_read_here() {
    use std::os::unix::fs::FileExt as _;
    let path = std::env::current_exe().expect("this program");
    let file = std::fs::File::open(path).expect("this program");
    let mut content = vec![0; 200_000];
    file.read_exact_at(&mut content, 100).expect("its content");
    let file = std::sync::Arc::new(loadline_base::OpenFile {
        fd: file.into(),
        version: loadline_base::ContentVersion::default(),
        is_local: true,
    });
    let mut driver = Driver::new(&config(Limits::default()), move |exchange, _| {
        exchange.response.body = Body::File {
            file: std::sync::Arc::clone(&file),
            offset: 100,
            len: 200_000,
        };
        Outcome::Ready
    });
    let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    driver.feed(&[&head[..], head].concat());
    let answers = driver.answers();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer.body == content));
}
