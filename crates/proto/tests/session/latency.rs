//! When a request's latency ends, and where it is counted.

use std::sync::Arc;

use crate::drive::Driver;
use loadline_proto::latency::UNMEASURED;
use loadline_proto::{AccessFormat, AccessLog, Body, Context, Exchange, Outcome, SessionConfig};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Listener, mount, count and sum in microseconds of what was counted.
fn counted(driver: &Driver<'_>) -> Vec<(usize, usize, u64, u64)> {
    let mut all = Vec::new();
    driver.counters.latencies.add_to(&mut all);
    let series = all.iter();
    series
        .map(|(listener, mount, counts)| (*listener, *mount, counts.count(), counts.sum_us))
        .collect()
}

#[test]
fn an_answer_in_the_same_turn_counts_until_its_end() {
    let mut driver = Driver::echo();
    driver.counters.latencies.begin_turn(1_000);
    driver.feed(REQUEST).feed(REQUEST);
    assert_eq!(counted(&driver), []);
    driver.counters.latencies.settle(1_030);
    assert_eq!(counted(&driver), [(0, 0, 2, 60)]);
}

/// A pool in overload seemed to be as quick as an idle one.
#[test]
fn what_a_request_had_waited_is_in_its_latency_and_in_the_log() {
    let mut driver = Driver::echo();
    driver.counters.latencies.begin_turn(1_000);
    driver.counters.latencies.has_waited(400);
    let mut log = AccessLog::new(AccessFormat::Json);
    log.tick(1_000, 1_000_000_000_000_000);
    driver.log = Some(log);
    driver.feed(REQUEST);
    driver.counters.latencies.settle(1_030);
    assert_eq!(counted(&driver), [(0, 0, 1, 430)]);
    let lines = std::mem::take(driver.log.as_mut().unwrap().lines());
    let line = String::from_utf8(lines).unwrap();
    let time = "{\"time\":\"2001-09-09T01:46:39.999600Z\"";
    assert!(line.starts_with(time), "{line}");
    assert!(line.ends_with(",\"duration_us\":400}\n"), "{line}");
}

#[test]
fn a_blocking_step_counts_until_it_is_back() {
    let config = Arc::new(SessionConfig {
        listener: 2,
        ..SessionConfig::default()
    });
    let waits = |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.mount = 1;
        Outcome::Blocking
    };
    let mut driver = Driver::new(&config, waits);
    driver.hold_blocking = true;
    driver.counters.latencies.begin_turn(1_000);
    driver.feed(REQUEST);
    driver.counters.latencies.begin_turn(21_000);
    driver.complete();
    assert_eq!(counted(&driver), [(2, 1, 1, 20_000)]);
}

/// It counted for the listener of whichever request had its memory before.
#[test]
fn what_is_refused_without_a_head_counts_for_its_listener() {
    let config = Arc::new(SessionConfig {
        listener: 2,
        ..SessionConfig::default()
    });
    let handle = |_: &mut Exchange, _: &mut Context<'_>| Outcome::Ready;
    let mut driver = Driver::new(&config, handle);
    driver.counters.latencies.begin_turn(1_000);
    driver.feed(b"\x16\x03\x01\x00");
    assert_eq!(driver.statuses(), [400]);
    driver.counters.latencies.settle(1_030);
    assert_eq!(counted(&driver), [(2, 0, 1, 30)]);
}

/// With a log and without one: what is too large to be copied counts until it has left.
#[test]
fn a_large_answer_counts_until_it_has_left() {
    let bytes: Arc<[u8]> = vec![b'x'; 1 << 20].into();
    let large = |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.response.body = Body::Shared {
            start: 0,
            end: bytes.len(),
            bytes: Arc::clone(&bytes),
        };
        Outcome::Ready
    };
    for format in [None, Some(AccessFormat::Json)] {
        let mut driver = Driver::new(&Arc::default(), &large);
        driver.hold_output = true;
        driver.counters.latencies.begin_turn(1_000);
        driver.log = format.map(AccessLog::new);
        if let Some(log) = &mut driver.log {
            log.tick(1_000, 0);
        }
        driver.feed(REQUEST);
        driver.counters.latencies.begin_turn(5_000);
        assert_eq!(counted(&driver), [], "{format:?}");
        driver.release_output();
        assert_eq!(counted(&driver), [(0, 0, 1, 4_000)], "{format:?}");
    }
}

#[test]
fn pages_of_the_servers_own_and_what_is_refused_are_not_counted() {
    for is_own in [true, false] {
        let step = |exchange: &mut Exchange, _: &mut Context<'_>| {
            match is_own {
                true => exchange.mount = UNMEASURED,
                false => exchange.refuse(1),
            }
            Outcome::Ready
        };
        let mut driver = Driver::new(&Arc::default(), step);
        driver.counters.latencies.begin_turn(1_000);
        driver.feed(REQUEST);
        driver.counters.latencies.settle(1_030);
        assert_eq!(counted(&driver), []);
        assert_eq!(driver.counters.refusals.value(), u64::from(!is_own));
    }
}
