//! Queueing theory: with Poisson arrivals and exponential service, what a load generator sees of a
//! queue is known in closed form (L. Kleinrock, *Queueing Systems*, volume 1, 3.2 and 3.5).
//!
//! Theory speaks of the mean over all runs. How far the mean of one run may be from it is an interval
//! that is computed from the run (`statistics::Interval`); a time may also be longer than theory has
//! it by what measuring adds, 200 us at most: a timer, two wake-ups of CPUs that sleep and two ways
//! through the kernel. How far the reported times may be from those of the stub's record, which are
//! of the same run, is not left to chance.

use loadline_load::Arrivals;
use loadline_stub::{Draw, Latency, StubOptions};

use crate::run::{self, Outcome, SECOND, open};
use crate::statistics::{Interval, mean};
use crate::witness::{TooLong, judged};

/// What measuring may add to a time, in seconds.
const ADDED_S: f64 = 200e-6;

/// A queue with `servers` servers: M/M/c.
#[derive(Clone, Copy)]
struct Queue {
    /// Requests arriving, per second.
    arrivals: f64,
    /// Requests that one server serves, per second.
    service: f64,
    servers: u32,
    duration_ns: u64,
}

impl Queue {
    /// Probability that a request has to wait (Erlang's C formula).
    fn waiting_share(&self) -> f64 {
        let (offered, servers) = (self.arrivals / self.service, f64::from(self.servers));
        let mut term = 1.0; // offered^k / k!
        let mut sum = 0.0;
        for k in 0..self.servers {
            sum += term;
            term *= offered / f64::from(k + 1);
        }
        let all_busy = term * servers / (servers - offered);
        all_busy / (sum + all_busy)
    }

    fn mean_wait_s(&self) -> f64 {
        self.waiting_share() / (f64::from(self.servers) * self.service - self.arrivals)
    }

    fn mean_response_s(&self) -> f64 {
        self.mean_wait_s() + 1.0 / self.service
    }

    fn run(&self) -> Outcome {
        let seed = run::seed();
        let stub = run::stub(StubOptions {
            latency: Latency::Exponential {
                mean_ns: 1e9 / self.service,
            },
            draw: Draw::Independent,
            servers: Some(self.servers),
            seed: seed.wrapping_add(1),
            ..StubOptions::default()
        });
        let poisson = Arrivals::Poisson;
        let address = stub.address();
        let mut plan = open(address, 500, self.arrivals, self.duration_ns, poisson);
        plan.seed = seed;
        run::run(plan, stub)
    }
}

/// True response times in seconds, in the order of arrival.
fn responses_s(outcome: &Outcome) -> Vec<f64> {
    let mut times = outcome.report.times.clone();
    times.sort_unstable_by_key(|times| times.number);
    times
        .iter()
        .map(|times| times.true_ns() as f64 / 1e9)
        .collect()
}

/// `found` is within `interval.half` of `theory`, or by at most `added` above that.
fn near(what: &str, found: f64, theory: f64, half: f64, added: f64) -> Option<TooLong> {
    eprintln!("{what}: {found:.6}, in theory {theory:.6}, interval +-{half:.6}");
    assert!(
        found >= theory - half,
        "{what}: {found:.6} is below {theory:.6} - {half:.6}"
    );
    (found > theory + half + added).then(|| TooLong {
        what: format!("{what}: {found:.6} is above {theory:.6} + {half:.6}"),
        beyond: 0.05,
    })
}

/// The mean that is reported: of this run, and of the theory.
fn judge_mean(queue: &Queue, outcome: &Outcome) -> Vec<TooLong> {
    let results = outcome.results();
    let requests = (queue.arrivals * queue.duration_ns as f64 / SECOND as f64) as u64;
    assert_eq!(results.tally.offered, requests);
    assert_eq!(results.tally.good, requests);
    assert_eq!(outcome.report.counts.answers, requests);
    let responses_s = responses_s(outcome);
    let (interval, happened_s) = (Interval::of(&responses_s), mean(&responses_s));
    let found_s = results.latency.mean_us().unwrap() / 1e6;
    // The mean of times in whole microseconds, and three digits.
    assert!(
        found_s >= happened_s * 0.999 - 1e-6,
        "{found_s} {happened_s}"
    );
    let longer = (found_s > happened_s + ADDED_S).then(|| TooLong {
        what: format!("mean of {found_s:.6} s where {happened_s:.6} s happened"),
        beyond: 0.05,
    });
    let (theory_s, half) = (queue.mean_response_s(), interval.half);
    let vague = (half > theory_s / 2.0).then(|| TooLong {
        what: format!("an interval of {half:.6} s says nothing about {theory_s:.6} s"),
        beyond: 0.05,
    });
    let mean = near("mean response", found_s, theory_s, half, ADDED_S);
    let wait_s = found_s - 1.0 / queue.service;
    let wait = near("mean wait", wait_s, queue.mean_wait_s(), half, ADDED_S);
    let little = outcome.record.verdict.little.unwrap();
    assert!(little.holds, "{little:?}");
    // The same law, with the theory on the other side.
    let in_flight = results.in_flight.unwrap();
    let law = near(
        "requests in flight",
        in_flight,
        queue.arrivals * theory_s,
        queue.arrivals * half,
        queue.arrivals * ADDED_S,
    );
    [longer, vague, mean, wait, law]
        .into_iter()
        .flatten()
        .collect()
}

/// The share of responses that are longer than some times, where it is exponential: M/M/1.
fn judge_tail(queue: &Queue, outcome: &Outcome) -> Vec<TooLong> {
    let responses_s = responses_s(outcome);
    let histogram = outcome.results().latency.histogram();
    let rate = queue.service - queue.arrivals;
    let mut found = Vec::new();
    for means in [0.5, 1.0, 2.0, 3.0] {
        let at_s = means / rate;
        let (theory, with_added) = ((-rate * at_s).exp(), (-rate * (at_s - ADDED_S)).exp());
        let is_longer = |s: &f64| f64::from(u8::from(*s > at_s));
        let longer: Vec<f64> = responses_s.iter().map(is_longer).collect();
        let half = Interval::of(&longer).half;
        let within = histogram.count_between(0, (at_s * 1e6) as u64);
        let share = 1.0 - within as f64 / histogram.len() as f64;
        // One bucket of the histogram at most is counted as within.
        let bucket = theory * rate * at_s * 0.001;
        let what = format!("share beyond {means} mean responses");
        let added = with_added - theory;
        found.extend(near(&what, share, theory, half + bucket, added));
    }
    found
}

#[test]
fn one_server_as_theory_has_it() {
    let _turn = run::turn();
    let queue = Queue {
        arrivals: 600.0,
        service: 1000.0,
        servers: 1,
        duration_ns: 8 * SECOND,
    };
    assert!((queue.mean_response_s() - 1.0 / 400.0).abs() < 1e-12);
    judged(
        || queue.run(),
        |outcome| {
            let mut found = judge_mean(&queue, outcome);
            found.extend(judge_tail(&queue, outcome));
            found
        },
    );
}

#[test]
fn two_servers_as_theory_has_it() {
    let _turn = run::turn();
    let queue = Queue {
        arrivals: 1000.0,
        service: 1000.0,
        servers: 2,
        duration_ns: 4 * SECOND,
    };
    assert!((queue.waiting_share() - 1.0 / 3.0).abs() < 1e-12);
    judged(|| queue.run(), |outcome| judge_mean(&queue, outcome));
}
