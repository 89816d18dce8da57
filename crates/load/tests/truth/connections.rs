//! Connections: as many as the stub counts, and their time divided as it is spent.

use loadline_stub::{Latency, StubOptions};

use crate::protocol::{self, HANDSHAKE_NS, Protocol};
use crate::run::{self, MS, US, closed};

/// What each response waits for where handshakes wait, too.
const RESPONSE_NS: u64 = 60 * MS;

#[test]
fn counts_are_those_of_the_stub() {
    let _turn = run::turn();
    let requests = 300;
    for (requests_per_connection, resumes) in [
        (None, false),
        (Some(1), false),
        (Some(1), true),
        (Some(10), false),
    ] {
        for body_bytes in [13, 100_000] {
            let stub = Protocol::Http1Tls.stub(StubOptions {
                body: vec![b'x'; body_bytes],
                ..StubOptions::default()
            });
            let mut plan = Protocol::Http1Tls.spoken(closed(stub.address(), 6, requests), 1);
            if resumes {
                plan.connectors = vec![Some(protocol::resuming())];
            }
            plan.requests_per_connection = requests_per_connection;
            plan.mix.expectations[0].length = Some(body_bytes as u64);
            let outcome = run::run(plan, stub);
            let tally = &outcome.record.everything;
            let counts = &outcome.report.counts;
            assert_eq!((tally.good, tally.errors_total()), (requests, 0));
            assert_eq!((counts.requests, counts.answers), (requests, requests));
            assert_eq!(tally.connections, counts.connections);
            let handshakes = tally.handshakes_full + tally.handshakes_resumed;
            assert_eq!(handshakes, tally.connections);
            // The first of each client is a full one; the client of the run before has tickets left.
            match resumes {
                true => assert!(tally.handshakes_full <= 6, "{tally:?}"),
                false => assert_eq!(tally.handshakes_resumed, 0),
            }
            let results = outcome.results();
            assert_eq!(results.handshake.count(), handshakes);
            assert_eq!(results.connect.count(), tally.connections);
            assert_eq!(results.first_byte.count(), requests);
        }
    }
}

/// At the same time over each protocol: they mostly wait, and no time that one adds to another is
/// bounded.
#[test]
fn a_connections_time_is_divided_where_the_stub_waits() {
    let _turn = run::turn();
    std::thread::scope(|scope| {
        for protocol in Protocol::ALL {
            scope.spawn(move || check_division(protocol));
        }
    });
}

/// Each delay is in its own part, however busy the machine is; and since the parts together are no longer than
/// the whole, it is in no other part, unless the machine adds as much as a delay to every request.
fn check_division(protocol: Protocol) {
    let requests = 10;
    let stub = protocol.stub_of_slow_handshakes(StubOptions {
        latency: Latency::Constant { ns: RESPONSE_NS },
        ..StubOptions::default()
    });
    let mut plan = protocol.spoken(closed(stub.address(), 1, requests), 1);
    plan.requests_per_connection = Some(1);
    let outcome = run::run(plan, stub);
    let results = outcome.results();
    let handshakes = if protocol.is_secure() { requests } else { 0 };
    for (name, part, count, least_ns) in [
        ("connect", &results.connect, requests, 0),
        ("handshake", &results.handshake, handshakes, HANDSHAKE_NS),
        ("first byte", &results.first_byte, requests, RESPONSE_NS),
    ] {
        assert_eq!(part.count(), count, "{protocol:?}: {name}");
        // Three digits of a time are kept, and the stub's stamps are of another clock than its delays.
        let least_us = least_ns / US * 99 / 100;
        let is_right = part.min_us().is_none_or(|min_us| min_us >= least_us);
        assert!(is_right, "{protocol:?}: {name}: {:?} us", part.min_us());
    }
    let parts = [&results.connect, &results.handshake, &results.first_byte];
    let parts_us = parts.map(|part| part.mean_us().unwrap_or(0.0));
    let whole_us = results.latency.mean_us().unwrap();
    assert!(
        parts_us.iter().sum::<f64>() <= whole_us * 1.005,
        "{protocol:?}: connect, handshake and first byte take {parts_us:?} us of {whole_us} us"
    );
}
