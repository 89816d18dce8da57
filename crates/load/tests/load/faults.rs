//! Each kind of error is counted as what it is, exactly: every n-th answer of a stub is wrong, and the
//! counts are those of arithmetic.

use loadline_load::{Arrivals, Loop, Overflow, Plan};
use loadline_record::{ErrorKind, Tally};
use loadline_stub::{
    Closing, ConnectionFault, Every, Fault, Framing, Latency, Listening, Malformed, Report, Stub,
    StubOptions,
};
use sha2::{Digest, Sha256};

use crate::stubbed::{self, MS, SECOND, closed, open, run_from};

const REQUESTS: u64 = 300;
const EVERY: u64 = 7;
const HITS: u64 = REQUESTS / EVERY;
const CONNECTIONS: u32 = 6;

fn options(fault: Fault) -> StubOptions {
    StubOptions {
        faults: vec![Every {
            every: EVERY,
            fault,
        }],
        ..StubOptions::default()
    }
}

/// Expects exactly the content of a stub.
fn with_expectation(mut plan: Plan) -> Plan {
    let body = StubOptions::default().body;
    let expectation = &mut plan.mix.expectations[0];
    expectation.length = Some(body.len() as u64);
    expectation.sha256 = Some(Sha256::digest(&body).into());
    plan
}

fn run(plan: Plan, stub: Stub, engine_threads: u32) -> (Tally, Report) {
    let outcome = run_from(plan, stub, engine_threads, |ready_ns| ready_ns);
    (outcome.results().tally.clone(), outcome.report)
}

/// Runs `fault` in every kind of loop: all of `hits` and nothing else is counted as `kind`.
fn check(options: &StubOptions, kind: ErrorKind, is_complete: bool) {
    let name = format!("{:?}", options.faults);
    for engine_threads in [1, 2] {
        for requests_per_connection in [None, Some(1), Some(10)] {
            let stub = stubbed::stub(options.clone());
            let mut plan = with_expectation(closed(stub.address(), CONNECTIONS, REQUESTS));
            plan.requests_per_connection = requests_per_connection;
            let (tally, report) = run(plan, stub, engine_threads);
            assert_counts(&name, &tally, &report, kind, is_complete);
        }
    }
    let stub = stubbed::stub(options.clone());
    let (rate, duration_ns) = (3000.0, REQUESTS * SECOND / 3000);
    let plan = open(
        stub.address(),
        CONNECTIONS,
        rate,
        duration_ns,
        Arrivals::Constant,
    );
    let (tally, report) = run(with_expectation(plan), stub, 1);
    assert_counts(&name, &tally, &report, kind, is_complete);
}

fn assert_counts(name: &str, tally: &Tally, report: &Report, kind: ErrorKind, is_complete: bool) {
    let message = format!("{name}: {tally:?} {:?}", report.counts);
    assert_eq!(report.counts.requests, REQUESTS, "{message}");
    assert_eq!(report.counts.faults, [HITS], "{message}");
    assert_eq!(
        (tally.offered, tally.sent),
        (REQUESTS, REQUESTS),
        "{message}"
    );
    assert_eq!(tally.errors_of(kind), HITS, "{message}");
    assert_eq!(tally.errors_total(), HITS, "{message}");
    assert_eq!(tally.good, REQUESTS - HITS, "{message}");
    let incomplete = if is_complete { 0 } else { HITS };
    assert_eq!(tally.completed, REQUESTS - incomplete, "{message}");
    assert_eq!(tally.unfinished, 0, "{message}");
    // One that a server closed is opened again at once; the run may end before that is noticed.
    let unnoticed = report.counts.connections.checked_sub(tally.connections);
    assert!(
        unnoticed <= Some(u64::from(CONNECTIONS)) && unnoticed.is_some(),
        "{message}"
    );
}

#[test]
fn answers_that_break_off() {
    for (fault, kind) in [
        (Fault::Close, ErrorKind::ClosedEarly),
        (Fault::Reset, ErrorKind::Reset),
        (Fault::CutHead, ErrorKind::ShortBody),
        (Fault::CutBody, ErrorKind::ShortBody),
        (Fault::ResetInBody, ErrorKind::Reset),
    ] {
        check(&options(fault), kind, false);
    }
    for (framing, is_complete) in [(Framing::Chunked, false), (Framing::UntilClose, true)] {
        // Content that ends with the connection is short by what was expected alone.
        let cut = StubOptions {
            framing,
            ..options(Fault::CutBody)
        };
        check(&cut, ErrorKind::ShortBody, is_complete);
    }
}

#[test]
fn answers_that_are_not_the_expected_ones() {
    for (fault, kind) in [
        (Fault::Status(302), ErrorKind::OtherStatus),
        (Fault::Status(404), ErrorKind::Status4xx),
        (Fault::Status(503), ErrorKind::Status5xx),
        (Fault::Content, ErrorKind::WrongContent),
        (Fault::Longer { bytes: 1 }, ErrorKind::LongBody),
        (Fault::Shorter { bytes: 1 }, ErrorKind::ShortBody),
        (Fault::Excess { bytes: 1 }, ErrorKind::LongBody),
    ] {
        check(&options(fault), kind, true);
    }
    let chunked = StubOptions {
        framing: Framing::Chunked,
        ..options(Fault::Content)
    };
    check(&chunked, ErrorKind::WrongContent, true);
}

#[test]
fn answers_that_are_not_http() {
    for &malformed in Malformed::all() {
        let options = options(Fault::Malformed(malformed));
        check(&options, ErrorKind::Malformed, false);
    }
}

/// Answers that are late, or never come. The times are far enough from each other for a machine
/// that is busy.
#[test]
fn answers_that_come_late_or_never() {
    let (requests, every) = (40, 20);
    for (fault, kind, completed) in [
        (Fault::Late { by_ns: 1200 * MS }, ErrorKind::Late, 40),
        (Fault::Never, ErrorKind::Timeout, 38),
    ] {
        let stub = stubbed::stub(StubOptions {
            faults: vec![Every { every, fault }],
            ..StubOptions::default()
        });
        let mut plan = closed(stub.address(), 4, requests);
        match kind {
            ErrorKind::Timeout => plan.timeout_ns = 1000 * MS,
            _ => plan.deadline_ns = Some(1000 * MS),
        }
        let (tally, report) = run(plan, stub, 1);
        assert_eq!(report.counts.faults, [2]);
        assert_eq!(tally.errors_of(kind), 2, "{tally:?}");
        assert_eq!(tally.errors_total(), 2, "{tally:?}");
        assert_eq!((tally.completed, tally.good), (completed, 38), "{tally:?}");
        assert_eq!(report.counts.missed, requests - completed);
    }
}

#[test]
fn connections_that_do_not_come_to_be() {
    for (listening, kind) in [
        (Listening::Refusing, ErrorKind::Refused),
        (Listening::Deaf, ErrorKind::ConnectTimeout),
    ] {
        let stub = stubbed::stub(StubOptions {
            listening,
            ..StubOptions::default()
        });
        let mut plan = closed(stub.address(), 3, 9);
        plan.requests_per_connection = Some(1);
        plan.timeout_ns = 200 * MS;
        let (tally, report) = run(plan, stub, 1);
        assert_eq!((tally.errors_of(kind), tally.errors_total()), (9, 9));
        assert_eq!((tally.sent, tally.connections), (0, 0));
        assert_eq!(report.counts.connections, 0);
    }
}

#[test]
fn connections_that_break_at_once() {
    for (fault, kind) in [
        (ConnectionFault::Close, ErrorKind::ClosedEarly),
        (ConnectionFault::Reset, ErrorKind::Reset),
    ] {
        let rule = Every {
            every: EVERY,
            fault,
        };
        let stub = stubbed::stub(StubOptions {
            connection_faults: vec![rule],
            ..StubOptions::default()
        });
        let mut plan = closed(stub.address(), CONNECTIONS, REQUESTS);
        plan.requests_per_connection = Some(1);
        let (tally, report) = run(plan, stub, 1);
        assert_eq!(report.counts.connections, REQUESTS);
        // One that is reset before the client has looked at it never came to be.
        assert!((REQUESTS - HITS..=REQUESTS).contains(&tally.connections));
        assert_eq!(report.counts.connection_faults, [HITS]);
        assert_eq!(report.counts.requests, REQUESTS - HITS);
        assert_eq!((tally.errors_of(kind), tally.errors_total()), (HITS, HITS));
        assert_eq!(tally.good, REQUESTS - HITS);
    }
}

/// Requests for which nobody is free, dropped: with one connection that is busy for the whole run,
/// all but the first.
#[test]
fn requests_that_are_dropped() {
    let stub = stubbed::stub(StubOptions {
        latency: Latency::Constant { ns: 5 * SECOND },
        ..StubOptions::default()
    });
    let mut plan = open(stub.address(), 1, 1000.0, 300 * MS, Arrivals::Poisson);
    if let Loop::Open { overflow, .. } = &mut plan.load {
        *overflow = Overflow::Drop;
    }
    let (tally, report) = run(plan, stub, 1);
    assert_eq!((tally.offered, tally.sent, tally.good), (300, 1, 1));
    assert_eq!(tally.errors_of(ErrorKind::Dropped), 299);
    assert_eq!(report.counts.requests, 1);
}

/// Who closes, and who does not, has no part in what is counted as an error.
#[test]
fn closing_in_good_order_is_no_error() {
    for (framing, closing, requests_per_connection, connections) in [
        (Framing::Length, Closing::Announced, None, REQUESTS),
        (Framing::Chunked, Closing::Announced, None, REQUESTS),
        (Framing::UntilClose, Closing::AsAsked, None, REQUESTS),
        (Framing::Length, Closing::AsAsked, Some(10), REQUESTS / 10),
        (Framing::Length, Closing::Ignored, Some(10), REQUESTS / 10),
        (Framing::Chunked, Closing::Ignored, Some(1), REQUESTS),
    ] {
        let stub = stubbed::stub(StubOptions {
            framing,
            closing,
            ..StubOptions::default()
        });
        let mut plan = with_expectation(closed(stub.address(), 6, REQUESTS));
        plan.requests_per_connection = requests_per_connection;
        let (tally, report) = run(plan, stub, 1);
        let message = format!("{framing:?} {closing:?} {tally:?} {:?}", report.counts);
        assert_eq!(
            (tally.good, tally.errors_total()),
            (REQUESTS, 0),
            "{message}"
        );
        assert_eq!(report.counts.requests, REQUESTS, "{message}");
        // Each of the clients may have one that it did not use up, or not at all.
        let opened = connections..=connections + 6;
        assert!(opened.contains(&tally.connections), "{message}");
    }
}

/// A server that closes without a word races with the next request: what is lost is lost, but
/// nothing is counted twice or forgotten.
#[test]
fn closing_without_a_word_loses_nothing_from_the_counts() {
    let stub = stubbed::stub(StubOptions {
        closing: Closing::Silent,
        ..StubOptions::default()
    });
    let plan = closed(stub.address(), CONNECTIONS, REQUESTS);
    let (tally, report) = run(plan, stub, 2);
    let lost = tally.errors_of(ErrorKind::ClosedEarly) + tally.errors_of(ErrorKind::Reset);
    assert_eq!(tally.errors_total(), lost, "{tally:?}");
    assert_eq!(tally.good + lost, REQUESTS, "{tally:?}");
    assert_eq!(tally.good, report.counts.answers, "{tally:?}");
}
