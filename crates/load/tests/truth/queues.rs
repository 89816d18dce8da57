//! Queueing theory: with Poisson arrivals and exponential service, what a load generator sees of a
//! queue is known in closed form (L. Kleinrock, *Queueing Systems*, volume 1, 3.2 and 3.5).
//!
//! Theory speaks of the mean over all runs. How far the mean of one run may be from it is an interval
//! that is computed from the run (`statistics::Interval`). It is held to the times at which answers
//! were due by the stub's record, which are arithmetic over the arrivals: if these are not Poisson,
//! the theory does not hold. The reported times are held to those that the record has of the same
//! run, which is not left to chance.
//!
//! A client that is kept from running sends at once what was due meanwhile, and these arrivals are
//! not Poisson. Where a server is busy half of the time, the backlog that such a group leaves adds as
//! much to the mean response as the wait for the client would have, on average over all requests; and
//! it takes as long to go as the client was kept.

use loadline_load::Arrivals;
use loadline_stub::{Draw, Latency, StubOptions, Times};

use crate::observer::{
    Lateness, PASSES_FROM_DUE, PASSES_GRANTED, PASSES_OF_ANSWER, TooLong, judged,
};
use crate::protocol::{Protocol, STREAMS};
use crate::run::{self, Outcome, SECOND, open};
use crate::statistics::{Interval, mean};

/// What measuring may add to a mean, in seconds: 75 to 108 us were seen in seven runs on a virtual
/// machine, where to wake a CPU that sleeps takes 20 to 100 us, twice for each request: once to send
/// it when it is due, and once for its answer.
const ADDED_S: f64 = 150e-6;

/// So long that the interval of the mean response of M/M/1 is 27 % to either side at the median, by 400
/// simulated runs of these rates. With arrivals evenly spaced the mean would be 37 % lower. In one run of
/// 100 the interval is too wide to say anything, and the run is repeated.
const DURATION_NS: u64 = 6 * SECOND;

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

    fn run(&self, protocol: Protocol) -> Outcome {
        let seed = run::seed();
        let stub = protocol.stub(StubOptions {
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
        let plan = open(address, 500, self.arrivals, self.duration_ns, poisson);
        let mut plan = protocol.spoken(plan, STREAMS);
        plan.seed = seed;
        run::run(plan, stub)
    }
}

/// Programmed response times in seconds, in the order of arrival.
fn responses_s(outcome: &Outcome) -> Vec<f64> {
    let mut times = outcome.report.times.clone();
    times.sort_unstable_by_key(|times| times.number);
    let programmed = times.iter().map(|times| times.due_ns - times.arrived_ns);
    programmed.map(|ns| ns as f64 / 1e9).collect()
}

/// `found` is within `half` of `theory`, or above that by what the machine may have `added`.
fn near(what: &str, found: f64, theory: f64, half: f64, added: f64) -> Option<TooLong> {
    eprintln!("{what}: {found:.6}, in theory {theory:.6}, interval +-{half:.6}, added {added:.6}");
    ((found - theory).abs() > half).then(|| TooLong {
        what: format!("{what}: {found:.6} is not {theory:.6} +- {half:.6}"),
        is_explained: (theory..=theory + half + added).contains(&found),
    })
}

/// A figure of what happened, and the most that a client without fault would have made of it.
struct Truth {
    happened: f64,
    granted: f64,
}

/// What is reported is what happened, and at most `added` above that.
fn reported(what: &str, found: f64, truth: &Truth, added: f64) -> Option<TooLong> {
    let Truth { happened, granted } = truth;
    let what =
        format!("{what}: {found:.6} is reported, {happened:.6} happened, {granted:.6} is granted");
    eprintln!("{what}");
    (found > happened + added).then(|| TooLong {
        what,
        is_explained: found <= granted + added,
    })
}

/// The mean that is reported: of this run, and of the theory.
fn judge_mean(queue: &Queue, outcome: &Outcome, lateness: &Lateness) -> Vec<TooLong> {
    let results = outcome.results();
    let requests = (queue.arrivals * queue.duration_ns as f64 / SECOND as f64) as u64;
    assert_eq!(results.tally.offered, requests);
    assert_eq!(results.tally.good, requests);
    assert_eq!(outcome.report.counts.answers, requests);
    let happened_s: Vec<f64> = (outcome.report.times.iter())
        .map(|times| times.true_ns() as f64 / 1e9)
        .collect();
    let (found_s, happened_s) = (results.latency.mean_us().unwrap() / 1e6, mean(&happened_s));
    // The mean of times in whole microseconds, and three digits.
    assert!(
        found_s >= happened_s * 0.999 - 1e-6,
        "{found_s} {happened_s}"
    );
    let added_s = ADDED_S.max(happened_s * 0.02);
    let truth = |times: f64, passes| Truth {
        happened: times * happened_s,
        granted: times * (happened_s + lateness.added_to_mean_s(passes + PASSES_GRANTED)),
    };
    let in_flight = truth(queue.arrivals, PASSES_OF_ANSWER);
    let (theory_s, programmed_s) = (queue.mean_response_s(), responses_s(outcome));
    let Interval { mean, half } = Interval::of(&programmed_s);
    let bunched_s = lateness.added_to_mean_s(1 + PASSES_GRANTED);
    let vague = (half > theory_s / 2.0).then(|| TooLong {
        what: format!("an interval of {half:.6} s says nothing about {theory_s:.6} s"),
        // If all of it was added in one batch.
        is_explained: half <= theory_s / 2.0 + Interval::half_of_outlier(bunched_s),
    });
    let little = outcome.record.verdict.little.unwrap();
    assert!(little.holds, "{little:?}");
    let found = [
        reported(
            "mean response",
            found_s,
            &truth(1.0, PASSES_FROM_DUE),
            added_s,
        ),
        near("mean response", mean, theory_s, half, bunched_s),
        near(
            "mean wait",
            mean - 1.0 / queue.service,
            queue.mean_wait_s(),
            half,
            bunched_s,
        ),
        // Little's law, with what happened on the other side.
        reported(
            "requests in flight",
            results.in_flight.unwrap(),
            &in_flight,
            queue.arrivals * added_s,
        ),
        vague,
    ];
    found.into_iter().flatten().collect()
}

/// The share of responses that are longer than some times, where it is exponential: M/M/1.
fn judge_tail(queue: &Queue, outcome: &Outcome, lateness: &Lateness) -> Vec<TooLong> {
    let programmed_s = responses_s(outcome);
    let histogram = outcome.results().latency.histogram();
    let times = outcome.report.times.iter();
    let mut happened_ns: Vec<u64> = times.map(Times::true_ns).collect();
    happened_ns.sort_unstable();
    let granted_ns = lateness.added_to(&happened_ns, PASSES_FROM_DUE + PASSES_GRANTED);
    let share_beyond = |sorted_ns: &[u64], bound_ns: u64| {
        let within = sorted_ns.partition_point(|ns| *ns <= bound_ns);
        1.0 - within as f64 / sorted_ns.len() as f64
    };
    let rate = queue.service - queue.arrivals;
    let mut found = Vec::new();
    for means in [0.5, 1.0, 2.0, 3.0] {
        let (at_s, theory) = (means / rate, f64::exp(-means));
        let is_longer = |s: &f64| f64::from(u8::from(*s > at_s));
        let longer: Vec<f64> = programmed_s.iter().map(is_longer).collect();
        let Interval { mean, half } = Interval::of(&longer);
        let what = format!("share beyond {means} mean responses");
        let bunched = 2.0 * lateness.disturbed_share();
        found.extend(near(&what, mean, theory, half, bunched));
        // Below the bucket of the histogram, and before what measuring may add.
        let at_us = at_s * 1e6;
        let within = histogram.count_between(0, at_us as u64);
        let share = 1.0 - within as f64 / histogram.len() as f64;
        let least_ns = ((at_s * 0.999 - ADDED_S.max(at_s * 0.02)) * 1e9) as u64;
        let truth = Truth {
            happened: share_beyond(&happened_ns, least_ns),
            granted: share_beyond(&granted_ns, least_ns),
        };
        found.extend(reported(&what, share, &truth, 0.0));
    }
    found
}

/// M/M/1.
pub(crate) fn a_queue_before_one_server(protocol: Protocol) {
    let queue = Queue {
        arrivals: 700.0,
        service: 1400.0,
        servers: 1,
        duration_ns: DURATION_NS,
    };
    assert!((queue.mean_response_s() - 1.0 / 700.0).abs() < 1e-12);
    judged(
        &format!("a queue before one server, {protocol:?}"),
        || queue.run(protocol),
        |outcome, lateness| {
            let mut found = judge_mean(&queue, outcome, lateness);
            found.extend(judge_tail(&queue, outcome, lateness));
            found
        },
    );
}

/// M/M/2.
pub(crate) fn a_queue_before_two_servers(protocol: Protocol) {
    let queue = Queue {
        arrivals: 1000.0,
        service: 1000.0,
        servers: 2,
        duration_ns: DURATION_NS,
    };
    assert!((queue.waiting_share() - 1.0 / 3.0).abs() < 1e-12);
    judged(
        &format!("a queue before two servers, {protocol:?}"),
        || queue.run(protocol),
        |outcome, lateness| judge_mean(&queue, outcome, lateness),
    );
}
