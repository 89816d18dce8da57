//! A responder that stands still now and then: what an open loop sees of it, and what a service
//! time and a closed loop hide (coordinated omission).
//!
//! With one connection, the requests that are due in a stall wait for the one that is out. Their
//! latency, from due, has the whole wait; the service time, from sent, is long once a stall. How
//! many are long is arithmetic: `C(i) = done(max(due(i), C(i-1)))`.

use loadline_load::Arrivals;
use loadline_load::trial::Distribution;
use loadline_stub::{Latency, Stall, Stub, StubOptions, Times};

use crate::run::{self, MS, Outcome, SECOND, US, closed, open, run_from};
use crate::statistics::quantile;
use crate::witness::{TooLong, Whose, judged};

/// Times above this are long.
const LONG_NS: u64 = 16 * MS;
/// What the stub and measuring may add to each request: the next one of a queue is later by as much.
const ADDED_NS: u64 = 250 * US;
/// What the answers to all that were asked in a stall take, one after the other.
const BURST_NS: u64 = 3 * MS;
/// So long that 2 % are more than it takes to wake a virtual CPU that sleeps between two answers: 60 to
/// 90 us in the median, 110 to 160 us one time in ten.
const SERVICE_NS: u64 = 12 * MS;

/// A run of `stalls` rounds, with a whole stall in the middle of each.
#[derive(Clone, Copy)]
struct Scene {
    stall: Stall,
    rate: u64,
    connections: u32,
    stalls: u64,
}

impl Scene {
    fn stub(&self) -> Stub {
        run::stub(StubOptions {
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
        let begin_ns = stub.begin_ns();
        run_from(plan, stub, 1, |ready_ns| self.start_ns(begin_ns, ready_ns))
    }

    /// Latencies if the responder does as programmed, one connection is used for one request at a
    /// time, and measuring adds so much to each.
    fn latencies_ns(&self, added_ns: u64) -> Vec<u64> {
        let mut free_ns = vec![0; self.connections as usize];
        let first_ns = self.start_ns(0, 0);
        let due = (0..self.requests()).map(|n| first_ns + (2 * n + 1) * SECOND / (2 * self.rate));
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

    /// How many latencies are long: at least, and at most with what may be added to each.
    fn long(&self, added_ns: u64) -> (u64, u64) {
        let beyond = |added_ns| {
            // To three digits, 16 ms is anything up to 16.015 ms.
            let bound_ns = if added_ns == 0 {
                LONG_NS + 16 * US
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

/// `found` is at least `least`, and too long if it is more than `most`.
fn within(name: &str, found: u64, (least, most): (u64, u64), of: u64) -> Option<TooLong> {
    assert!(
        found >= least,
        "{name}: {found} are long, where {least} are"
    );
    (found > most).then(|| TooLong {
        whose: Whose::Client,
        what: format!("{name}: {found} are long, where {least} to {most} should be"),
        beyond: (found - most) as f64 / of as f64,
    })
}

/// The service time that is reported, against what the stub's record has.
fn service(outcome: &Outcome, p: f64) -> Option<TooLong> {
    let histogram = outcome.results().service.histogram();
    let found_us = histogram.value_at_quantile(p);
    let mut true_ns: Vec<u64> = outcome.report.times.iter().map(Times::true_ns).collect();
    true_ns.sort_unstable();
    let happened_us = quantile(&true_ns, p) / US;
    eprintln!("service p{p}: {found_us} us, {happened_us} us happened");
    (found_us > happened_us + happened_us / 50).then(|| TooLong {
        whose: Whose::Client,
        what: format!("service p{p} of {found_us} us where {happened_us} us happened"),
        beyond: 1.0 - p,
    })
}

fn check_one_connection(scene: Scene) {
    let _turn = run::turn();
    judged(
        || scene.run_open(),
        |outcome| {
            let (results, requests) = (outcome.results(), scene.requests());
            assert_eq!(results.tally.good, requests);
            let long = scene.long(ADDED_NS);
            assert!(long.0 > requests / 10, "a stall is a part of every round");
            let once = (scene.stalls, scene.stalls);
            let mut found = vec![
                within("latency", long_ones(&results.latency), long, requests),
                within("service", long_ones(&results.service), once, requests),
            ];
            // The longest wait is that of the one that was sent last before the stall, or first
            // in it; and that, alone, is what the service time has to say.
            let longest_us = results.latency.max_us().unwrap();
            let gap_us = SECOND / scene.rate / US;
            assert!(longest_us + gap_us >= scene.stall.length_ns / US);
            found.extend([0.5, 0.9, 0.99].map(|p| service(outcome, p)));
            found.into_iter().flatten().collect()
        },
    );
}

const STALL: Stall = Stall {
    length_ns: 200 * MS,
    every_ns: SECOND,
};

#[test]
fn latency_has_the_whole_queue_and_service_one_long_time_a_stall() {
    check_one_connection(Scene {
        stall: STALL,
        rate: 30,
        connections: 1,
        stalls: 3,
    });
}

/// Where every request finds a connection, it is out while the responder stands still: then the
/// service time sees the stall, too.
#[test]
fn with_a_connection_for_each_service_sees_what_latency_sees() {
    let _turn = run::turn();
    let scene = Scene {
        stall: STALL,
        rate: 300,
        connections: 120,
        stalls: 3,
    };
    judged(
        || scene.run_open(),
        |outcome| {
            let (results, requests) = (outcome.results(), scene.requests());
            assert_eq!(results.tally.good, requests);
            let long = scene.long(BURST_NS);
            let found = [
                within("latency", long_ones(&results.latency), long, requests),
                within("service", long_ones(&results.service), long, requests),
            ];
            found.into_iter().flatten().collect()
        },
    );
}

/// A closed loop asks nothing while it waits: of a fifth of the time one request in hundreds tells.
#[test]
fn a_closed_loop_hides_a_stall() {
    let _turn = run::turn();
    let scene = Scene {
        stall: STALL,
        rate: 0,
        connections: 1,
        stalls: 2,
    };
    judged(
        || {
            let stub = scene.stub();
            let mut plan = closed(stub.address(), 1, u64::MAX);
            plan.requests_max = None;
            plan.phases[0].end_ns = scene.stalls * STALL.every_ns;
            let begin_ns = stub.begin_ns();
            run_from(plan, stub, 1, |ready_ns| scene.start_ns(begin_ns, ready_ns))
        },
        |outcome| {
            let results = outcome.results();
            let requests = results.tally.good;
            let once = (scene.stalls, scene.stalls);
            let found = within("latency", long_ones(&results.latency), once, requests);
            found.into_iter().collect()
        },
    );
}
