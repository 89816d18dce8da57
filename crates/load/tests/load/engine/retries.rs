//! Requests of an open loop that are tried again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_load::{Http2Plan, Overflow, Plan, Retries};
use loadline_record::{ErrorKind, Tally};
use loadline_stub::{Every, Fault, Listening, Stub, StubOptions};

use crate::engine::open::open;
use crate::engine::run::{MS, SECOND, closed, run};
use crate::engine::server::{Act, Server, answer};

/// Requests of a run that ends with them.
const REQUESTS: u64 = 100;

/// They are due at 1000/s, and each may be tried again twice.
fn plan(address: SocketAddr, connections: u32) -> Plan {
    let clients = closed(address, connections, 0);
    let mut plan = open(clients, 1000.0, 3600 * SECOND, Overflow::Queue);
    plan.requests_max = Some(REQUESTS);
    plan.retries = Some(Retries {
        count: 2,
        pause_ns: 10 * MS,
        retry_after_ns_max: 0,
    });
    plan
}

fn check(tally: &Tally, good: u64) {
    assert_eq!((tally.offered, tally.unfinished), (REQUESTS, 0));
    assert_eq!(tally.good, good, "{tally:?}");
    assert_eq!(tally.errors_total(), REQUESTS - good, "{tally:?}");
}

/// The first requests that come to it, over all connections, are treated otherwise.
fn first_ones(count: u64, act: Act) -> Server {
    let so_far = AtomicU64::new(0);
    Server::start(move |_, _| match so_far.fetch_add(1, Ordering::SeqCst) {
        number if number < count => act.clone(),
        _ => Act::Send(answer(200, "hello")),
    })
}

#[test]
fn each_request_has_three_attempts_and_one_outcome() {
    let fault = Fault::Status(503);
    let stub = Stub::start(StubOptions {
        faults: vec![Every { every: 1, fault }],
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    for (connections, requests_per_connection) in [(20, None), (1, None), (20, Some(1))] {
        let before = stub.counts().requests;
        let mut plan = plan(stub.address(), connections);
        plan.requests_per_connection = requests_per_connection;
        let outcome = run(&plan);
        let tally = outcome.tally();
        check(&tally, 0);
        assert_eq!(tally.errors_of(ErrorKind::Status5xx), REQUESTS);
        assert_eq!((tally.sent, tally.retries), (REQUESTS, 2 * REQUESTS));
        assert_eq!(tally.retried_total(), 2 * REQUESTS);
        assert_eq!(tally.completed, 3 * REQUESTS);
        assert_eq!(stub.counts().requests - before, 3 * REQUESTS);
        let latency = outcome.histogram(|interval| &interval.latency);
        let service = outcome.histogram(|interval| &interval.service);
        assert_eq!((latency.len(), service.len()), (REQUESTS, 3 * REQUESTS));
        // Two pauses of at least 5 and 10 ms are in each.
        assert!(latency.min() >= 14_900, "{} us", latency.min());
    }
}

#[test]
fn what_succeeds_later_is_good() {
    let server = first_ones(30, Act::Send(answer(503, "busy")));
    let mut plan = plan(server.address, 20);
    // Longer than the first thirty take: none of them fails twice.
    plan.retries = Some(Retries {
        pause_ns: 400 * MS,
        ..plan.retries.unwrap()
    });
    let tally = run(&plan).tally();
    check(&tally, REQUESTS);
    assert_eq!((tally.retries, tally.retried_total()), (30, 30));
    assert_eq!(server.requests(), tally.sent + tally.retries);
    assert_eq!(tally.status_codes, [(200, REQUESTS), (503, 30)]);
}

#[test]
fn what_was_not_answered_in_time_is_tried_again() {
    let server = first_ones(3, Act::Hang);
    let mut plan = plan(server.address, 20);
    plan.timeout_ns = SECOND;
    let outcome = run(&plan);
    let tally = outcome.tally();
    check(&tally, REQUESTS);
    let timeouts = tally.retried[ErrorKind::Timeout as usize];
    assert!(timeouts >= 3 && tally.retries == timeouts, "{tally:?}");
    let failures = outcome.histogram(|interval| &interval.failure);
    assert_eq!(failures.len(), timeouts);
    // From when the first attempt was due.
    let latency = outcome.histogram(|interval| &interval.latency);
    assert!(latency.max() >= 1_000_000, "{} us", latency.max());
}

#[test]
fn what_cannot_pass_is_not_tried_again() {
    for (status, kind) in [(404, ErrorKind::Status4xx), (501, ErrorKind::Status5xx)] {
        let server = Server::start(move |_, _| Act::Send(answer(status, "no")));
        let tally = run(&plan(server.address, 20)).tally();
        check(&tally, 0);
        assert_eq!(tally.errors_of(kind), REQUESTS);
        assert_eq!((tally.retries, tally.retried_total()), (0, 0));
    }
}

#[test]
fn attempts_to_connect_are_attempts() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let mut plan = plan(nobody.unwrap().address(), 5);
    plan.requests_per_connection = Some(1);
    let tally = run(&plan).tally();
    check(&tally, 0);
    assert_eq!(tally.errors_of(ErrorKind::Refused), REQUESTS);
    assert_eq!(tally.retried[ErrorKind::Refused as usize], 2 * REQUESTS);
    // Nothing was sent.
    assert_eq!((tally.sent, tally.retries), (0, 0));
    assert_eq!(tally.not_accepted, REQUESTS);
}

/// Their later attempts were counted as retries of requests that were never sent, for which the client
/// was blamed.
#[test]
fn a_request_whose_first_attempts_were_not_sent_is_sent_once() {
    let stub = Stub::start(StubOptions::default()).unwrap();
    // One client in three has a source address that is not ours.
    let sources = ["192.0.2.1", "127.0.0.2", "127.0.0.3"];
    for is_http2 in [false, true] {
        let before = stub.counts().requests;
        let mut plan = plan(stub.address(), 3);
        plan.requests_per_connection = Some(1);
        plan.sources = sources.map(|source| source.parse().unwrap()).to_vec();
        plan.http2 = is_http2.then(|| Http2Plan::new(&plan.mix, 1, Vec::new()));
        let tally = run(&plan).tally();
        let good = stub.counts().requests - before;
        check(&tally, good);
        assert_eq!((tally.sent, tally.retries), (good, 0));
        // Some succeeded after an attempt that failed.
        assert!(
            tally.retried_total() > 2 * tally.errors_total(),
            "{tally:?}"
        );
    }
}

/// The same for a tenth of a second, with a pause before the next attempt that is longer.
fn waiting_at_the_end(mut plan: Plan) -> Plan {
    plan.requests_max = None;
    plan.phases[0].end_ns = 100 * MS;
    plan.retries = Some(Retries {
        pause_ns: 60 * SECOND,
        ..plan.retries.unwrap()
    });
    plan
}

#[test]
fn requests_without_a_connection_that_wait_at_the_end_were_not_accepted() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let nobody = nobody.unwrap();
    let plan = waiting_at_the_end(plan(nobody.address(), 5));
    let tally = run(&plan).tally();
    assert_eq!((tally.offered, tally.sent), (100, 0));
    let waiting = tally.retried_total();
    assert!(waiting > 0 && tally.not_accepted >= waiting, "{tally:?}");
}

#[test]
fn a_retry_after_is_waited_for_and_the_goal_counts_from_then() {
    let refused = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n";
    let server = first_ones(30, Act::Send(refused.to_vec()));
    let mut plan = plan(server.address, 20);
    let pause_ns = 2200 * MS;
    plan.retries = Some(Retries {
        retry_after_ns_max: pause_ns,
        ..plan.retries.unwrap()
    });
    plan.latency_goal_ns = Some(2000 * MS);
    let outcome = run(&plan);
    let tally = outcome.tally();
    check(&tally, REQUESTS);
    let latency = outcome.histogram(|interval| &interval.latency);
    let waited = latency.len() - latency.count_between(0, pause_ns / 1000 - 10_000);
    assert!(waited >= 30, "{waited}");
    assert_eq!(tally.in_goal, REQUESTS);
    plan.latency_goal_ns = Some(1);
    assert_eq!(run(&plan).tally().in_goal, 0);
}

#[test]
fn what_waits_at_the_end_is_unfinished() {
    let server = Server::start(|_, _| Act::Send(answer(503, "busy")));
    let plan = waiting_at_the_end(plan(server.address, 20));
    let tally = run(&plan).tally();
    assert_eq!(tally.offered, 100);
    assert_eq!(tally.errors_total() + tally.unfinished, 100, "{tally:?}");
    assert_eq!((tally.retries, tally.not_accepted), (0, 0));
    assert!(tally.unfinished >= tally.retried_total() && tally.retried_total() > 0);
}
