//! Nothing of an earlier request or of an earlier answer shows in the next one.

use crate::drive::{Driver, config, parse_answers};
use loadline_proto::{Body, CloseReason, Fields, Limits, Outcome, Status};

const HEAD: &[u8] = b"HEAD /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

/// An error whose request has no method, after a HEAD that used the same exchange.
#[test]
fn an_error_after_a_head_request_has_its_content() {
    type End = fn(&mut Driver<'_>);
    let ends: [(&str, End, u16); 5] = [
        ("no method", |d| _ = d.feed(b" / HTTP/1.1\r\n\r\n"), 400),
        (
            "an unknown one",
            |d| _ = d.feed(b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n"),
            501,
        ),
        ("a bare LF", |d| _ = d.feed(b"GET / HTTP/1.1\n\n"), 400),
        ("too late", |d| _ = d.feed(b"GET").pass(60_000), 408),
        ("no room", |d| _ = d.refuse(CloseReason::Refused), 503),
    ];
    for (name, end, status) in ends {
        let mut driver = Driver::echo();
        driver.feed(HEAD);
        assert!(driver.is_idle());
        let before = driver.output.len();
        end(&mut driver);
        let answers = parse_answers(&driver.output[before..], |_| false);
        assert_eq!(answers.len(), 1, "{name}");
        assert_eq!(answers[0].status, status, "{name}");
        assert!(!answers[0].body.is_empty(), "{name}: the page is missing");
    }
}

/// As a loop does whose queue is full, and a thread whose handler panicked.
#[test]
fn an_error_takes_the_place_of_an_encoded_answer() {
    for outcome in [Outcome::Ready, Outcome::Blocking] {
        let mut driver = Driver::new(&config(Limits::default()), |exchange, cx| {
            let fields = Fields::default().with("A", "b");
            exchange.answer_borrowed(Status::OK, &fields, b"encoded", cx);
            if exchange.request.target() == b"/fails" {
                exchange.response.error(Status::INTERNAL_SERVER_ERROR);
                return outcome;
            }
            Outcome::Ready
        });
        driver.handle_blocking = Box::new(|exchange| {
            exchange.response.error(Status::SERVICE_UNAVAILABLE);
        });
        let one = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        driver.feed([one("/"), one("/fails"), one("/")].concat().as_bytes());
        let failed = match outcome {
            Outcome::Ready => 500,
            _ => 503,
        };
        assert_eq!(driver.statuses(), [200, failed, 200]);
    }
}

/// A blocking step that answers anew, though the quick step has answered.
#[test]
fn another_answer_takes_the_place_of_an_encoded_one() {
    let mut driver = Driver::new(&config(Limits::default()), |exchange, cx| {
        exchange.answer_borrowed(Status::OK, &Fields::default(), b"encoded", cx);
        Outcome::Blocking
    });
    driver.handle_blocking = Box::new(|exchange| {
        exchange.response.body = Body::Bytes(b"anew".to_vec());
    });
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let answers = driver.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body, b"anew");
}
