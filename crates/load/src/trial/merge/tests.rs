use loadline_record::distribution::decompressed;
use loadline_record::{ErrorKind, SecondRecord};
use proptest::prelude::*;

use super::*;
use crate::message::TimeHistogram;
use crate::{Arrivals, Overflow, Prepared, Schedule, Share};

mod judged;

const S: u64 = 1_000_000_000;

fn phase(label: &str, begin_s: u64, end_s: u64, counted: bool) -> Phase {
    Phase {
        label: label.to_owned(),
        begin_ns: begin_s * S,
        end_ns: end_s * S,
        rate: Some(100.0),
        counted,
    }
}

/// A warm-up of one second, then two steps of two seconds.
fn plan() -> Plan {
    let phases = vec![
        phase("warm-up", 0, 1, false),
        phase("a", 1, 3, true),
        phase("b", 3, 5, true),
    ];
    let groups = ["clients", "slow-readers"].map(str::to_owned);
    let server = ([127, 0, 0, 1], 80).into();
    Plan {
        load: Loop::Open {
            schedule: Schedule {
                segments: vec![Segment {
                    len_ns: 5 * S,
                    rate_begin: 100.0,
                    rate_end: 100.0,
                }],
            },
            arrivals: Arrivals::Constant,
            overflow: Overflow::Queue,
        },
        connections: 10,
        timeout_ns: 2 * S,
        groups: groups.to_vec(),
        seed: 7,
        ..Plan::new(server, Prepared::get("a", "/"), phases)
    }
}

/// `count` requests in a second, each answered after `us`.
fn interval(second: u32, phases: (u16, u16), count: u64, us: u64) -> Interval {
    let mut times = TimeHistogram::default();
    times.saturating_record_n(us, count);
    Interval {
        second,
        phase: phases.0,
        at_phase: phases.1,
        tally: Tally {
            offered: count,
            sent: count,
            completed: count,
            good: count,
            ..Tally::default()
        },
        in_flight_ns: u128::from(count * us * 1000),
        lag_max_us: u64::from(second),
        latency: times.clone(),
        service: times,
        ..Interval::default()
    }
}

fn report(index: u32, wall_ns: u64) -> ThreadReport {
    ThreadReport {
        share: Share { index, of: 2 },
        name: format!("engine {index}"),
        wall_ns,
        cpu_ns: wall_ns / 4,
        waited_ns: wall_ns / 4 * 3,
        run_delay_ns: wall_ns / 4,
        turns: 10,
        events: 40,
        in_flight_ns: u128::from(wall_ns) * 2,
        ..ThreadReport::default()
    }
}

fn merged(messages: impl IntoIterator<Item = Message>) -> TrialRecord {
    let mut merger = Merger::new(&plan());
    messages
        .into_iter()
        .for_each(|message| merger.take(message));
    merger.finish(Ending::default())
}

fn boxed(interval: Interval) -> Message {
    Message::Interval(Box::new(interval))
}

#[test]
fn answers_belong_to_the_step_they_were_due_in_and_rates_to_the_one_they_came_in() {
    let mut late = interval(3, (1, 2), 50, 900_000); // due in step a, answered in step b
    late.tally.offered = 0;
    late.tally.sent = 0;
    let mut unanswered = interval(2, (1, 1), 0, 1);
    unanswered.tally.offered = 50;
    unanswered.tally.sent = 50;
    let record = merged([
        boxed(interval(1, (1, 1), 150, 1000)),
        boxed(unanswered),
        boxed(late),
        boxed(interval(4, (2, 2), 100, 1000)),
    ]);
    let [_, a, b] = &record.groups[0].phases[..] else {
        panic!("three phases");
    };
    assert_eq!((a.tally.offered, a.tally.completed), (200, 200));
    assert_eq!((b.tally.offered, b.tally.completed), (100, 100));
    assert_eq!(
        (a.rates.offered_per_s, a.rates.completed_per_s),
        (100.0, 75.0)
    );
    assert_eq!(
        (b.rates.offered_per_s, b.rates.completed_per_s),
        (50.0, 75.0)
    );
    assert!(a.latency.max_us() >= Some(900_000) && b.latency.max_us() < Some(1100));
    assert_eq!(record.groups[0].total.rates.completed_per_s, 75.0);
    assert_eq!(record.groups[0].total.latency.count(), 300);
}

#[test]
fn the_warm_up_is_kept_and_not_in_the_totals() {
    let record = merged([
        boxed(interval(0, (0, 0), 500, 10)),
        boxed(interval(1, (1, 1), 100, 1000)),
    ]);
    let clients = &record.groups[0];
    assert_eq!(clients.phases[0].tally.completed, 500);
    assert_eq!(clients.phases[0].rates.completed_per_s, 500.0);
    assert_eq!(clients.total.tally.completed, 100);
    assert_eq!(clients.total.latency.min_us(), Some(1000));
    assert_eq!(clients.total.seconds, 4.0);
    assert_eq!(record.everything.completed, 600);
}

#[test]
fn what_comes_after_the_end_is_apart_from_the_rates_and_the_series() {
    let mut after = interval(4, (2, 2), 20, 1_500_000);
    after.after_end = true;
    after.tally.unfinished = 3;
    let record = merged([boxed(interval(4, (2, 2), 100, 1000)), boxed(after)]);
    let total = &record.groups[0].total;
    assert_eq!((total.tally.completed, total.tally.unfinished), (120, 3));
    assert_eq!(
        (total.after_end.completed, total.after_end.unfinished),
        (20, 3)
    );
    assert_eq!(total.rates.completed_per_s, 25.0);
    assert!(total.latency.max_us() >= Some(1_500_000)); // the slowest are in the distribution
    assert_eq!(record.groups[0].series[4].completed, 100);
}

#[test]
fn groups_are_apart() {
    let mut slow = interval(1, (1, 1), 10, 5_000_000);
    slow.group = 1;
    let record = merged([boxed(interval(1, (1, 1), 100, 1000)), boxed(slow)]);
    assert_eq!(record.headline().unwrap().name, "clients");
    assert_eq!(record.groups[1].name, "slow-readers");
    assert_eq!(record.groups[1].total.tally.completed, 10);
    assert!(record.groups[0].total.latency.max_us() < Some(1100));
    assert_eq!(record.everything.completed, 110);
}

#[test]
fn the_series_has_every_second() {
    let record = merged([
        boxed(interval(0, (0, 0), 100, 500)),
        boxed(interval(3, (2, 2), 1000, 1000)),
        boxed(interval(3, (2, 2), 1000, 1000)),
    ]);
    let series = &record.groups[0].series;
    let seconds: Vec<u32> = series.iter().map(|second| second.second).collect();
    assert_eq!(seconds, [0, 1, 2, 3, 4]);
    assert_eq!((series[3].completed, series[3].p99_us), (2000, Some(1000)));
    assert_eq!((series[0].p50_us, series[0].p99_us), (Some(500), None));
    assert_eq!((series[3].lag_max_us, series[3].in_flight), (3, Some(2.0)));
    assert_eq!(
        series[1],
        SecondRecord {
            second: 1,
            ..SecondRecord::default()
        }
    );
    let blob = decompressed(&series[3].blobs.latency);
    assert_eq!(blob.unwrap().len(), 2000);
}

#[test]
fn a_run_that_ends_early_is_as_long_as_it_was() {
    let mut merger = Merger::new(&plan());
    merger.take(boxed(interval(1, (1, 1), 100, 1000)));
    let record = merger.finish(Ending {
        ran_ns: Some(2 * S + S / 2),
        is_interrupted: true,
        ..Ending::default()
    });
    assert!(record.run.interrupted);
    assert_eq!((record.run.ran_s, record.run.planned_s), (2.5, Some(5.0)));
    let ends: Vec<f64> = record.phases.iter().map(|phase| phase.end_s).collect();
    assert_eq!(ends, [1.0, 2.5, 2.5]);
    assert_eq!(record.groups[0].total.seconds, 1.5);
    assert_eq!(record.groups[0].phases[2].rates.completed_per_s, 0.0);
    assert_eq!(record.groups[0].series.len(), 3);
}

#[test]
fn without_an_end_in_time_the_threads_say_how_long_it_was() {
    let mut plan = plan();
    plan.phases = vec![Phase {
        end_ns: u64::MAX,
        ..phase("", 0, 0, true)
    }];
    plan.requests_max = Some(100);
    let mut merger = Merger::new(&plan);
    merger.take(boxed(interval(0, (0, 0), 100, 1000)));
    // Plain clients, those that speak HTTP/2, and virtual users, who notice the end later.
    for (group, wall_ns, in_flight_max) in [(0, S / 4, 1), (1, S / 2, 1), (2, S, 0)] {
        merger.take(Message::Finished(Box::new(ThreadReport {
            in_flight_max,
            ..report(group, wall_ns)
        })));
    }
    let record = merger.finish(Ending::default());
    assert_eq!((record.run.planned_s, record.run.ran_s), (None, 0.5));
    assert_eq!(record.groups[0].total.rates.completed_per_s, 200.0);
}

#[test]
fn a_snapshot_shows_the_last_full_second() {
    let mut merger = Merger::new(&plan());
    merger.take(Message::Ready { connections: 10 });
    merger.take(boxed(interval(0, (0, 0), 100, 500)));
    assert_eq!(merger.snapshot(S / 2).last, None);
    assert_eq!(merger.snapshot(S + S / 20).last, None); // threads have not reported yet
    let snapshot = merger.snapshot(S + S / 2);
    assert_eq!((snapshot.phase.as_str(), snapshot.connections), ("a", 10));
    assert_eq!(snapshot.planned_ns, Some(5 * S));
    let last = snapshot.last.unwrap();
    assert_eq!((last.completed, last.p50_us), (100, Some(500)));
    assert_eq!(snapshot.recent_completed, [100]);
    assert_eq!(snapshot.total.completed, 100);
    assert_eq!(snapshot.others[0].0, "slow-readers");
    assert_eq!(merger.snapshot(9 * S).phase, "b");
}

#[test]
fn a_phase_is_named_where_there_are_others() {
    let whole = Plan {
        phases: vec![phase("warm-up", 0, 1, false), phase("2000/s", 1, 5, true)],
        ..plan()
    };
    let merger = Merger::new(&whole);
    assert_eq!(merger.snapshot(S / 2).phase, "warm-up");
    assert_eq!(merger.snapshot(2 * S).phase, "");
}

#[test]
fn indexes_beyond_the_plan_are_kept_within_it() {
    let mut strange = interval(u32::MAX, (99, 99), 10, 1000);
    strange.group = 99;
    strange.after_end = true;
    let record = merged([boxed(strange)]);
    assert_eq!(record.groups[1].phases[2].tally.completed, 10);
}

#[test]
fn the_record_is_read_as_it_was_written_and_from_later_versions() {
    let mut failed = interval(2, (1, 1), 10, 2000);
    failed.tally.error(ErrorKind::Reset);
    failed.failure.saturating_record(99);
    let record = merged([
        boxed(interval(1, (1, 1), 1000, 1000)),
        boxed(failed),
        Message::Finished(Box::new(report(0, 4 * S))),
    ]);
    let text = serde_json::to_string(&record).unwrap();
    let mut read: TrialRecord = serde_json::from_str(&text).unwrap();
    for (read, written) in read.groups.iter_mut().zip(&record.groups) {
        read.after_end = written.after_end.clone();
        for (read, written) in read.series.iter_mut().zip(&written.series) {
            read.blobs = written.blobs.clone(); // not in the file
        }
    }
    assert_eq!(read, record);
    let later = text.replacen("{\"schema\"", "{\"mood\":{\"is\":\"good\"},\"schema\"", 1);
    assert_eq!(
        serde_json::from_str::<TrialRecord>(&later).unwrap().run,
        record.run
    );
    assert_eq!(
        serde_json::from_str::<TrialRecord>("{}").unwrap(),
        TrialRecord::default()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Messages may come from any number of threads, in any order.
    #[test]
    fn the_order_of_messages_does_not_matter(
        parts in prop::collection::vec((0..9_u32, 0..3_u16, 0..2_u16, 1..50_u64, 1..1_000_000_u64), 1..20),
        seed in any::<u64>(),
    ) {
        let messages = parts.iter().map(|(second, phase, group, count, us)| {
            let mut part = interval(*second, (*phase, (*phase + 1).min(2)), *count, *us);
            part.group = *group;
            boxed(part)
        });
        let in_order = merged(messages.clone());
        let mut shuffled: Vec<Message> = messages.collect();
        shuffled.sort_by_key(|message| match message {
            Message::Interval(part) => part.latency.max().wrapping_mul(seed | 1),
            _ => 0,
        });
        prop_assert_eq!(merged(shuffled), in_order);
    }
}
