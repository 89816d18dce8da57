//! What the verdict is given.

use loadline_record::{HTTP2_GROUP, SecondBlobs};

use super::*;

#[test]
fn threads_are_described_and_judged() {
    let mut hard = report(0, 4 * S);
    hard.cpu_ns = 3_600_000_000;
    let messages = [
        Message::Finished(Box::new(report(1, 4 * S))),
        Message::Finished(Box::new(hard)),
        boxed(interval(1, (1, 1), 1000, 16_000)),
    ];
    let record = merged(messages);
    let names: Vec<&str> = record
        .threads
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(names, ["engine 0", "engine 1"]);
    let thread = &record.threads[1];
    // It waited three quarters of the time, in one of which it could have run.
    assert_eq!(
        (thread.cpu_share, thread.busy_share, thread.batch),
        (0.25, 0.5, 4.0)
    );
    assert_eq!(record.verdict.busiest_share, Some(0.9));
    assert!(record.verdict.client_limited);
    let little = record.verdict.little.unwrap();
    // 250 a second times 16 ms; two threads with two in flight each.
    assert!((little.expected - 4.0).abs() < 0.01 && little.in_flight == 4.0);
    assert!(little.holds);
}

/// Until its requests are done.
fn by_requests(messages: impl IntoIterator<Item = Message>) -> TrialRecord {
    let whole = Plan {
        phases: vec![Phase {
            end_ns: u64::MAX,
            ..phase("", 0, 0, true)
        }],
        requests_max: Some(1000),
        ..plan()
    };
    let mut merger = Merger::new(&whole);
    messages
        .into_iter()
        .for_each(|message| merger.take(message));
    merger.finish(Ending::default())
}

fn finished(group: u16, index: u32, wall_ns: u64) -> Message {
    Message::Finished(Box::new(ThreadReport {
        group,
        in_flight_max: 8,
        ..report(index, wall_ns)
    }))
}

/// The means of threads that were done sooner were over their own time, the rate over the longest.
#[test]
fn littles_law_is_over_the_same_time_for_threads_that_are_done_sooner() {
    let record = by_requests([
        finished(0, 0, 2 * S),
        finished(0, 1, 4 * S),
        // Two in flight for two seconds and two for four: 750 times 16 ms are 12 s.
        boxed(interval(1, (0, 0), 750, 16_000)),
    ]);
    let little = record.verdict.little.unwrap();
    assert!((little.expected - 3.0).abs() < 0.01, "{little:?}");
    assert_eq!(little.in_flight, 3.0);
    assert!(little.holds, "{little:?}");
}

/// Those of the quicker protocol were divided by the time of the slower one.
#[test]
fn rates_of_each_group_are_over_the_time_that_its_requests_took() {
    let mut http2 = interval(1, (0, 0), 500, 8_000);
    http2.group = 1;
    let record = by_requests([
        finished(0, 0, 4 * S),
        finished(1, 0, 2 * S),
        boxed(interval(1, (0, 0), 500, 16_000)),
        boxed(http2),
    ]);
    assert_eq!((record.run.ran_s, record.phases[0].end_s), (4.0, 4.0));
    let [plain, http2] = &record.groups[..] else {
        panic!("two groups");
    };
    assert_eq!((plain.total.seconds, http2.total.seconds), (4.0, 2.0));
    assert_eq!(plain.total.rates.completed_per_s, 125.0);
    assert_eq!(http2.total.rates.completed_per_s, 250.0);
    assert_eq!(http2.phases[0].rates.completed_per_s, 250.0);
    assert_eq!(http2.total.in_flight, Some(2.0)); // 500 times 8 ms in 2 s
    assert_eq!(http2.series.len(), 4);
}

/// A thousand requests in time, and so many answers after the end to those that were due in this phase.
fn with_answers_after_the_end(phase: u16, count: u64) -> TrialRecord {
    let mut after = interval(4, (phase, 2), count, 1_000_000);
    after.after_end = true;
    merged([
        boxed(interval(1, (1, 1), 1000, 16_000)),
        boxed(after),
        Message::Finished(Box::new(report(0, 4 * S))),
    ])
}

/// A stall at the end made it seem that more was in flight than there was.
#[test]
fn littles_law_takes_an_answer_after_the_end_for_a_part() {
    let record = with_answers_after_the_end(2, 16);
    let little = record.verdict.little.unwrap();
    assert!((little.expected - 4.0).abs() < 0.01, "{little:?}");
    assert!((little.expected_max - 8.0).abs() < 0.01, "{little:?}");
}

/// Those of the warm-up are not among the answers that count, so they were taken off twice.
#[test]
fn littles_law_knows_whose_answers_came_after_the_end() {
    let record = with_answers_after_the_end(0, 500);
    let little = record.verdict.little.unwrap();
    assert!((little.expected - 4.0).abs() < 0.01, "{little:?}");
    let clients = &record.groups[0];
    assert_eq!(clients.after_end, SecondBlobs::default());
    let late = decompressed(&clients.warm_up_after_end.latency);
    assert_eq!(late.unwrap().len(), 500);
}

/// Requests that a server left waiting in the warm-up and answered all at once made it seem that
/// something was measured wrongly.
#[test]
fn littles_law_knows_of_requests_from_before_that_are_answered_later() {
    let record = merged([
        boxed(interval(0, (0, 0), 1000, 1_000)),
        boxed(interval(1, (0, 1), 16, 1_000_000)),
        boxed(interval(1, (1, 1), 1000, 16_000)),
        Message::Finished(Box::new(report(0, 4 * S))),
    ]);
    let little = record.verdict.little.unwrap();
    assert!((little.expected - 4.0).abs() < 0.01, "{little:?}");
    assert!((little.expected_max - 8.0).abs() < 0.01, "{little:?}");
}

#[test]
fn a_latency_of_an_hour_is_noted_since_it_counts_as_less() {
    let record = merged([boxed(interval(1, (1, 1), 1, 3_600_000_000))]);
    let notes = record.verdict.notes;
    assert!(notes[0].contains("10 minutes or more"), "{notes:?}");
}

#[test]
fn a_plan_held_back_by_the_connections_is_not_the_clients_fault() {
    let short = |in_flight: u64| {
        let mut interval = interval(2, (1, 1), 100, 1000);
        interval.tally.offered = 200;
        interval.in_flight_ns = u128::from(in_flight * S);
        merged([boxed(interval)]).verdict
    };
    let held_back = short(10);
    assert!(!held_back.client_limited && held_back.notes[0].contains("all 10 connections"));
    assert_eq!(held_back.sent_share, Some(0.5));
    assert!(short(8).client_limited);
}

#[test]
fn connections_that_the_server_does_not_accept_are_not_free() {
    let verdict = |held_back: u64| {
        let mut interval = interval(2, (1, 1), 100, 1000);
        interval.tally.offered = 200;
        let report = ThreadReport {
            held_back,
            ..report(0, 4 * S)
        };
        merged([boxed(interval), Message::Finished(Box::new(report))]).verdict
    };
    assert!(!verdict(95).client_limited);
    assert!(verdict(80).client_limited);
}

#[test]
fn requests_whose_connections_are_not_accepted_are_not_missing() {
    let verdict = |not_accepted: u64, connecting: u64| {
        let mut interval = interval(2, (1, 1), 100, 1000);
        interval.tally.offered = 200;
        interval.tally.not_accepted = not_accepted;
        let report = ThreadReport {
            connecting,
            ..report(0, 4 * S)
        };
        merged([boxed(interval), Message::Finished(Box::new(report))]).verdict
    };
    assert!(!verdict(60, 39).client_limited);
    assert!(verdict(60, 30).client_limited);
    assert!(verdict(30, 39).client_limited);
}

/// Each cause had to explain nine tenths of all that was missing: one thread that keeps few of 2000
/// connections left 27 % to connections that it did not accept, and 73 % to the others.
#[test]
fn requests_that_are_not_accepted_and_those_held_back_explain_together_what_is_missing() {
    let verdict = |not_accepted: u64, connecting: u64, held_back: u64| {
        let mut interval = interval(2, (1, 1), 100, 1000);
        interval.tally.offered = 1100;
        interval.tally.not_accepted = not_accepted;
        let report = ThreadReport {
            connecting,
            held_back,
            ..report(0, 4 * S)
        };
        merged([boxed(interval), Message::Finished(Box::new(report))]).verdict
    };
    let both = verdict(200, 70, 730);
    assert!(!both.client_limited, "{both:?}");
    assert!(
        both.notes[0].ends_with("It accepted no connection for 270 of the others."),
        "{both:?}"
    );
    // Nine tenths of the other 730 are 657. Where fewer are held back, the client did not send the rest.
    assert!(!verdict(200, 70, 657).client_limited);
    assert!(verdict(200, 70, 656).client_limited);
    assert!(verdict(270, 0, 0).client_limited);
    assert!(verdict(0, 0, 730).client_limited);
    // 98 % of what is missing: the other 20 requests are more than one in a hundred.
    assert!(verdict(980, 0, 0).client_limited);
}

/// With `--http2-share` the requests that the clients of HTTP/2 did not send stood for those of the others.
#[test]
fn the_plan_of_the_plain_clients_is_judged_by_their_threads() {
    let verdict = |group: u16, held_back: u64, connecting: u64| {
        let mut interval = interval(2, (1, 1), 100, 1000);
        interval.tally.offered = 200;
        let report = ThreadReport {
            group,
            held_back,
            connecting,
            ..report(0, 4 * S)
        };
        merged([boxed(interval), Message::Finished(Box::new(report))]).verdict
    };
    for (held_back, connecting) in [(100, 0), (0, 100)] {
        assert!(!verdict(0, held_back, connecting).client_limited);
        assert!(verdict(1, held_back, connecting).client_limited);
    }
}

/// Only the clients of HTTP/1.1 were judged.
#[test]
fn clients_of_http2_beside_others_are_judged_too() {
    let whole = Plan {
        groups: vec!["clients".to_owned(), HTTP2_GROUP.to_owned()],
        ..plan()
    };
    let judged = |held_back: u64, in_flight_ns: u128| {
        let mut http2 = interval(2, (1, 1), 1000, 16_000);
        http2.group = 1;
        http2.tally.offered = 2000;
        let of_http2 = ThreadReport {
            group: 1,
            held_back,
            in_flight_max: 20,
            in_flight_ns,
            ..report(0, 4 * S)
        };
        let mut merger = Merger::new(&whole);
        merger.take(boxed(interval(2, (1, 1), 1000, 8_000)));
        merger.take(boxed(http2));
        merger.take(Message::Finished(Box::new(report(0, 4 * S))));
        merger.take(Message::Finished(Box::new(of_http2)));
        merger.finish(Ending::default()).verdict
    };
    let verdict = judged(0, 16_000_000_000);
    assert!(verdict.client_limited);
    let reason = "http2: Only 50 % of the plan was sent (1000 of 2000 requests), though streams";
    assert!(verdict.reasons[0].starts_with(reason), "{verdict:?}");
    assert_eq!(verdict.sent_share, Some(1.0));
    let [http2] = &verdict.beside[..] else {
        panic!("one group beside");
    };
    assert_eq!(http2.sent_share, Some(0.5));
    assert_eq!(http2.held_share, Some(0.0));
    // 250 a second times 16 ms.
    assert!(http2.little.unwrap().holds && verdict.little.unwrap().holds);

    let verdict = judged(1000, 32_000_000_000);
    assert!(!verdict.client_limited, "{verdict:?}");
    assert!(verdict.notes[0].contains("all 20 streams were waiting"));
    assert!(!verdict.beside[0].little.unwrap().holds);
}

#[test]
fn seconds_that_count_in_part_do_not_say_that_connections_were_free() {
    // As measured: 3000/s for 3 s after 0.3 s of warm-up, of which the server takes 2000/s.
    let second = |second, offered, sent, in_flight| SecondRecord {
        second,
        offered,
        sent,
        in_flight: Some(in_flight),
        ..SecondRecord::default()
    };
    let mut group = GroupRecord {
        series: vec![
            second(0, 2998, 2248, 225.6),
            second(1, 2971, 1997, 255.1),
            second(2, 2997, 2004, 255.5),
            second(3, 934, 601, 76.6),
        ],
        ..GroupRecord::default()
    };
    let record = |begin_s, end_s, counted| PhaseRecord {
        begin_s,
        end_s,
        counted,
        ..PhaseRecord::default()
    };
    let phases = [record(0.0, 0.3, false), record(0.3, 3.3, true)];
    assert_eq!(unsent::held_back_share(&group, &phases, 256), Some(1.0));
    assert_eq!(unsent::held_back_share(&group, &phases, 1000), Some(0.0));
    // No second counts as a whole: the mean of all decides.
    group.total.in_flight = Some(255.0);
    let short = [record(0.0, 0.3, false), record(0.3, 1.2, true)];
    assert_eq!(unsent::held_back_share(&group, &short, 256), Some(1.0));
    assert_eq!(unsent::held_back_share(&group, &short, 1000), Some(0.0));
}
