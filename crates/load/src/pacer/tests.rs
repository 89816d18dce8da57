//! Without a clock: due times against the schedule, and against what a Poisson process is.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::schedule::{Split, Steps};

const S: u64 = 1_000_000_000;

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

fn constant(rate: f64, duration_s: f64) -> Schedule {
    Schedule::constant(rate, seconds(duration_s)).unwrap()
}

fn due(schedule: &Schedule, arrivals: Arrivals, share: Share, seed: u64) -> Vec<u64> {
    Pacer::new(schedule, arrivals, share, seed).collect()
}

fn poisson(schedule: &Schedule, seed: u64) -> Vec<u64> {
    due(schedule, Arrivals::Poisson, Share::WHOLE, seed)
}

/// The due times of all shares together, in order.
fn union(schedule: &Schedule, arrivals: Arrivals, of: u32, seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..of)
        .flat_map(|index| due(schedule, arrivals, Share { index, of }, seed))
        .collect();
    all.sort_unstable();
    all
}

/// How many requests are due before `ns`.
fn integral(schedule: &Schedule, ns: u64) -> f64 {
    let (mut sum, mut left_ns) = (0.0, ns);
    for segment in &schedule.segments {
        let len_ns = left_ns.min(segment.len_ns);
        let at = len_ns as f64 / segment.len_ns as f64;
        let rate_then = segment.rate_begin + (segment.rate_end - segment.rate_begin) * at;
        sum += (segment.rate_begin + rate_then) / 2.0 * len_ns as f64 / 1e9;
        left_ns -= len_ns;
    }
    sum
}

/// The Kolmogorov-Smirnov statistic times the square root of the count, of numbers that should be
/// uniform on [0, 1): above 1.95 in one of a thousand cases.
fn kolmogorov_smirnov(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let count = numbers.len() as f64;
    let distances = numbers.iter().enumerate().map(|(index, number)| {
        let index = index as f64;
        (number - index / count).max((index + 1.0) / count - number)
    });
    distances.fold(0.0, f64::max) * count.sqrt()
}

/// The same of gaps that should be exponential, in units of their mean.
fn distance_from_exponential(gaps: &[f64]) -> f64 {
    kolmogorov_smirnov(gaps.iter().map(|gap| 1.0 - (-gap).exp()).collect())
}

/// The gaps between times, in units of their mean at `rate`.
fn gaps(times_ns: &[u64], rate: f64) -> Vec<f64> {
    let pairs = times_ns.windows(2);
    pairs
        .map(|two| (two[1] - two[0]) as f64 * rate / 1e9)
        .collect()
}

/// Variance over mean of the counts in windows: 1 where arrivals are independent.
fn dispersion(times_ns: &[u64], window_ns: u64, windows: usize) -> f64 {
    let mut counts = vec![0.0; windows];
    for time_ns in times_ns {
        counts[(time_ns / window_ns) as usize] += 1.0;
    }
    let mean = counts.iter().sum::<f64>() / windows as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    squares / (windows - 1) as f64 / mean
}

/// Arrivals are independent.
#[track_caller]
fn assert_disperse(times_ns: &[u64], window_ns: u64, windows: usize) {
    let index = dispersion(times_ns, window_ns, windows);
    let bound = 4.0 * (2.0 / windows as f64).sqrt();
    assert!((index - 1.0).abs() < bound, "{windows}: {index}");
}

fn correlation_of_neighbours(numbers: &[f64]) -> f64 {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let variance: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    let pairs = numbers.windows(2);
    pairs
        .map(|two| (two[0] - mean) * (two[1] - mean))
        .sum::<f64>()
        / variance
}

#[test]
fn constant_arrivals_are_evenly_spaced_from_half_a_gap_on() {
    let times = due(&constant(1000.0, 2.0), Arrivals::Constant, Share::WHOLE, 0);
    let expected: Vec<u64> = (0..2000).map(|k| 500_000 + k * 1_000_000).collect();
    assert_eq!(times, expected);
}

#[test]
fn after_the_last_arrival_there_is_none() {
    let mut pacer = Pacer::new(&constant(10.0, 1.0), Arrivals::Poisson, Share::WHOLE, 3);
    assert_eq!((pacer.by_ref().count(), pacer.next()), (10, None));
}

#[test]
fn the_rate_of_every_step_is_exact() {
    let steps = Steps {
        from: 100.0,
        to: 2500.0,
        by: 100.0,
    };
    let schedule = Schedule::steps(steps, seconds(10.0)).unwrap();
    let schedule = schedule.after_warm_up(seconds(3.0));
    let phases = schedule.phases(seconds(3.0), Split::Segments);
    assert_eq!(phases.len(), 26);
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        for of in [1, 3] {
            let times = union(&schedule, arrivals, of, 11);
            for phase in &phases {
                let within = |ns: &&u64| (phase.begin_ns..phase.end_ns).contains(*ns);
                let count = times.iter().filter(within).count() as f64;
                let planned = phase.rate.unwrap() * (phase.end_ns - phase.begin_ns) as f64 / 1e9;
                assert_eq!(count, planned, "{arrivals:?} {}", phase.label);
            }
        }
    }
}

#[test]
fn gaps_of_poisson_arrivals_are_exponential() {
    for seed in 0..20 {
        let times = poisson(&constant(2000.0, 10.0), seed);
        let gaps = gaps(&times, 2000.0);
        let distance = distance_from_exponential(&gaps);
        assert!(distance < 1.95, "seed {seed}: {distance}");
        let correlation = correlation_of_neighbours(&gaps) * (gaps.len() as f64).sqrt();
        assert!(correlation.abs() < 4.0, "seed {seed}: {correlation}");
    }
}

#[test]
fn windows_of_poisson_arrivals_vary_as_they_should() {
    for seed in 0..20 {
        let times = poisson(&constant(5000.0, 20.0), seed);
        // The count of the whole is fixed, so that of a window varies by (1 - window/whole) less.
        for (window_ns, windows) in [(1_000_000, 20_000), (10_000_000, 2000), (100_000_000, 200)] {
            let index = dispersion(&times, window_ns, windows);
            let bound = 4.0 * (2.0 / windows as f64).sqrt() + 1.0 / windows as f64;
            assert!((index - 1.0).abs() < bound, "{seed} {window_ns}: {index}");
        }
        let even = due(
            &constant(5000.0, 20.0),
            Arrivals::Constant,
            Share::WHOLE,
            seed,
        );
        assert!(dispersion(&even, 10_000_000, 2000) < 0.01);
    }
}

#[test]
fn the_union_of_shares_is_a_poisson_process() {
    for (seed, of) in [(1, 2), (2, 4), (3, 7), (4, 50)] {
        let schedule = constant(4000.0, 10.0);
        let times = union(&schedule, Arrivals::Poisson, of, seed);
        assert_eq!(times.len(), 40_000);
        let gaps = gaps(&times, 4000.0);
        let distance = distance_from_exponential(&gaps);
        assert!(distance < 1.95, "{of} shares: {distance}");
        assert_disperse(&times, 10_000_000, 1000);
        let correlation = correlation_of_neighbours(&gaps) * (gaps.len() as f64).sqrt();
        assert!(correlation.abs() < 4.0, "{of} shares: {correlation}");
    }
}

#[test]
fn the_union_of_shares_in_turn_is_the_whole() {
    let mut schedule = Schedule::ramp(10.0, 3000.0, seconds(2.0)).unwrap();
    schedule.segments.extend(constant(777.7, 1.3).segments);
    let whole = due(&schedule, Arrivals::Constant, Share::WHOLE, 0);
    assert_eq!(whole.len(), 4021);
    for of in [2, 3, 16, 5000] {
        assert_eq!(union(&schedule, Arrivals::Constant, of, 0), whole);
    }
}

#[test]
fn a_ramp_follows_its_line() {
    for (from, to) in [
        (0.0, 5000.0),
        (5000.0, 0.0),
        (100.0, 2000.0),
        (2000.0, 1999.999),
    ] {
        let schedule = Schedule::ramp(from, to, seconds(7.0)).unwrap();
        let times = due(&schedule, Arrivals::Constant, Share::WHOLE, 0);
        for (index, due_ns) in times.iter().enumerate() {
            let position = integral(&schedule, *due_ns);
            assert!(
                (position - index as f64 - 0.5).abs() < 1e-3,
                "{from} {to} {index}"
            );
        }
        let total = schedule.total();
        assert_eq!(times.len() as u64, arrivals_before(total));
        let spread = poisson(&schedule, 5);
        assert_eq!(spread.len(), times.len());
        let uniform = spread.iter().map(|ns| integral(&schedule, *ns) / total);
        let distance = kolmogorov_smirnov(uniform.collect());
        assert!(distance < 1.95, "{from} {to}: {distance}");
    }
}

#[test]
fn bursts_are_left_to_chance_each_and_their_sum_is_exact() {
    let (on, off) = (seconds(0.05), seconds(0.2));
    let schedule = Schedule::bursts(0.0, 2000.0, on, off, seconds(500.0)).unwrap();
    let times = poisson(&schedule, 9);
    assert_eq!(times.len(), 200_000);
    assert!(times.iter().all(|ns| ns % (S / 4) < S / 20));
    assert_disperse(&times, S / 4, 2000);
    let even = due(&schedule, Arrivals::Constant, Share::WHOLE, 9);
    assert_eq!(dispersion(&even, S / 4, 2000), 0.0);
}

#[test]
fn bursts_are_left_to_chance_however_long_the_pauses_are() {
    let (on, off) = (seconds(0.05), seconds(1.95));
    let schedule = Schedule::bursts(0.0, 2000.0, on, off, seconds(2000.0)).unwrap();
    let times = poisson(&schedule, 9);
    assert_eq!(times.len(), 100_000);
    assert_disperse(&times, 2 * S, 1000);
}

#[test]
fn a_pause_is_skipped() {
    let mut schedule = constant(3.0, 1.0);
    let pause = Segment {
        len_ns: 5 * S,
        rate_begin: 0.0,
        rate_end: 0.0,
    };
    schedule.segments.insert(0, pause);
    schedule.segments.push(pause);
    schedule.segments.extend(constant(1.0, 1.0).segments);
    let times = due(&schedule, Arrivals::Constant, Share::WHOLE, 0);
    assert_eq!(
        times,
        [5_166_666_666, 5_500_000_000, 5_833_333_333, 11_500_000_000]
    );
}

#[test]
fn ten_million_a_second_for_a_day_are_exact_to_the_last() {
    let schedule = constant(1e7, 86_400.0);
    let of = 20_000_003;
    for index in [0, 7, of - 1] {
        let share = Share { index, of };
        let mut number = u64::from(index);
        for due_ns in Pacer::new(&schedule, Arrivals::Constant, share, 0) {
            let exact = number * 100 + 50;
            assert!(due_ns == exact || due_ns + 1 == exact, "{due_ns} {exact}");
            number += u64::from(of);
        }
        assert!(number >= 864_000_000_000);
        let times = due(&schedule, Arrivals::Poisson, share, 1);
        assert_eq!(times.len() as u64, share.count(864_000_000_000));
        let uniform = times.iter().map(|ns| *ns as f64 / (86_400 * S) as f64);
        assert!(kolmogorov_smirnov(uniform.collect()) < 1.95);
    }
}

#[test]
fn gaps_of_a_microsecond_are_exponential_at_the_end_of_a_long_ramp() {
    // One share of a thousand of 10^12 requests; its last arrivals are a matter of microseconds.
    let schedule = Schedule::ramp(1e6, 1e9, seconds(2000.0)).unwrap();
    let share = Share {
        index: 500,
        of: 10_000_000,
    };
    let times = due(&schedule, Arrivals::Poisson, share, 3);
    let total = schedule.total();
    let uniform = times.iter().map(|ns| integral(&schedule, *ns) / total);
    assert!(kolmogorov_smirnov(uniform.collect()) < 1.95);
}

#[test]
fn one_in_a_hundred_seconds() {
    let schedule = constant(0.01, 86_400.0);
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        assert_eq!(union(&schedule, arrivals, 5, 1).len(), 864);
    }
    let gaps = gaps(&poisson(&schedule, 6), 0.01);
    assert!(distance_from_exponential(&gaps) < 1.95);
}

#[test]
fn a_seed_repeats_a_run() {
    let schedule = constant(100.0, 3.0);
    assert_eq!(poisson(&schedule, 1), poisson(&schedule, 1));
    assert_ne!(poisson(&schedule, 1), poisson(&schedule, 2));
    let share = |index| due(&schedule, Arrivals::Poisson, Share { index, of: 2 }, 1);
    assert_ne!(share(0), share(1));
}

#[test]
fn what_is_no_rate_is_a_rate_of_nothing() {
    for rate in [f64::NAN, f64::INFINITY, -5.0] {
        for (rate_begin, rate_end) in [(rate, rate), (0.0, rate), (rate, 0.0)] {
            let segments = vec![Segment {
                len_ns: S,
                rate_begin,
                rate_end,
            }];
            let schedule = Schedule { segments };
            for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
                assert!(due(&schedule, arrivals, Share::WHOLE, 0).is_empty());
            }
        }
    }
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let rate = prop_oneof![Just(0.0), 0.0..10.0, 10.0..3000.0];
    let len_ns = prop_oneof![Just(0), Just(1), 1..2 * S, 1..1000_u64];
    let flat = (rate.clone(), len_ns.clone()).prop_map(|(rate, len_ns)| (rate, rate, len_ns));
    let segment = prop_oneof![flat, (rate.clone(), rate, len_ns)];
    prop::collection::vec(segment, 0..8).prop_map(|segments| Schedule {
        segments: segments
            .into_iter()
            .map(|(rate_begin, rate_end, len_ns)| Segment {
                len_ns,
                rate_begin,
                rate_end,
            })
            .collect(),
    })
}

proptest! {
    #[test]
    fn due_times_never_run_backwards_nor_beyond_the_end(
        schedule in schedules(), of in 1_u32..20, seed: u64,
    ) {
        let count = arrivals_before(schedule.total());
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let mut sum = 0;
            for index in 0..of {
                let share = Share { index, of };
                let times = due(&schedule, arrivals, share, seed);
                prop_assert_eq!(times.len() as u64, share.count(count));
                prop_assert!(times.windows(2).all(|two| two[0] <= two[1]));
                prop_assert!(times.last().is_none_or(|last| *last < schedule.duration_ns()));
                sum += times.len() as u64;
            }
            prop_assert_eq!(sum, count);
        }
    }

    #[test]
    fn every_long_segment_has_its_number_of_arrivals(schedule in schedules(), seed: u64) {
        let times = poisson(&schedule, seed);
        let mut begin_ns = 0;
        let mut begin = 0.0;
        for segment in &schedule.segments {
            let end_ns = begin_ns + segment.len_ns;
            let end = begin + segment.total();
            if segment.len_ns >= STRETCH_NS_MIN {
                let within = times.iter().filter(|ns| (begin_ns..end_ns).contains(*ns)).count();
                prop_assert_eq!(within as u64, arrivals_before(end) - arrivals_before(begin));
            }
            (begin_ns, begin) = (end_ns, end);
        }
    }
}
