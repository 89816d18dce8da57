//! Assertions: what is understood, what is refused in which words, and what holds of which record.

use loadline_record::{
    Assertion, Distribution, ErrorKind, HTTP2_GROUP, Results, TrialRecord, latencies,
};
use proptest::prelude::*;

use crate::records;

fn check(text: &str, record: &TrialRecord) -> (bool, String) {
    let assertion: Assertion = text.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(assertion.text(), text.trim());
    let finding = assertion.check(record);
    (finding.holds, finding.line)
}

#[test]
fn what_holds_and_what_does_not() {
    let record = records::open();
    let table = [
        ("p50 < 1300us", true),
        ("p50 < 1.2ms", false),
        ("p99 < 50ms", true),
        ("p99<=3.5ms", false),
        ("latency p99 > 3.5 ms", true),
        ("service p99 < 2.7ms", true),
        ("p97.5 < 3.1ms", true),
        ("median < 1.3ms", true),
        ("mean < 1.5ms", true),
        ("service mean < 1.3ms", true),
        ("first-byte max < 5ms", true),
        ("first_byte min >= 720us", true),
        ("stdev < 0.5ms", false),
        ("max < 8ms", true),
        ("lag p99 < 100us", true),
        ("lag p99 < 10us", false),
        ("rate >= 1998", true),
        ("rate >= 2k", false),
        ("completed >= 1_998/s", true),
        ("good < 1998.1", true),
        ("offered >= 2000", true),
        ("sent/offered >= 99%", true),
        ("sent/offered >= 0.99", true),
        ("completed/offered == 1", false),
        ("good/completed > 99.9%", true),
        ("errors < 0.1%", false),
        ("errors < 0.2%", true),
        ("errors == 61", true),
        ("timeouts == 0", false),
        ("timeout <= 41", true),
        ("status_5xx == 20", true),
        ("5xx == 20", true),
        ("4xx == 0", true),
        ("refused == 0", true),
        ("resets == 0", true),
        ("dropped == 0", true),
        ("Late != 1", true),
        ("transfer > 600KiB/s", true),
        ("transfer > 1MB/s", false),
        ("requests >= 59960", true),
        ("connections == 100", true),
        ("unfinished == 0", true),
    ];
    for (text, holds) in table {
        assert_eq!(check(text, &record).0, holds, "{text}");
    }
}

#[test]
fn a_broken_line_says_what_was_measured() {
    let record = records::open();
    let table = [
        ("p99 < 3ms", "p99 < 3ms does not hold: it was 3.60 ms"),
        (
            "errors < 0.1%",
            "errors < 0.1% does not hold: it was 0.1017 %",
        ),
        ("timeouts == 0", "timeouts == 0 does not hold: it was 41"),
        ("rate >= 5000", "rate >= 5000 does not hold: it was 1,999/s"),
        (
            "transfer > 1MB/s",
            "transfer > 1MB/s does not hold: it was 677 KiB/s",
        ),
        (
            "p99.99 < 1s",
            "p99.99 < 1s does not hold: not enough samples: 60,001 of the 100,000 that are needed",
        ),
    ];
    for (text, line) in table {
        assert_eq!(check(text, &record).1, line);
    }
    assert_eq!(
        check("p99 < 50ms", &record).1,
        "p99 < 50ms holds: it was 3.60 ms"
    );
}

#[test]
fn what_is_not_known_does_not_hold() {
    let silent = records::silent();
    let empty = TrialRecord::default();
    for text in [
        "p50 < 10s",
        "p50 > 0us",
        "max < 1s",
        "mean >= 0us",
        "good/completed > 0",
    ] {
        assert!(!check(text, &silent).0, "{text}");
        assert!(!check(text, &empty).0, "{text}");
    }
    assert!(check("lag p99 > 0us", &silent).0); // its threads have lags
    let line = check("good/completed > 0", &silent).1;
    assert_eq!(
        line,
        "good/completed > 0 does not hold: no request was completed"
    );
}

#[test]
fn the_clients_of_http2_are_held_to_the_same_apart_from_amounts() {
    let mut record = records::open();
    let of_http2 = |text: &str, record: &TrialRecord| {
        let assertion: Assertion = text.parse().unwrap();
        assertion.check_http2(record)
    };
    assert_eq!(of_http2("p99 < 50ms", &record), None);
    let mut group = record.groups[0].clone();
    group.name = HTTP2_GROUP.to_owned();
    group.total.tally.errors[ErrorKind::Reset as usize] += 60_000;
    record.groups.push(group);
    assert!(of_http2("p99 < 50ms", &record).unwrap().holds);
    assert!(check("resets == 0", &record).0);
    let finding = of_http2("resets == 0", &record).unwrap();
    assert!(!finding.holds);
    assert_eq!(
        finding.line,
        "HTTP/2: resets == 0 does not hold: it was 60,000"
    );
    for amount in [
        "rate > 1",
        "transfer > 1B/s",
        "requests > 1",
        "lag p99 < 1s",
    ] {
        assert_eq!(of_http2(amount, &record), None, "{amount}");
    }
}

#[test]
fn without_a_request_there_are_no_errors_to_count() {
    let mut record = records::interrupted();
    record.groups[0].total = Results::default();
    for text in [
        "errors == 0",
        "errors < 1%",
        "timeouts == 0", // nor had the slow readers one
        "unfinished == 0",
    ] {
        let line = check(text, &record).1;
        assert_eq!(
            line,
            format!("{text} does not hold: no request was offered")
        );
    }
    // Connections that only stay have no requests.
    record.groups[0].total.tally.held = 5;
    assert!(check("errors == 0", &record).0);
    let tally = &mut record.groups[0].total.tally;
    (tally.held, tally.errors[ErrorKind::Refused as usize]) = (0, 5);
    assert!(check("errors == 5", &record).0);
    // Without plain clients it is the group that has requests.
    record.run.connections = 0;
    assert!(check("errors == 3", &record).0);
}

#[test]
fn answers_that_were_tried_again_complete_no_request() {
    let mut record = records::open();
    let tally = &mut record.groups[0].total.tally;
    (tally.offered, tally.completed, tally.good) = (1000, 1200, 900);
    tally.retried[ErrorKind::Status5xx as usize] = 300;
    assert!(!check("completed/offered >= 99%", &record).0);
    assert!(check("completed/offered == 0.9", &record).0);
    assert!(check("good/completed == 1", &record).0);
    assert!(check("requests == 1200", &record).0);
}

#[test]
fn what_is_refused_and_why() {
    let table = [
        ("", "no comparison"),
        ("p99", "no comparison"),
        ("p99 = 5ms", "unknown comparison '='"),
        ("p99 ! 5ms", "unknown comparison '!'"),
        ("< 5ms", "what is compared is missing"),
        ("p100 < 5ms", "'p100' is no percentile"),
        ("p0 < 5ms", "'p0' is no percentile"),
        ("p99x < 5ms", "unknown quantity 'p99x'; known are p50"),
        ("speed > 5", "unknown quantity 'speed'"),
        ("speed > 5", "timeout, late, dropped"),
        ("cpu p99 > 5ms", "unknown quantity 'cpu p99'"),
        ("a b c > 5ms", "unknown quantity 'a b c'"),
        ("good/bad > 5%", "unknown quantity 'good/bad'"),
        (
            "p99 < 5",
            "a unit is missing: a time has one of us, ms, s, min",
        ),
        ("p99 < 5 weeks", "unknown unit 'weeks'"),
        ("p99 < fast", "'fast' does not begin with a number"),
        ("p99 < -5ms", "'-5ms' does not begin with a number"),
        ("p99 < 1.2.3ms", "'1.2.3ms' does not begin with a number"),
        ("p99 < ", "'' does not begin with a number"),
        (
            "rate > 5ms",
            "unknown unit 'ms': a rate has one of none, /s, k, k/s",
        ),
        (
            "errors < 5ms",
            "unknown unit 'ms': errors has one of none, %",
        ),
        (
            "transfer > 5",
            "a unit is missing: a transfer rate has one of B/s",
        ),
    ];
    for (text, why) in table {
        let error = text.parse::<Assertion>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
        assert!(error.starts_with(&format!("'{text}'")), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn every_kind_of_error_can_be_named() {
    let record = records::open();
    for kind in ErrorKind::ALL {
        let measured = record.groups[0].total.tally.errors_of(kind);
        let underscored = format!("{} == {measured}", kind.name());
        let hyphenated = format!("{} == {measured}", kind.name().replace('_', "-"));
        assert!(check(&underscored, &record).0, "{underscored}");
        assert!(check(&hyphenated, &record).0, "{hyphenated}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<Assertion>();
    }

    #[test]
    fn nearly_right_texts_do_not_either(
        left in "(p[0-9.]{0,6}|latency|service |lag |mean|errors|rate|sent/offered)",
        sign in "[<>=!]{0,3}",
        right in "[0-9._]{0,6} ?(us|ms|s|%|/s|k|MB/s|é)?",
    ) {
        let _ = format!("{left}{sign}{right}").parse::<Assertion>();
    }

    #[test]
    fn a_percentile_holds_on_one_side_of_what_was_measured(percent in 1.0_f64..99.9) {
        // Of lag, which every request has.
        let record = records::closed(1, 1);
        let measured = record.threads[0].lag.percentile_us(percent).unwrap();
        let holds = |sign: &str| check(&format!("lag p{percent} {sign} {measured}us"), &record).0;
        prop_assert!(holds("<=") && holds(">=") && holds("=="));
        prop_assert!(!holds("<") && !holds(">") && !holds("!="));
    }

    #[test]
    fn units_mean_the_same(us in 1_u64..10_000) {
        let record = records::open();
        let ms = us as f64 / 1000.0;
        let in_us = check(&format!("p99 < {us}us"), &record).0;
        let in_ms = check(&format!("p99 < {ms}ms"), &record).0;
        prop_assert_eq!(in_us, in_ms);
    }
}

#[test]
fn times_of_connections_and_handshakes() {
    let mut record = records::open();
    let total = &mut record.groups[0].total;
    let (mut connect, mut handshake) = (latencies(), latencies());
    connect.saturating_record_n(100, 10_000);
    handshake.saturating_record_n(900, 9_950);
    handshake.saturating_record_n(30_000, 50);
    total.connect = Distribution::new(connect);
    total.handshake = Distribution::new(handshake);
    for (text, holds) in [
        ("connect p99 < 1ms", true),
        ("connect max < 100us", false),
        ("handshake p50 < 1ms", true),
        ("handshake p99.5 <= 1ms", true),
        ("handshake p99.6 < 10ms", false),
        ("handshake max < 31ms", true),
        ("handshake mean > 1ms", true),
    ] {
        assert_eq!(check(text, &record).0, holds, "{text}");
    }
    // The kind of error of that name.
    assert!(check("handshake == 0", &record).0);
    // Nothing was encrypted.
    let plain = records::open();
    assert_eq!(
        check("handshake p50 < 1s", &plain).1,
        "handshake p50 < 1s does not hold: not enough samples: 0 of the 20 that are needed"
    );
}

/// 10,000 requests were due, of which so many had no answer: 1 ms each, and 9 of them of 30 ms.
fn unanswered(missing: u64, sent: u64) -> TrialRecord {
    let mut record = records::open();
    let total = &mut record.groups[0].total;
    let mut times = latencies();
    times.saturating_record_n(1_000, 10_000 - missing - 9);
    times.saturating_record_n(30_000, 9);
    total.latency = Distribution::new(times.clone());
    total.service = Distribution::new(times);
    total.tally.offered = 10_000;
    total.tally.sent = sent;
    total.tally.completed = 10_000 - missing;
    record
}

#[test]
fn requests_without_an_answer_are_beyond_every_time() {
    let record = unanswered(90, 10_000);
    // The rank 9,990 lies among the 90.
    let (holds, line) = check("p99.9 < 50ms", &record);
    assert!(!holds);
    assert_eq!(
        line,
        "p99.9 < 50ms does not hold: p99.9 was no response in time: 90 of the 10,000 requests due \
         (0.900 %) never got one"
    );
    assert!(!check("p99.9 > 50ms", &record).0, "it is no time");
    assert!(!check("service p99.9 < 50ms", &record).0);
    // The rank 9,905 is one of the slow ones; of the answers alone it would be 9,816, a quick one.
    assert!(check("p99.05 > 29ms", &record).0);
    assert!(check("p99.05 < 31ms", &record).0);
    assert!(check("p99 < 5ms", &unanswered(0, 10_000)).0);
    // Never sent: no part of service time.
    let unsent = unanswered(90, 9_910);
    assert!(!check("p99.9 < 50ms", &unsent).0);
    assert!(check("service p99.05 < 5ms", &unsent).0);
    // Of attempts that were tried again each has its times, or none.
    let mut retried = unanswered(90, 9_910);
    retried.groups[0].total.tally.retries = 90;
    assert!(!check("service p99.05 < 5ms", &retried).0);
    let (holds, line) = check("mean < 50ms", &record);
    assert!(holds);
    assert_eq!(
        line,
        "mean < 50ms holds: it was 1.03 ms, of complete responses: 90 of the 10,000 requests due \
         (0.900 %) never got one"
    );
}
