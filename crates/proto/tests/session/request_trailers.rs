//! Fields behind the chunked content of a request: for an app's task behind the content, for a handler with the
//! content that it has gathered, within limits.

use crate::drive::{Driver, config, echo};
use loadline_proto::{Body, Context, Exchange, Limits, Outcome, Piece, TaskOptions};

const CHUNKED: &str = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

fn later(_: &mut Exchange, _: &mut Context<'_>) -> Outcome {
    Outcome::Later(TaskOptions::default())
}

/// Echoes what it has gathered, with the trailers behind it.
fn gathered(exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    let outcome = echo(exchange, cx);
    if let (Some(trailers), Body::Bytes(body)) =
        (&exchange.request.trailers, &mut exchange.response.body)
    {
        body.extend_from_slice(b"\n");
        body.extend_from_slice(trailers.http1_lines());
    }
    outcome
}

#[test]
fn an_app_gets_them_behind_the_content() {
    let content = "5\r\nhello\r\n0\r\nX-Sum: 7 \r\nx-empty:\r\nx-sum:\t8\r\n\r\n";
    let all = format!("{CHUNKED}{content}");
    for piece in [1, 2, 7, all.len()] {
        let mut driver = Driver::new(&config(Limits::default()), later);
        for piece in all.as_bytes().chunks(piece) {
            driver.feed(piece);
        }
        let app = driver.app();
        assert_eq!((&app.content[..], app.has_end), (&b"hello"[..], true));
        let trailers = app.trailers.as_ref().expect("trailers");
        let lines = b"X-Sum: 7\r\nx-empty: \r\nx-sum: 8\r\n";
        assert_eq!(trailers.http1_lines(), lines, "in pieces of {piece}");
        driver.app_consumes(5).app_begins(Some(0));
        driver.app_produces(Piece::End).go();
        assert!(driver.is_idle());
        // Nor do they come behind the next request.
        driver.feed(format!("{CHUNKED}0\r\n\r\n").as_bytes());
        let app = driver.app();
        assert!(app.has_end && app.trailers.is_none());
    }
}

#[test]
fn a_handler_gets_them_with_the_content() {
    let mut driver = Driver::new(&config(Limits::default()), gathered);
    driver.feed(format!("{CHUNKED}2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n").as_bytes());
    driver.feed(format!("{CHUNKED}2\r\nho\r\n0\r\n\r\n").as_bytes());
    let bodies: Vec<_> = driver.answers().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, [&b"POST /a hi\nX-Sum: 7\r\n"[..], b"POST /a ho"]);
}

#[test]
fn those_that_belong_into_the_head_and_more_than_allowed_are_refused() {
    let many = |count: usize| "x-sum: 7\r\n".repeat(count);
    let long = |len: usize| format!("x-sum: {}\r\n", "7".repeat(len));
    for (trailers, status) in [
        (many(100), 200),
        (many(101), 431),
        (long(8_000), 200),
        (long(9_000), 431),
        ("host: h\r\n".into(), 400),
        ("x-sum: 7\r\nContent-Length: 0\r\n".into(), 400),
        ("AUTHORIZATION: x\r\n".into(), 400),
        ("X-Forwarded-Proto: https\r\n".into(), 400),
        ("x-sum: a\x01b\r\n".into(), 400),
        (":path: /\r\n".into(), 400),
    ] {
        let request = format!("{CHUNKED}0\r\n{trailers}\r\n");
        let mut handled = Driver::new(&config(Limits::default()), gathered);
        // Behind its head, so that it is not judged with that.
        let (head, content) = request.split_at(CHUNKED.len());
        handled.feed(head.as_bytes()).feed(content.as_bytes());
        assert_eq!(handled.statuses(), [status], "{trailers}");
        let mut app = Driver::new(&config(Limits::default()), later);
        app.feed(head.as_bytes()).feed(content.as_bytes());
        match status {
            200 => assert!(app.app().trailers.is_some(), "{trailers}"),
            _ => assert_eq!(app.statuses(), [status], "{trailers}"),
        }
    }
}

/// Also while the line of one is incomplete, and once the app has them.
#[test]
fn they_count_in_memory() {
    let mut driver = Driver::new(&config(Limits::default()), later);
    driver.feed(CHUNKED.as_bytes()).feed(b"0\r\nx-sum: ");
    let held = |driver: &Driver<'_>| driver.session.as_ref().map_or(0, |it| it.held_bytes());
    driver.feed(&[b'7'; 100]);
    let before = held(&driver);
    for _ in 0..60 {
        driver.feed(&[b'7'; 100]);
    }
    assert!(held(&driver) > before + 5_000);
    driver.feed(b"\r\n\r\n");
    assert!(driver.app().trailers.is_some());
    assert!(held(&driver) > before + 5_000);
    driver.app_begins(Some(0)).app_produces(Piece::End).go();
    assert!(driver.is_idle());
    assert!(held(&driver) < before);
}
