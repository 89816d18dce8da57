//! Percentiles of latency against the programmed distribution, and against what really happened.
//!
//! Service times are drawn in as many strata as there are requests, so that the percentiles of a
//! run are the programmed ones, without the error of a sample.

use loadline_load::Arrivals;
use loadline_load::trial::Distribution;
use loadline_stub::{Draw, Latency, Stub, StubOptions};

use crate::run::{self, MS, Outcome, SECOND, closed, open};
use crate::statistics::quantile;
use crate::witness::{TooLong, judged};

const REQUESTS: u64 = 10_000;
const PERCENTS: [f64; 3] = [50.0, 99.0, 99.9];

/// Means of 20 ms, so that 2 % of the median are more than what a timer, two wake-ups and two ways
/// through the kernel take: a virtual machine needs 30 us and more to wake a CPU that sleeps. 100
/// clients make 5000 requests a second.
const EXPONENTIAL: Latency = Latency::Exponential { mean_ns: 2e7 };
const BIMODAL: Latency = Latency::Bimodal {
    first_ns: 16 * MS,
    second_ns: 96 * MS,
    second_share: 0.05,
};
const CLIENTS: u32 = 100;
/// In a closed loop with a constant time all clients end up in step, and the stub, one thread, takes
/// several microseconds for each of the answers that are due at once: so there are few.
const IN_STEP: Latency = Latency::Constant { ns: 16 * MS };
const IN_STEP_CLIENTS: u32 = 24;

/// What a time may be too long by: 2 %, or 50 us if that is more.
fn tolerance_us(truth_us: f64) -> f64 {
    (truth_us * 0.02).max(50.0)
}

fn stub(latency: Latency) -> Stub {
    let options = StubOptions {
        latency,
        draw: Draw::Stratified {
            strata: REQUESTS as u32,
        },
        seed: run::seed(),
        ..StubOptions::default()
    };
    Stub::start(options).unwrap()
}

fn judge(outcome: &Outcome, latency: &Latency) -> Vec<TooLong> {
    let results = outcome.results();
    let counts = &outcome.report.counts;
    assert_eq!((counts.requests, counts.answers), (REQUESTS, REQUESTS));
    assert_eq!(
        (results.tally.sent, results.tally.good),
        (REQUESTS, REQUESTS)
    );
    assert_eq!(results.tally.errors_total(), 0);
    let times = outcome.report.times.iter();
    let mut true_ns: Vec<u64> = times.map(|times| times.true_ns()).collect();
    true_ns.sort_unstable();
    let mut found = Vec::new();
    for (name, times) in [("latency", &results.latency), ("service", &results.service)] {
        for percent in PERCENTS {
            found.extend(compare(name, times, percent, latency, &true_ns));
        }
    }
    found
}

fn compare(
    name: &str,
    times: &Distribution,
    percent: f64,
    latency: &Latency,
    true_ns: &[u64],
) -> Option<TooLong> {
    let p = percent / 100.0;
    let found_us = times.percentile_us(percent).unwrap() as f64;
    let happened_us = quantile(true_ns, p) as f64 / 1e3;
    // The histogram rounds to a microsecond, and up within its three digits.
    assert!(
        found_us >= happened_us - 1.0,
        "{name} p{percent} of {found_us} us is shorter than what happened, {happened_us} us"
    );
    // In the middle of its stratum: which of its ends was drawn is chance, and little.
    let programmed_us = latency.quantile_ns(p - 0.5 / REQUESTS as f64) as f64 / 1e3;
    let too_long = [("happened", happened_us), ("is programmed", programmed_us)]
        .into_iter()
        .find(|(_, truth_us)| found_us > truth_us + tolerance_us(*truth_us));
    too_long.map(|(how, truth_us)| TooLong {
        what: format!("{name} p{percent} of {found_us} us where {truth_us:.1} us {how}"),
        beyond: 1.0 - p,
    })
}

fn check_closed(latency: Latency, clients: u32) {
    let _turn = run::turn();
    judged(
        || {
            let stub = stub(latency);
            run::run(closed(stub.address(), clients, REQUESTS), stub)
        },
        |outcome| judge(outcome, &latency),
    );
}

fn check_open(latency: Latency) {
    let _turn = run::turn();
    let rate = 5000.0;
    let duration_ns = REQUESTS * SECOND / 5000;
    judged(
        || {
            let stub = stub(latency);
            let seed = run::seed();
            let mut plan = open(stub.address(), 600, rate, duration_ns, Arrivals::Poisson);
            plan.seed = seed;
            run::run(plan, stub)
        },
        |outcome| judge(outcome, &latency),
    );
}

#[test]
fn constant_in_a_closed_loop() {
    check_closed(IN_STEP, IN_STEP_CLIENTS);
}

#[test]
fn exponential_in_a_closed_loop() {
    check_closed(EXPONENTIAL, CLIENTS);
}

#[test]
fn bimodal_in_a_closed_loop() {
    check_closed(BIMODAL, CLIENTS);
}

#[test]
fn constant_in_an_open_loop() {
    check_open(Latency::Constant { ns: 20 * MS });
}

#[test]
fn exponential_in_an_open_loop() {
    check_open(EXPONENTIAL);
}

#[test]
fn bimodal_in_an_open_loop() {
    check_open(BIMODAL);
}

/// What the measuring itself adds to a time, where nothing else is to be measured: less than the
/// bound that the other tests are held to.
#[test]
fn nothing_takes_next_to_nothing() {
    let _turn = run::turn();
    judged(
        || {
            let stub = Stub::start(StubOptions::default()).unwrap();
            run::run(closed(stub.address(), 1, REQUESTS), stub)
        },
        |outcome| {
            let found_us = outcome.results().latency.percentile_us(50.0).unwrap();
            eprintln!("p50 {found_us} us");
            let is_long = found_us > 100; // two wake-ups and two ways through the kernel
            let too_long = is_long.then(|| TooLong {
                what: format!("p50 of {found_us} us where nothing takes time"),
                beyond: 0.5,
            });
            too_long.into_iter().collect()
        },
    );
}
