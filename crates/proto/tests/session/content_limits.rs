//! How much content a request may have: for files and forms by the server's limit, for an app by its
//! own, and 413 beyond it.

use crate::drive::{Driver, Event, config};
use loadline_proto::{
    CloseReason, Context, Exchange, Limits, Outcome, RequestBody, Status, TaskOptions,
};

fn limits() -> Limits {
    Limits {
        body_bytes_max: 100,
        ..Limits::default()
    }
}

fn app(bytes_max: u64) -> Driver<'static> {
    Driver::new(
        &config(limits()),
        move |_: &mut Exchange, _: &mut Context<'_>| {
            Outcome::Later(TaskOptions {
                body_bytes_max: bytes_max,
                ..TaskOptions::default()
            })
        },
    )
}

fn with_length(len: usize) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n")
}

const CHUNKED: &str = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(len: usize) -> String {
    format!("{len:x}\r\n{}\r\n", "x".repeat(len))
}

#[test]
fn of_files_and_forms_by_the_servers_own_limit() {
    type Handle = fn(&mut Exchange, &mut Context<'_>) -> Outcome;
    let handlers: [(&str, Handle, u16); 4] = [
        ("ready", |_, _| Outcome::Ready, 200),
        ("blocking", |_, _| Outcome::Blocking, 200),
        (
            "refused otherwise",
            |exchange, _| {
                exchange.response.error(Status::METHOD_NOT_ALLOWED);
                exchange.response.field("Allow", "GET");
                Outcome::Ready
            },
            405,
        ),
        (
            "collected",
            |exchange, _| match exchange.request.body {
                RequestBody::Whole(_) => Outcome::Ready,
                _ => Outcome::Collect { bytes_max: 1000 },
            },
            200,
        ),
    ];
    for (name, handle, status) in handlers {
        for (request, expected) in [
            (with_length(100) + &"x".repeat(100), status),
            (with_length(101), 413),
            (with_length(101) + &"x".repeat(101), 413),
            (with_length(1 << 40), 413),
            (format!("{CHUNKED}{}0\r\n\r\n", chunk(100)), status),
            // Enough has come with the head to know.
            (format!("{CHUNKED}{}0\r\n\r\n", chunk(101)), 413),
            (format!("{CHUNKED}{}{}", chunk(50), chunk(51)), 413),
        ] {
            let mut driver = Driver::new(&config(limits()), handle);
            driver.feed(request.as_bytes());
            // What is refused otherwise stays so.
            let expected = if status == 405 { 405 } else { expected };
            assert_eq!(driver.statuses(), [expected], "{name}: {request}");
            let answer = &driver.answers()[0];
            assert_eq!(answer.field("allow").is_some(), status == 405, "{name}");
            assert!(answer.closes() || expected != 413, "{name}: {request}");
        }
    }
    // Without waiting for what a client asks leave to send.
    let mut driver = Driver::new(&config(limits()), |_, _| Outcome::Ready);
    let head = with_length(101).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    driver.feed(head.as_bytes());
    assert_eq!(driver.statuses(), [413]);
}

#[test]
fn of_an_app_by_its_own_before_it_is_started() {
    for request in [
        with_length(11),
        with_length(11) + "0123456789",
        with_length(1 << 40),
        with_length(11).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n"),
        format!("{CHUNKED}{}", chunk(11)),
        format!("{CHUNKED}b\r\n0123456789a"),
    ] {
        let mut driver = app(10);
        driver.feed(request.as_bytes());
        assert_eq!(driver.statuses(), [413], "{request}");
        assert!(driver.answers()[0].closes() && driver.is_lingering());
        assert!(!driver.events.contains(&Event::Start), "{request}");
        assert_eq!(driver.closes(CloseReason::BadRequest), 0, "not yet");
        driver.eof();
        assert_eq!(driver.closes(CloseReason::BadRequest), 1);
    }
    for request in [
        with_length(10) + "0123456789",
        format!("{CHUNKED}{}0\r\n\r\n", chunk(10)),
    ] {
        let mut driver = app(10);
        driver.feed(request.as_bytes());
        driver.app_consumes(10).app_answers(|_| {}).go();
        assert_eq!(driver.statuses(), [200], "{request}");
        assert!(driver.is_idle());
    }
}

#[test]
fn of_an_app_as_it_grows() {
    let mut driver = app(10);
    driver.feed(CHUNKED.as_bytes()).feed(chunk(10).as_bytes());
    assert!(driver.app.is_some());
    driver.app_consumes(10).go();
    driver.feed(b"1\r\n");
    assert!(driver.app.is_some(), "announced, not there");
    driver.feed(b"x");
    assert_eq!(driver.statuses(), [413]);
    assert!(driver.cancelled.is_some() && driver.is_lingering());
    assert!(driver.answers()[0].closes());
    // What is malformed behind it came too late.
    let mut driver = app(10);
    driver.feed(CHUNKED.as_bytes());
    driver.feed((chunk(11) + "junk").as_bytes());
    assert_eq!(driver.statuses(), [413]);
    // An answer that has begun is cut.
    let mut driver = app(10);
    driver.feed(CHUNKED.as_bytes());
    driver.app_begins(None).app_says(b"begun").go();
    driver.feed(chunk(11).as_bytes());
    assert!(driver.cancelled.is_some() && driver.is_closed());
    assert!(driver.output.ends_with(b"\r\n5\r\nbegun\r\n"));
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
}

#[test]
fn however_it_is_cut() {
    let request = format!("{CHUNKED}{}{}0\r\n\r\n", chunk(9), chunk(2));
    for cut in 1..request.len() {
        let (left, right) = request.split_at(cut);
        let mut driver = app(10);
        driver.feed(left.as_bytes()).feed(right.as_bytes());
        assert_eq!(driver.statuses(), [413], "cut at {cut}");
    }
    let mut driver = app(10);
    driver.drip(request.as_bytes());
    assert_eq!(driver.statuses(), [413]);
}

#[test]
fn of_an_app_without_a_limit_not_at_all() {
    let mut driver = app(u64::MAX);
    driver.feed(with_length(1 << 40).as_bytes());
    assert!(driver.app.is_some());
    let mut driver = app(u64::MAX);
    driver.feed(CHUNKED.as_bytes());
    for _ in 0..100 {
        driver.feed(chunk(1000).as_bytes()).app_consumes(1000).go();
    }
    assert!(driver.app.is_some(), "far beyond the one for forms");
}

#[test]
fn a_limit_is_of_one_request() {
    let mut driver = app(10);
    for _ in 0..3 {
        driver.feed(format!("{CHUNKED}{}0\r\n\r\n", chunk(6)).as_bytes());
        driver.app_consumes(6).app_answers(|_| {}).go();
    }
    assert_eq!(driver.statuses(), [200, 200, 200]);
}
