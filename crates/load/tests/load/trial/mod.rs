//! From two threads of the engine against a responder of known truth to the record: figures agree
//! with each other, with the responder's own, and do not depend on the way that messages took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use loadline_load::load_threads::{LoadThreads, RunEvent, ThreadSpec};
use loadline_load::trial::{Ending, Merger};
use loadline_load::{
    Arrivals, Control, Loop, Message, Overflow, Phase, Plan, Prepared, Schedule, Share, wire,
};
use loadline_record::distribution::from_text;
use loadline_record::export::{read_json, write_csv, write_hdr, write_json};
use loadline_record::{TrialRecord, latencies};
use loadline_stub::{Latency, Stub, StubOptions};
use loadline_sys::clock::monotonic_ns;

const MS: u64 = 1_000_000;
const WARM_UP_NS: u64 = 200 * MS;
const END_NS: u64 = 1_200 * MS;

fn plan(server: SocketAddr, load: Loop) -> Plan {
    let phase = |label: &str, begin_ns, end_ns, counted| Phase {
        label: label.to_owned(),
        begin_ns,
        end_ns,
        rate: None,
        counted,
    };
    let phases = vec![
        phase("warm-up", 0, WARM_UP_NS, false),
        phase("all", WARM_UP_NS, END_NS, true),
    ];
    Plan {
        load,
        connections: 8,
        content_sample: 0,
        groups: vec!["clients".to_owned()],
        seed: 11,
        ..Plan::new(server, Prepared::get(&server.to_string(), "/"), phases)
    }
}

fn open_loop() -> Loop {
    Loop::Open {
        schedule: Schedule::constant(400.0, Duration::from_nanos(END_NS)).unwrap(),
        arrivals: Arrivals::Poisson,
        overflow: Overflow::Queue,
    }
}

/// The messages of two threads, and how many requests the responder had.
fn run(load: Loop) -> (Plan, Vec<Message>, u64) {
    let stub = Stub::start(StubOptions {
        latency: Latency::Constant { ns: 5 * MS },
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let plan = Arc::new(plan(stub.address(), load));
    let spec = ThreadSpec {
        share: Share::WHOLE,
        engine_threads: 2,
        extra: None,
        cpus: Vec::new(),
    };
    let control = Arc::new(Control::new());
    let (sender, events) = channel();
    let report = move |event| sender.send(event).unwrap();
    let load_threads = LoadThreads::start(&plan, &spec, &control, report).unwrap();
    let (mut messages, mut ready) = (Vec::new(), 0);
    for event in events {
        match event {
            RunEvent::Message(message) => {
                ready += usize::from(matches!(message, Message::Ready { .. }));
                if ready == load_threads.thread_count() && control.start_ns().is_none() {
                    control.start_at(monotonic_ns() + MS);
                }
                messages.push(message);
            }
            RunEvent::Ended { result, .. } => result.unwrap(),
            RunEvent::Interrupted => unreachable!("no signal is caught"),
        }
    }
    load_threads.join();
    let requests = stub.stop().unwrap().counts.requests;
    let plan = Arc::try_unwrap(plan).unwrap_or_else(|plan| (*plan).clone());
    (plan, messages, requests)
}

fn merged(plan: &Plan, messages: impl IntoIterator<Item = Message>) -> TrialRecord {
    let mut merger = Merger::new(plan);
    messages
        .into_iter()
        .for_each(|message| merger.take(message));
    merger.finish(Ending::default())
}

fn assert_agrees(record: &TrialRecord, requests: u64) {
    let everything = &record.everything;
    assert_eq!(everything.sent, requests);
    let ended = everything.completed + everything.errors_total() + everything.unfinished;
    assert_eq!(everything.offered, ended, "{everything:?}");
    let clients = &record.groups[0];
    let by_phase: u64 = clients
        .phases
        .iter()
        .map(|phase| phase.tally.completed)
        .sum();
    assert_eq!(by_phase, everything.completed);
    let late: u64 = clients
        .phases
        .iter()
        .map(|phase| phase.after_end.completed)
        .sum();
    let by_second: u64 = clients.series.iter().map(|second| second.completed).sum();
    assert_eq!(by_second + late, everything.completed);
    assert_eq!(clients.total.latency.count(), clients.total.tally.completed);
    assert!((clients.total.seconds - 1.0).abs() < 1e-9);
    assert_eq!(record.run.ran_s, 1.2);
    // Five milliseconds, and whatever the machine adds; never less.
    assert!(clients.total.service.min_us() >= Some(4_900));
    assert_eq!(record.threads.len(), 2);
    let little = record.verdict.little.unwrap();
    assert!(little.holds, "{little:?}");
}

fn assert_exports_agree(record: &TrialRecord) {
    let mut json = Vec::new();
    write_json(std::slice::from_ref(record), &mut json).unwrap();
    let read = read_json(std::str::from_utf8(&json).unwrap()).unwrap();
    assert_eq!(read[0].groups[0].total, record.groups[0].total);
    assert_eq!(read[0].verdict, record.verdict);

    let mut log = Vec::new();
    write_hdr(std::slice::from_ref(record), &mut log).unwrap();
    let mut sums = [latencies(), latencies()];
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let is_service = interval.tag().unwrap().as_str().ends_with("service");
            let histogram = from_text(interval.encoded_histogram()).unwrap();
            sums[usize::from(is_service)].add(&histogram).unwrap();
        }
    }
    let completed = record.everything.completed;
    assert_eq!(sums.map(|sum| sum.len()), [completed, completed]);

    let mut csv = Vec::new();
    write_csv(std::slice::from_ref(record), &mut csv).unwrap();
    let rows = csv.iter().filter(|byte| **byte == b'\n').count();
    let late = usize::from(record.groups[0].total.after_end.bytes_received > 0);
    assert_eq!(rows, 1 + record.groups[0].series.len() + late);
}

#[test]
fn figures_agree_in_an_open_loop() {
    let (plan, messages, requests) = run(open_loop());
    let record = merged(&plan, messages);
    assert_agrees(&record, requests);
    assert_exports_agree(&record);
    let share = record.verdict.sent_share.unwrap();
    assert!(share > 0.0 && share <= 1.0, "{share}");
}

#[test]
fn figures_agree_in_a_closed_loop() {
    let (plan, messages, requests) = run(Loop::Closed {
        think_ns: 0,
        coalesces: true,
    });
    let record = merged(&plan, messages);
    assert_agrees(&record, requests);
    let little = record.verdict.little.unwrap();
    // Eight clients that do nothing but wait for an answer.
    assert!(
        little.in_flight > 7.0 && little.in_flight <= 8.0,
        "{little:?}"
    );
    assert_eq!(record.verdict.sent_share, None);
}

#[test]
fn the_record_is_the_same_through_a_pipe_and_in_another_order() {
    let (plan, messages, _) = run(open_loop());
    let mut pipe = Vec::new();
    for message in messages.iter().rev() {
        wire::write(message, &mut pipe).unwrap();
    }
    let mut reader = wire::Reader::new(&pipe[..]);
    let mut read = Vec::new();
    while let Some(message) = reader.next_message().unwrap() {
        read.push(message);
    }
    assert_eq!(merged(&plan, read), merged(&plan, messages));
}
