//! What a session promises to every architecture, one promise a test; the driver asserts the rest
//! of them at each step of every test here and beside.

use std::cell::Cell;
use std::sync::Arc;

use crate::drive::{Driver, Event, config, echo};
use loadline_proto::{Body, CloseReason, Limits, Outcome};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn blocking<'h>() -> Driver<'h> {
    let mut driver = Driver::new(&config(Limits::default()), |_, _| Outcome::Blocking);
    driver.hold_blocking = true;
    driver
}

#[test]
fn pipelined_answers_leave_in_one_send() {
    let mut driver = Driver::echo();
    driver.feed(&GET.repeat(20));
    assert_eq!(driver.statuses(), [200; 20]);
    let sends = driver.events.iter().filter(|e| matches!(e, Event::Send(_)));
    assert_eq!(
        sends.count(),
        1,
        "Run comes before Send: {:?}",
        driver.events
    );
}

#[test]
fn output_is_gathered_up_to_its_bound() {
    let limits = Limits::default();
    let body = vec![b'x'; 10_000];
    let mut driver = Driver::new(&config(limits.clone()), move |exchange, _| {
        exchange.response.body = Body::Bytes(body.clone());
        Outcome::Ready
    });
    driver.feed(&GET.repeat(40));
    assert_eq!(driver.statuses(), [200; 40]);
    for event in &driver.events {
        if let Event::Send(len) = event {
            let bound = limits.output_bytes_max as u64 + 20_000;
            assert!(*len <= bound, "{len} bytes in one Send");
        }
    }
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let turns = Cell::new(0);
    let mut driver = Driver::new(&config(Limits::default()), |exchange, cx| {
        turns.set(turns.get() + 1);
        if turns.get() % 3 == 0 {
            Outcome::Blocking
        } else {
            echo(exchange, cx)
        }
    });
    let requests: Vec<String> = (0..50)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n"))
        .collect();
    driver.feed(requests.concat().as_bytes());
    for (n, answer) in driver.answers().iter().enumerate() {
        assert_eq!(answer.body, format!("GET /{n}").into_bytes());
    }
    assert_eq!(driver.answers().len(), 50);
}

#[test]
fn answers_before_a_slow_one_do_not_wait_for_it() {
    let turns = Cell::new(0);
    let mut driver = Driver::new(&config(Limits::default()), |exchange, cx| {
        turns.set(turns.get() + 1);
        if turns.get() == 3 {
            Outcome::Blocking
        } else {
            echo(exchange, cx)
        }
    });
    driver.hold_blocking = true;
    driver.feed(&GET.repeat(5));
    assert_eq!(driver.statuses(), [200; 2], "sent before Block");
    assert_eq!(driver.seen.len(), 3, "one exchange out: the fourth waits");
    driver.complete();
    assert_eq!(driver.statuses(), [200; 5]);
}

#[test]
fn a_full_socket_holds_back_everything_else() {
    let mut driver = Driver::echo();
    driver.hold_output = true;
    driver.feed(GET);
    // Requests keep coming, none of their answers leaves: reading stops within the bounds.
    let limits = Limits::default();
    let mut fed = 0;
    while driver.reading == Some(true) {
        driver.feed(GET);
        fed += GET.len();
        let bound = limits.head_bytes_max + limits.output_bytes_max + (64 << 10);
        assert!(fed <= bound, "no backpressure after {fed} bytes");
    }
    let answered = driver.release_output().statuses().len();
    assert_eq!(answered, 1 + fed / GET.len(), "nothing was lost");
}

#[test]
fn a_slow_handler_holds_back_the_client() {
    let mut driver = blocking();
    driver.feed(GET);
    let mut fed = 0;
    while driver.reading == Some(true) {
        driver.feed(GET);
        fed += GET.len();
        assert!(
            fed <= Limits::default().head_bytes_max + (64 << 10),
            "{fed}"
        );
    }
    while driver.parked.is_some() {
        driver.complete();
    }
    assert_eq!(driver.statuses().len(), 1 + fed / GET.len());
}

#[test]
fn output_that_leaves_in_pieces() {
    let body: Arc<[u8]> = (0..200_000u32).map(|n| n as u8).collect();
    let content = Arc::clone(&body);
    let mut driver = Driver::new(&config(Limits::default()), move |exchange, _| {
        exchange.response.body = Body::Shared {
            bytes: Arc::clone(&content),
            start: 0,
            end: content.len(),
        };
        Outcome::Ready
    });
    driver.hold_output = true;
    driver.feed(GET);
    while driver.held.is_some() {
        driver.progress(7_001);
    }
    assert_eq!(driver.answers()[0].body, *body);
    assert!(!driver.is_closed());
}

#[test]
fn a_bad_request_is_answered_then_finish_linger_close() {
    let mut driver = Driver::echo();
    driver.feed(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nBAD\r\n\r\n");
    assert_eq!(driver.statuses(), [200, 400]);
    assert_eq!(driver.events.last(), Some(&Event::Finish));
    assert_eq!(driver.reading, Some(true), "what still comes is read away");
    driver.feed(&GET.repeat(100));
    assert_eq!(driver.statuses(), [200, 400], "nothing follows");
    driver.eof();
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
}

#[test]
fn a_linger_is_bounded_in_bytes_and_in_time() {
    let limits = Limits::default();
    let mut driver = Driver::echo();
    driver.feed(b"BAD\r\n\r\n");
    let mut fed = 0;
    while !driver.is_closed() {
        driver.feed(&[b'x'; 10_000]);
        fed += 10_000;
        assert!(
            fed <= limits.linger_bytes_max + (128 << 10),
            "endless linger"
        );
    }
    let mut driver = Driver::echo();
    driver.feed(b"BAD\r\n\r\n");
    for _ in 0..limits.linger_pace.grace_ms / 100 {
        assert!(driver.is_lingering());
        driver.pass(100).feed(b"x");
    }
    driver.pass(1);
    assert!(driver.is_closed(), "a drip must not prolong it");
    let mut driver = Driver::echo();
    driver.feed(b"BAD\r\n\r\n");
    for _ in 0..limits.linger_pace.total_max_ms / 100 {
        assert!(driver.is_lingering(), "an upload that goes on is read");
        driver.pass(100).feed(&[b'x'; 100_000]);
    }
    driver.pass(1);
    assert!(driver.is_closed(), "but not for ever");
}

#[test]
fn half_close_after_a_request_still_gets_the_answer() {
    let mut driver = blocking();
    driver.feed(GET).feed(GET).eof();
    driver.complete().complete();
    assert_eq!(driver.statuses(), [200, 200]);
    assert!(driver.is_closed());
}

#[test]
fn half_close_between_requests_closes_at_once() {
    let mut driver = Driver::echo();
    driver.feed(GET).eof();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Client), 1);
    let mut driver = Driver::echo();
    driver.eof();
    assert!(driver.is_closed() && driver.output.is_empty());
}

#[test]
fn an_end_in_the_middle_of_a_request_is_no_request() {
    let post = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let chunked =
        b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for request in [GET, post, chunked] {
        for cut in 1..request.len() {
            let mut driver = Driver::echo();
            driver.feed(&request[..cut]).eof();
            assert!(driver.seen.is_empty(), "cut at {cut}");
            if !driver.is_closed() {
                driver.pass(Limits::default().linger_pace.total_max_ms);
            }
            assert!(driver.is_closed(), "cut at {cut}");
            let statuses = driver.statuses();
            assert!(
                statuses.is_empty() || statuses == [400],
                "{statuses:?} at {cut}"
            );
        }
    }
}

#[test]
fn a_peer_that_vanishes_leaves_nothing_behind() {
    let mut driver = Driver::echo();
    driver.feed(GET).feed(b"GET /b HT").peer_gone();
    assert!(driver.is_closed());

    let mut driver = Driver::echo();
    driver.hold_output = true;
    driver.feed(GET).peer_gone();
    assert!(driver.is_closed());

    let mut driver = Driver::echo();
    driver.feed(b"BAD\r\n\r\n").peer_gone();
    assert!(driver.is_closed());

    // While a worker has the exchange: closed now or when it comes back.
    let mut driver = blocking();
    driver.feed(GET).peer_gone();
    if !driver.is_closed() {
        driver.complete();
    }
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::Vanished), 1);
}

#[test]
fn expired_too_early_changes_nothing() {
    let request = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let mut driver = Driver::echo();
    for byte in request {
        driver.expire();
        driver.feed(&[*byte]);
    }
    driver.expire();
    assert_eq!(driver.statuses(), [200]);
    driver.hold_output = true;
    driver.feed(GET).expire();
    driver.release_output().expire();
    assert_eq!(driver.statuses(), [200, 200]);
    assert!(!driver.is_closed());
}

#[test]
fn idle_means_between_requests_with_nothing_received() {
    let mut driver = Driver::echo();
    assert!(driver.is_idle(), "a new connection");
    driver.feed(b"G");
    assert!(!driver.is_idle(), "part of a head");
    driver.feed(&GET[1..]);
    assert!(driver.is_idle(), "answered");
    driver.hold_output = true;
    driver.feed(GET);
    assert!(!driver.is_idle(), "an answer on its way");
    driver.release_output();
    assert!(driver.is_idle());
    driver.feed(b"BAD\r\n\r\n");
    assert!(!driver.is_idle(), "lingering");
    let mut driver = blocking();
    driver.feed(GET);
    assert!(!driver.is_idle(), "a worker has it");
}

#[test]
fn draining_closes_what_is_idle_at_once() {
    let mut driver = Driver::echo();
    driver.draining();
    assert!(driver.is_closed() && driver.output.is_empty());
    let mut driver = Driver::echo();
    driver.feed(GET).draining();
    assert!(driver.is_closed());
    assert_eq!(driver.statuses(), [200]);
    assert_eq!(driver.closes(CloseReason::Drained), 1);
}

#[test]
fn draining_finishes_what_was_accepted() {
    // At the worker.
    let mut driver = blocking();
    driver.feed(GET).draining();
    assert!(!driver.is_closed());
    driver.complete();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.answers()[0].closes(), "says Connection: close");
    assert!(driver.is_closed());

    // Part of a head, part of a body: it has begun.
    for request in [
        &b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"[..],
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let mut driver = Driver::echo();
        let (begun, rest) = request.split_at(request.len() - 3);
        driver.feed(begun).draining();
        assert!(!driver.is_closed());
        driver.feed(rest);
        assert_eq!(driver.statuses(), [200]);
        assert!(driver.answers()[0].closes() && driver.is_closed());
    }

    // An answer on its way was promised before: it leaves whole.
    let mut driver = Driver::echo();
    driver.hold_output = true;
    driver.feed(GET).draining();
    driver.progress(5).release_output();
    assert_eq!(driver.statuses(), [200]);
    assert!(driver.is_closed());
}

#[test]
fn draining_answers_every_pipelined_request_that_has_arrived() {
    let mut driver = blocking();
    driver.feed(&GET.repeat(3)).draining();
    for _ in 0..3 {
        driver.complete();
    }
    let answers = driver.answers();
    let closes: Vec<bool> = answers.iter().map(|a| a.closes()).collect();
    assert_eq!(closes, [false, false, true], "only the last says close");
    assert!(driver.is_closed());
}

#[test]
fn draining_while_lingering_or_twice_is_harmless() {
    let mut driver = blocking();
    driver.feed(GET).draining().draining().complete();
    assert!(driver.is_closed());
    let mut driver = Driver::echo();
    driver.feed(b"BAD\r\n\r\n").draining();
    assert_eq!(driver.statuses(), [400]);
    driver.pass(Limits::default().linger_pace.total_max_ms);
    assert!(driver.is_closed());
}

#[test]
fn a_refused_connection_reads_its_503() {
    let mut driver = Driver::echo();
    driver.refuse(CloseReason::Refused);
    let answers = driver.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].status, 503);
    assert!(answers[0].closes());
    if !driver.is_closed() {
        driver.feed(GET).eof();
    }
    assert!(driver.is_closed());
    assert_eq!(driver.answers().len(), 1, "no request is read");
    assert_eq!(driver.closes(CloseReason::Refused), 1);
}

#[test]
fn an_abort_closes_without_an_answer_and_is_counted() {
    for reason in [
        CloseReason::Evicted,
        CloseReason::OverCapacity,
        CloseReason::Failed,
    ] {
        let mut driver = Driver::echo();
        driver.abort(reason);
        assert!(driver.is_closed() && driver.output.is_empty());
        assert_eq!(driver.closes(reason), 1);
    }
    // In the middle of an answer: a file that changed while it was being sent.
    let mut driver = Driver::echo();
    driver.hold_output = true;
    driver.feed(GET).abort(CloseReason::Failed);
    assert!(driver.is_closed());
}

#[test]
fn counters_agree_with_what_happened() {
    let mut driver = Driver::echo();
    driver.feed(&GET.repeat(3));
    driver.feed(b"BREW / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let counts: Vec<u64> = driver.counters.answers.iter().map(|c| c.value()).collect();
    assert_eq!(counts, [0, 3, 0, 0, 1]);
    assert_eq!(driver.counters.requests(), 4);
}
