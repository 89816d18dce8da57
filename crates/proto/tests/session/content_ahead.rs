//! Chunked content that comes in the same receive as the end of its head is judged with the head:
//! malformed, it is refused before anybody answers. What comes later is found out later: then the
//! answer stands, and the connection ends behind it. Which of the two it is, for every cut.

use crate::drive::{Driver, Event, config, echo_blocking};
use loadline_proto::{Context, Exchange, Limits, Outcome, RECEIVE_BYTES, Status, TaskOptions};

/// Content, up to the byte that is malformed and from there on.
const MALFORMED: [(&str, &str); 22] = [
    ("", "x\r\nhello\r\n0\r\n\r\n"),
    ("", "\r\n"),
    ("5", "\nhello\r\n0\r\n\r\n"),
    ("5", "x\r\nhello\r\n0\r\n\r\n"),
    ("5 ", "\r\nhello\r\n0\r\n\r\n"),
    ("5;a", "\nhello\r\n0\r\n\r\n"),
    ("5;a=\"b", "\nc\"\r\nhello\r\n0\r\n\r\n"),
    ("5;a\r", "b\r\nhello\r\n0\r\n\r\n"),
    ("5\r\nhello", "\n0\r\n\r\n"),
    ("5\r\nhello", "X\r\n0\r\n\r\n"),
    ("5\r\nhello\r\n", "junk"),
    ("5\r\nhello\r\n0", "junk\r\n\r\n"),
    ("5\r\nhello\r\n0\r\njunk", "\r\n\r\n"),
    ("5\r\nhello\r\n0\r\n\r", "X"),
    ("0;a", "\n\r\n"),
    ("0\r\n", " a: b\r\n\r\n"),
    ("0\r\na", " : b\r\n\r\n"),
    ("0\r\na: b", "\n\r\n"),
    ("0\r\nContent-Length", ": 5\r\n\r\n"),
    ("0\r\na: b\r\ntransfer-encoding", ": chunked\r\n\r\n"),
    ("0\r\nHOST", ": other\r\n\r\n"),
    ("1000000000000000", "0\r\n"),
];

/// Follows in each case: what must never be taken for a request.
const CANARY: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

/// What handlers do that do not ask for the content, and the status they answer with.
type Handle = fn(&mut Exchange, &mut Context<'_>) -> Outcome;
const HANDLERS: [(Handle, u16); 4] = [
    (|_, _| Outcome::Ready, 200),
    (
        |exchange, _| {
            exchange.response.error(Status::METHOD_NOT_ALLOWED);
            Outcome::Ready
        },
        405,
    ),
    (|_, _| Outcome::Blocking, 415),
    (|_, _| Outcome::Later(TaskOptions::default()), 202),
];

fn head(method: &str) -> String {
    format!("{method} /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
}

/// The statuses of the answers to these pieces, after each of which an app answers if it has a
/// request; and how many requests a handler has seen.
fn fate(handle: Handle, pieces: &[&[u8]]) -> (Vec<u16>, usize) {
    let mut driver = Driver::new(&config(Limits::default()), handle);
    driver.handle_blocking = Box::new(|exchange| {
        echo_blocking(exchange);
        exchange.response.status = Status::UNSUPPORTED_MEDIA_TYPE;
    });
    for piece in pieces {
        driver.feed(piece);
        if driver.app.is_some() {
            let accepted = |exchange: &mut Exchange| exchange.response.status = Status::ACCEPTED;
            driver.app_answers(accepted).go();
        }
    }
    assert!(driver.seen.iter().all(|seen| seen.target != "/smuggled"));
    assert!(driver.is_lingering() || driver.is_closed());
    let faults: u64 = driver.counters.faults.iter().map(|c| c.value()).sum();
    assert_eq!(faults, 1, "one fault, counted once");
    (driver.statuses(), driver.seen.len())
}

#[test]
fn malformed_content_in_every_cut() {
    for (good, bad) in MALFORMED {
        for method in ["GET", "POST"] {
            for (handle, status) in HANDLERS {
                let head = head(method);
                let bytes = [&head, good, bad, CANARY].concat();
                // The byte that is malformed has to be there, and come with the end of the head.
                let bad_at = head.len() + good.len();
                for cut in 0..bytes.len() {
                    let (left, right) = bytes.as_bytes().split_at(cut);
                    let comes_with_the_head = cut < head.len() || cut > bad_at;
                    let expected = match comes_with_the_head {
                        true => (vec![400], 0),
                        false => (vec![status], 1),
                    };
                    let pieces = [left, right];
                    let pieces = if cut == 0 { &pieces[1..] } else { &pieces[..] };
                    let fate = fate(handle, pieces);
                    assert_eq!(
                        fate, expected,
                        "{method} {status} {good:?} {bad:?}, cut at {cut}"
                    );
                }
                let bytes: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
                assert_eq!(fate(handle, &bytes), (vec![status], 1), "byte by byte");
            }
        }
    }
}

#[test]
fn an_app_is_not_started_for_it() {
    let mut driver = Driver::new(&config(Limits::default()), HANDLERS[3].0);
    driver.feed((head("POST") + "5\r\nhelloX").as_bytes());
    assert_eq!(driver.statuses(), [400]);
    assert!(!driver.events.contains(&Event::Start) && driver.cancelled.is_none());
}

#[test]
fn behind_another_request_of_the_same_receive() {
    let first = "GET /first HTTP/1.1\r\nHost: h\r\n\r\n".to_owned();
    let bytes = first + &head("GET") + "5\r\nhelloX" + CANARY;
    for (handle, status) in &HANDLERS[..3] {
        let (statuses, seen) = fate(*handle, &[bytes.as_bytes()]);
        assert_eq!((statuses, seen), (vec![*status, 400], 1));
    }
}

#[test]
fn what_is_behind_well_formed_content_is_the_next_request() {
    let mut driver = Driver::new(&config(Limits::default()), HANDLERS[0].0);
    driver.feed((head("GET") + "5\r\nhello\r\n0\r\n\r\njunk\r\n\r\n").as_bytes());
    assert_eq!(driver.statuses(), [200, 400]);
    assert_eq!(driver.seen.len(), 1);
}

#[test]
fn what_is_well_formed_is_read_as_it_was() {
    let content = "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n";
    let bytes = head("PUT") + content + &head("PUT") + content;
    let whole = {
        let mut driver = Driver::echo();
        driver.feed(bytes.as_bytes());
        driver.output.clone()
    };
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        let mut driver = Driver::echo();
        driver.feed(left.as_bytes()).feed(right.as_bytes());
        assert_eq!(driver.output, whole, "cut at {cut}");
        let seen: Vec<_> = driver.seen.iter().map(|seen| seen.body.clone()).collect();
        assert_eq!(seen, vec![Some(b"abcde".to_vec()); 2]);
    }
}

/// The bound is the place in the stream, so that it is the same for whoever receives 4 KiB at once
/// and whoever receives 64.
#[test]
fn only_so_far_as_everybody_receives_at_once() {
    for head_padding in [0, 1000, 3900, 5000, 9000] {
        let head = head("GET").replace(
            "\r\n\r\n",
            &format!("\r\nA: {}\r\n\r\n", "a".repeat(head_padding)),
        );
        let end = head.len().next_multiple_of(RECEIVE_BYTES);
        for bad_at in end - 40..end + 40 {
            let Some(content) = bad_at.checked_sub(head.len() + 6) else {
                continue;
            };
            let bytes = format!("{head}{content:04x}\r\n{}X", "x".repeat(content));
            assert_eq!(bytes.len(), bad_at + 1);
            let expected = if bad_at < end { 400 } else { 200 };
            for receive in [RECEIVE_BYTES, 4 * RECEIVE_BYTES, 16 * RECEIVE_BYTES] {
                // As a ring receives: all of a turn, then its handler.
                let pieces: Vec<&[u8]> = bytes.as_bytes().chunks(receive).collect();
                let (statuses, _) = fate(HANDLERS[0].0, &pieces);
                assert_eq!(
                    statuses,
                    [expected],
                    "{head_padding}, {bad_at}, by {receive}"
                );
            }
        }
    }
}
