//! A responder that stands still now and then: what an open loop sees of it, and what a service
//! time and a closed loop hide (coordinated omission).
//!
//! With one connection, the requests that are due in a stall wait for the one that is out. Their
//! latency, from due, has the whole wait; the service time, from sent, is long once a stall. How
//! many are long is arithmetic: `C(i) = done(max(due(i), C(i-1)))`.

use loadline_load::Arrivals;
use loadline_record::{Distribution, Results};
use loadline_stub::{Latency, Stall, Stub, StubOptions, Times};

use crate::observer::{
    LATE_NS, Lateness, PASSES_FROM_DUE, PASSES_GRANTED, PASSES_OF_ANSWER, TooLong, judged,
};
use crate::protocol::Protocol;
use crate::run::{MS, Outcome, SECOND, US, closed, open, run_from};
use crate::statistics::quantile;

/// Times above this are long.
const LONG_NS: u64 = 16 * MS;
/// To three digits, 16 ms is anything up to 16.015 ms.
const ROUNDED_NS: u64 = 16 * US;
/// What the stub and measuring may add to each request: the next one of a queue is later by as much.
const ADDED_NS: u64 = 250 * US;
/// What the answers to all that were asked in a stall take, one after the other.
const BURST_NS: u64 = 3 * MS;
/// So long that 2 % are more than it takes to wake a virtual CPU that sleeps between two answers: 60 to
/// 90 us in the median, 110 to 160 us one time in ten.
const SERVICE_NS: u64 = 12 * MS;

/// Times of one kind, and how often each passes the client's thread.
struct Kind {
    name: &'static str,
    times: fn(&Results) -> &Distribution,
    passes: usize,
}

const LATENCY: Kind = Kind {
    name: "latency",
    times: |results| &results.latency,
    passes: PASSES_FROM_DUE,
};
const SERVICE: Kind = Kind {
    name: "service",
    times: |results| &results.service,
    passes: PASSES_OF_ANSWER,
};

/// A run of `stalls` rounds, with a whole stall in the middle of each.
#[derive(Clone, Copy)]
struct UserContext {
    stall: Stall,
    rate: u64,
    connections: u32,
    stalls: u64,
    protocol: Protocol,
    /// Of a connection of HTTP/2.
    streams: u32,
}

impl UserContext {
    fn stub(&self) -> Stub {
        self.protocol.stub(StubOptions {
            latency: Latency::Constant { ns: SERVICE_NS },
            stall: Some(self.stall),
            ..StubOptions::default()
        })
    }

    fn requests(&self) -> u64 {
        self.rate * self.stalls * self.stall.every_ns / SECOND
    }

    /// Half a round before a stall of a stub that began at `begin_ns`.
    fn start_ns(&self, begin_ns: u64, ready_ns: u64) -> u64 {
        let every_ns = self.stall.every_ns;
        let middle_ns = begin_ns + every_ns / 2;
        let rounds = ready_ns.saturating_sub(middle_ns).div_ceil(every_ns);
        middle_ns + rounds * every_ns
    }

    fn run_open(&self) -> Outcome {
        let (stub, duration_ns) = (self.stub(), self.stalls * self.stall.every_ns);
        let (rate, evenly) = (self.rate as f64, Arrivals::Constant);
        let plan = open(stub.address(), self.connections, rate, duration_ns, evenly);
        let plan = self.protocol.spoken(plan, self.streams);
        let begin_ns = stub.begin_ns();
        run_from(plan, stub, 1, |ready_ns| self.start_ns(begin_ns, ready_ns))
    }

    /// Latencies if the responder does as programmed, one connection is used for one request at a
    /// time, and measuring adds so much to each.
    fn latencies_ns(&self, added_ns: u64) -> Vec<u64> {
        let mut free_ns = vec![0; self.connections as usize];
        let first_ns = self.start_ns(0, 0);
        let due = (0..self.requests()).map(|n| self.due_ns(first_ns, n));
        due.enumerate()
            .map(|(n, due_ns)| {
                let connection = n % free_ns.len();
                let sent_ns = due_ns.max(free_ns[connection]);
                let worked_ns = self.stall.worked_ns(sent_ns) + SERVICE_NS;
                let done_ns = self.stall.at_ns(worked_ns) + added_ns;
                free_ns[connection] = done_ns;
                done_ns - due_ns
            })
            .collect()
    }

    fn due_ns(&self, start_ns: u64, n: u64) -> u64 {
        start_ns + (2 * n + 1) * SECOND / (2 * self.rate)
    }

    /// How many latencies were long by the record, if one connection is used for all requests.
    fn long_by_record(&self, outcome: &Outcome) -> u64 {
        let mut times = outcome.report.times.clone();
        times.sort_unstable_by_key(|times| times.number);
        let latencies = (0..).zip(times).map(|(n, times)| {
            let due_ns = self.due_ns(outcome.start_ns, n);
            times.sent_ns.saturating_sub(due_ns)
        });
        latencies.filter(|ns| *ns > LONG_NS + ROUNDED_NS).count() as u64
    }

    /// How many latencies are long: at least, and at most with what may be added to each.
    fn long(&self, added_ns: u64) -> (u64, u64) {
        let beyond = |added_ns| {
            let bound_ns = if added_ns == 0 {
                LONG_NS + ROUNDED_NS
            } else {
                LONG_NS
            };
            let latencies = self.latencies_ns(added_ns);
            latencies.iter().filter(|ns| **ns > bound_ns).count() as u64
        };
        (beyond(0), beyond(added_ns))
    }
}

fn long_ones(times: &Distribution) -> u64 {
    let histogram = times.histogram();
    histogram.len() - histogram.count_between(0, LONG_NS / US)
}

/// So many times are long, as arithmetic has it. More may be where answers of the stub were late, by
/// its record, or the client was.
fn within(
    kind: &Kind,
    outcome: &Outcome,
    (least, most): (u64, u64),
    lateness: &Lateness,
) -> Option<TooLong> {
    let name = kind.name;
    let found = long_ones((kind.times)(outcome.results()));
    assert!(
        found >= least,
        "{name}: {found} are long, where {least} are"
    );
    (found > most).then(|| {
        let answers = outcome.report.times.iter();
        let late = answers.filter(|times| times.late_ns() > LATE_NS).count() as u64;
        let hit = (found - most).saturating_sub(late) as f64;
        TooLong {
            what: format!("{name}: {found} are long, where {least} to {most} should be"),
            is_explained: lateness.can_have_hit(hit, outcome.report.times.len(), kind.passes),
        }
    })
}

/// The service time that is reported, against what the stub's record has.
fn service(outcome: &Outcome, p: f64, lateness: &Lateness) -> Option<TooLong> {
    let histogram = outcome.results().service.histogram();
    let found_us = histogram.value_at_quantile(p);
    let mut true_ns: Vec<u64> = outcome.report.times.iter().map(Times::true_ns).collect();
    true_ns.sort_unstable();
    let granted_ns = lateness.added_to(&true_ns, PASSES_OF_ANSWER + PASSES_GRANTED);
    let [happened_us, granted_us] = [&true_ns, &granted_ns].map(|ns| quantile(ns, p) / US);
    let what =
        format!("service p{p}: {found_us} us, {happened_us} us happened, {granted_us} us granted");
    eprintln!("{what}");
    let requests = true_ns.len();
    let hit = (1.0 - p) * requests as f64;
    (found_us > happened_us + happened_us / 50).then(|| TooLong {
        what,
        is_explained: found_us <= granted_us + granted_us / 50
            || lateness.can_have_hit(hit, requests, PASSES_OF_ANSWER),
    })
}

/// Latency has the whole queue, the service time one long time a stall.
pub(crate) fn a_stall_before_one_connection(protocol: Protocol) {
    let context = UserContext {
        stall: STALL,
        rate: 30,
        connections: 1,
        stalls: 3,
        protocol,
        streams: 1,
    };
    judged(
        &format!("stalls, one connection, {protocol:?}"),
        || context.run_open(),
        |outcome, lateness| {
            let (results, requests) = (outcome.results(), context.requests());
            assert_eq!(results.tally.good, requests);
            let long = context.long(ADDED_NS);
            assert!(long.0 > requests / 10, "a stall is a part of every round");
            // A machine that makes many services long as well hides nothing from the record.
            let (long_latencies, by_record) =
                (long_ones(&results.latency), context.long_by_record(outcome));
            assert!(
                long_latencies >= by_record,
                "{long_latencies} latencies are long, {by_record} by the record"
            );
            let once = (context.stalls, context.stalls);
            let mut found = vec![
                within(&LATENCY, outcome, long, lateness),
                within(&SERVICE, outcome, once, lateness),
            ];
            // The longest wait is that of the one that was sent last before the stall, or first
            // in it; and that, alone, is what the service time has to say.
            let longest_us = results.latency.max_us().unwrap();
            let gap_us = SECOND / context.rate / US;
            assert!(longest_us + gap_us >= context.stall.length_ns / US);
            found.extend([0.5, 0.9, 0.99].map(|p| service(outcome, p, lateness)));
            found.into_iter().flatten().collect()
        },
    );
}

const STALL: Stall = Stall {
    length_ns: 200 * MS,
    every_ns: SECOND,
};

/// Where every request finds a connection, or a stream, it is out while the responder stands still: then
/// the service time sees the stall, too.
pub(crate) fn a_stall_with_a_connection_for_each(protocol: Protocol) {
    let context = UserContext {
        stall: STALL,
        rate: 300,
        connections: 120,
        stalls: 3,
        protocol,
        streams: 60,
    };
    judged(
        &format!("stalls, room for each request, {protocol:?}"),
        || context.run_open(),
        |outcome, lateness| {
            let (results, requests) = (outcome.results(), context.requests());
            assert_eq!(results.tally.good, requests);
            let long = context.long(BURST_NS);
            let found = [
                within(&LATENCY, outcome, long, lateness),
                within(&SERVICE, outcome, long, lateness),
            ];
            found.into_iter().flatten().collect()
        },
    );
}

/// A closed loop asks nothing while it waits: one request in hundreds shows a fifth of the time.
pub(crate) fn a_stall_in_a_closed_loop(protocol: Protocol) {
    let context = UserContext {
        stall: STALL,
        rate: 0,
        connections: 1,
        stalls: 2,
        protocol,
        streams: 1,
    };
    judged(
        &format!("stalls, closed loop, {protocol:?}"),
        || {
            let stub = context.stub();
            let plan = closed(stub.address(), 1, u64::MAX);
            let mut plan = protocol.spoken(plan, context.streams);
            plan.requests_max = None;
            plan.phases[0].end_ns = context.stalls * STALL.every_ns;
            let begin_ns = stub.begin_ns();
            run_from(plan, stub, 1, |ready_ns| {
                context.start_ns(begin_ns, ready_ns)
            })
        },
        |outcome, lateness| {
            let once = (context.stalls, context.stalls);
            let found = within(&LATENCY, outcome, once, lateness);
            found.into_iter().collect()
        },
    );
}
