//! What a connection comes to, for the journal of connections.

use crate::drive::{Driver, echo};
use loadline_proto::{CloseReason, ConnectionRecord, Limits};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// A driver whose session keeps a record.
fn recorded<'h>() -> Driver<'h> {
    let mut driver = Driver::new(&crate::drive::config(Limits::default()), echo);
    let record = Box::new(ConnectionRecord::new(1, None, 0));
    if let Some(session) = &mut driver.session {
        session.keep_record(Some(record));
    }
    driver
}

fn comes_to(driver: &Driver<'_>, requests: u64, reason: CloseReason) {
    let record = driver.record.as_deref().expect("a record");
    let counters = &driver.counters;
    let seen = (
        record.requests,
        record.bytes_in,
        record.bytes_out,
        record.reason,
    );
    let (bytes_in, bytes_out) = (counters.bytes_in.value(), counters.bytes_out.value());
    assert_eq!(seen, (requests, bytes_in, bytes_out, reason));
    assert_eq!(driver.closes(reason), 1);
    assert_eq!(bytes_out, driver.output.len() as u64);
}

#[test]
fn a_record_says_what_the_counters_say() {
    let mut driver = recorded();
    driver.feed(GET).drip(GET).feed(&GET.repeat(3)).eof();
    comes_to(&driver, 5, CloseReason::Client);
    let mut driver = recorded();
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    comes_to(&driver, 1, CloseReason::Finished);
    let mut driver = recorded();
    driver.feed(GET).pass(20_000);
    comes_to(&driver, 1, CloseReason::Idle);
    let mut driver = recorded();
    driver.feed(GET).feed(&GET[..3]).eof();
    comes_to(&driver, 1, CloseReason::Vanished);
    let mut driver = recorded();
    driver.feed(b"G@T / HTTP/1.1\r\n\r\n").eof();
    comes_to(&driver, 1, CloseReason::BadRequest);
    let mut driver = recorded();
    driver.feed(&GET[..3]).pass(60_000);
    comes_to(&driver, 1, CloseReason::Slow);
}

#[test]
fn a_refusal_answers_no_request() {
    for reason in [CloseReason::Refused, CloseReason::RefusedMemory] {
        let mut driver = recorded();
        driver.refuse(reason).eof();
        comes_to(&driver, 0, reason);
    }
}

#[test]
fn what_left_before_the_end_counts() {
    let mut driver = recorded();
    driver.hold_output = true;
    driver.feed(GET).progress(10);
    driver.peer_gone();
    let record = driver.record.as_deref().expect("a record");
    assert_eq!((record.requests, record.bytes_out), (1, 10));
    assert_eq!(record.reason, CloseReason::Vanished);
}
