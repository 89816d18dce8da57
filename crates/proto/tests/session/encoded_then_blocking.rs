//! An answer that was encoded in the quick step waits for the blocking step; what was answered
//! before it does not.

use crate::drive::{Driver, Event, config};
use loadline_proto::{Body, Context, Exchange, Fields, Limits, Outcome, Status};

const TWO: &[u8] = b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n";

/// A worker that holds the blocking step, and adds nothing to what is answered.
fn held<'h>(handle: impl FnMut(&mut Exchange, &mut Context<'_>) -> Outcome + 'h) -> Driver<'h> {
    let mut driver = Driver::new(&config(Limits::default()), handle);
    driver.hold_blocking = true;
    driver.handle_blocking = Box::new(|_| {});
    driver
}

/// Answers the first of `TWO` at once, and encodes an answer to the second.
fn encode(exchange: &mut Exchange, cx: &mut Context<'_>) -> Outcome {
    let (content, outcome): (&[u8], _) = match exchange.request.target() {
        b"/1" => (b"one", Outcome::Ready),
        _ => (b"two", Outcome::Blocking),
    };
    exchange.answer_as_data = outcome == Outcome::Blocking;
    exchange.answer_borrowed(Status::OK, &Fields::default(), content, cx);
    outcome
}

#[test]
fn an_encoded_answer_waits_for_its_blocking_step() {
    let mut driver = held(encode);
    driver.feed(TWO);
    let contents = |driver: &Driver<'_>| -> Vec<_> {
        let answers = driver.answers().into_iter();
        answers.map(|answer| (answer.status, answer.body)).collect()
    };
    assert_eq!(contents(&driver), [(200, b"one".to_vec())]);
    assert!(matches!(
        driver.events[..],
        [Event::Run, Event::Run, Event::Send(_), Event::Block]
    ));
    assert_eq!(driver.reading, Some(false));
    driver.complete();
    assert_eq!(contents(&driver)[1..], [(200, b"two".to_vec())]);
}

#[test]
fn a_drain_that_begins_meanwhile_is_announced() {
    for (version, fields) in [("1.1", ""), ("1.0", "Connection: keep-alive\r\n")] {
        let content = b"Connection: keep-alive\r\n";
        let mut driver = held(|exchange, cx| {
            let fields = Fields::default().with("A", "b");
            exchange.answer_as_data = true;
            exchange.answer_borrowed(Status::OK, &fields, content, cx);
            Outcome::Blocking
        });
        let request = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        driver.feed(request.as_bytes()).draining().complete();
        let text = std::str::from_utf8(&driver.output).expect("an answer is text here");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("\r\nConnection: close\r\n"), "{text}");
        assert!(
            !head.contains("keep-alive") && head.contains("A: b"),
            "{text}"
        );
        assert_eq!(body.as_bytes(), content);
        assert!(driver.is_closed());
    }
}

/// It says `Blocking` though it has answered into the output: the blocking step answers.
#[test]
fn an_answer_in_the_output_does_not_wait() {
    let mut driver = held(|exchange, cx| {
        let fields = Fields::default().with("A", "b");
        exchange.answer_borrowed(Status::FORBIDDEN, &fields, b"quick", cx);
        Outcome::Blocking
    });
    driver.handle_blocking = Box::new(|exchange| {
        exchange.response.field("C", "d");
        exchange.response.body = Body::Bytes(b"slow".to_vec());
    });
    driver.feed(TWO).complete().complete();
    for answer in driver.answers() {
        assert_eq!((answer.status, &*answer.body), (200, &b"slow"[..]));
        assert_eq!((answer.field("a"), answer.field("c")), (None, Some("d")));
    }
    assert_eq!(driver.statuses(), [200, 200]);
}

#[test]
fn an_encoded_answer_that_is_replaced_by_an_error_never_leaves() {
    let mut at_once = held(|exchange, cx| {
        if encode(exchange, cx) == Outcome::Blocking {
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
        }
        Outcome::Ready
    });
    at_once.feed(TWO);
    let mut later = held(encode);
    later.handle_blocking =
        Box::new(|exchange| exchange.response.error(Status::SERVICE_UNAVAILABLE));
    later.feed(TWO).complete();
    for (driver, status) in [(at_once, 500), (later, 503)] {
        assert_eq!(driver.statuses(), [200, status]);
        let text = String::from_utf8_lossy(&driver.output);
        assert!(text.contains("one") && !text.contains("two"), "{text}");
    }
}
