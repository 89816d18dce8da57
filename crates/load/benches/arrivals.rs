//! What it costs to know when the next request is due, and which it is.
//!
//! `cargo bench -p loadline-load --bench arrivals` prints the time of 1000 of each.

use std::time::Duration;

use divan::{Bencher, black_box};
use loadline_load::pacer::Pacer;
use loadline_load::{Arrivals, Expectation, Mix, MixOrder, Prepared, Schedule, Share};

const LONG: Duration = Duration::from_secs(8_000_000);

fn main() {
    divan::main();
}

/// A thousand due times of a schedule that lasts longer than the benchmark.
fn a_thousand(bencher: Bencher<'_, '_>, schedule: Option<Schedule>, arrivals: Arrivals) {
    let schedule = schedule.unwrap_or_default();
    let mut pacer = Pacer::new(&schedule, arrivals, Share { index: 1, of: 4 }, 1);
    bencher.bench_local(|| {
        for _ in 0..1000 {
            black_box(pacer.next());
        }
    });
    assert!(pacer.next().is_some(), "the schedule has come to its end");
}

#[divan::bench]
fn poisson_at_a_rate(bencher: Bencher<'_, '_>) {
    a_thousand(
        bencher,
        Schedule::constant(1e4, LONG).ok(),
        Arrivals::Poisson,
    );
}

#[divan::bench]
fn poisson_on_a_ramp(bencher: Bencher<'_, '_>) {
    a_thousand(
        bencher,
        Schedule::ramp(1.0, 1e5, LONG).ok(),
        Arrivals::Poisson,
    );
}

#[divan::bench]
fn constant_at_a_rate(bencher: Bencher<'_, '_>) {
    a_thousand(
        bencher,
        Schedule::constant(1e4, LONG).ok(),
        Arrivals::Constant,
    );
}

#[divan::bench]
fn constant_on_a_ramp(bencher: Bencher<'_, '_>) {
    a_thousand(
        bencher,
        Schedule::ramp(1.0, 1e5, LONG).ok(),
        Arrivals::Constant,
    );
}

/// The end of a block, where a gap is a matter of few arrivals: blocks of 100.
#[divan::bench]
fn poisson_near_the_end(bencher: Bencher<'_, '_>) {
    let Ok(mut schedule) = Schedule::constant(400.0, Duration::from_secs(1)) else {
        return;
    };
    schedule.segments = schedule.segments.repeat(200_000);
    a_thousand(bencher, Some(schedule), Arrivals::Poisson);
}

#[divan::bench(args = [1, 4, 100, 10_000])]
fn choose(bencher: Bencher<'_, '_>, count: u32) {
    let mix = Mix {
        requests: vec![Prepared::get("a", "/"); count as usize],
        expectations: vec![Expectation::default()],
        order: MixOrder::Weighted((1..=count).map(f64::from).collect()),
    };
    let mut chooser = mix.chooser(Share::WHOLE, 1);
    bencher.bench_local(|| {
        for _ in 0..1000 {
            black_box(chooser.next(&mix));
        }
    });
}
