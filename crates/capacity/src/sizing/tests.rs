//! Sizes found on made-up servers, beside the best fixed size out of an exhaustive row.
//!
//! The thousands: `cargo test --profile fast -p loadline-capacity --lib thousands -- --ignored --nocapture`.

mod kinds;
mod overload;
mod picture;
mod table;
mod trial;
mod world;

use std::ops::Range;

use super::*;
use kinds::{CONNECTIONS_MAX, THREADS_MAX, draw, draw_database};
use table::table;
use trial::{Outcome, Pool, judge};
use world::{Arrivals, Kind, Load as Asked, Machine, Phase, Spread, World};

const BOUNDS: Bounds = Bounds { min: 1, max: 64 };

const THREADS: Pool = Pool {
    bounds: Bounds {
        min: 1,
        max: THREADS_MAX,
    },
    per_cpu: 1,
    seen: |_| (),
};

/// What connections wait for uses no CPU that is seen here.
const CONNECTIONS: Pool = Pool {
    bounds: Bounds {
        min: 2,
        max: CONNECTIONS_MAX,
    },
    per_cpu: 2,
    seen: |measured| {
        (measured.cpus, measured.shared_cpus) = (f64::INFINITY, f64::INFINITY);
        (measured.cpu_us, measured.others_cpu_us, measured.ready_us) = (0, 0, 0);
    },
};

fn of_threads(seed: u64) -> Vec<Outcome> {
    let (machine, loads) = draw(seed);
    judge(&THREADS, machine, &loads, seed)
}

fn of_connections(seed: u64) -> Vec<Outcome> {
    let (machine, loads) = draw_database(seed);
    judge(&CONNECTIONS, machine, &loads, seed)
}

/// Those of all seeds, by two threads.
fn outcomes(seeds: Range<u64>, of: fn(u64) -> Vec<Outcome>) -> Vec<Outcome> {
    let middle = u64::midpoint(seeds.start, seeds.end);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| (middle..seeds.end).flat_map(of).collect::<Vec<_>>());
        let mut all: Vec<_> = (seeds.start..middle).flat_map(of).collect();
        all.extend(second.join().unwrap());
        all
    })
}

fn assert_goals(outcomes: &[Outcome]) {
    println!("{}", table(outcomes));
    let part = |holds: fn(&Outcome) -> bool| {
        outcomes.iter().filter(|one| holds(one)).count() as f64 / outcomes.len() as f64
    };
    let worst = outcomes.iter().map(|one| one.share).fold(1.0, f64::min);
    assert!(worst > 0.6, "the least share of the best: {worst}");
    let near = part(|one| one.share >= 0.95);
    assert!(near >= 0.97, "have 0.95 of the best: {near}");
    // 1 in 20 is beyond 1.15 where the best size is measured once more.
    let quick = part(|one| one.p99 <= 1.15 * one.p99_again.max(1.0));
    assert!(quick >= 0.93, "have the p99 of the best: {quick}");
    let settled = part(|one| one.settle_s <= 5.0);
    assert!(settled >= 0.95, "settle within five seconds: {settled}");
    let calm = part(|one| one.changes <= 1 && one.leaps == 0);
    assert!(calm >= 0.95, "change by one step at most then: {calm}");
}

#[test]
fn sizes_on_made_up_servers_are_near_the_best() {
    assert_goals(&outcomes(0..20, of_threads));
}

#[test]
#[ignore = "by hand: a quarter of an hour with --profile fast"]
fn sizes_on_thousands_of_made_up_servers_are_near_the_best_by_hand() {
    assert_goals(&outcomes(1000..3000, of_threads));
}

#[test]
fn pools_of_connections_to_made_up_databases_are_near_the_best() {
    assert_goals(&outcomes(0..20, of_connections));
}

#[test]
#[ignore = "by hand: minutes with --profile fast"]
fn pools_of_connections_to_thousands_of_made_up_databases_are_near_the_best_by_hand() {
    assert_goals(&outcomes(1000..3000, of_connections));
}

const MACHINE: Machine = Machine {
    cpus: 2,
    stolen: 0.0,
    overhead_us: 8.0,
    thrash: 0.0,
    loop_us: 0.0,
    wake_us: 0.0,
    station_servers: 4,
    station_slows: 0.0,
};

fn asked(phase: Phase, arrivals: Arrivals) -> Asked {
    Asked {
        name: String::new(),
        kinds: vec![Kind {
            weight: 1.0,
            phases: [phase, Phase::Nothing, Phase::Nothing],
            spread: Spread::Some,
        }],
        arrivals,
    }
}

/// Sizes at the end of each interval; `ready` says whether the system tells that time.
fn sizes(loads: &[(f64, Asked)], size: usize, ready: bool) -> Vec<usize> {
    let mut sizer = Sizer::new(BOUNDS, size);
    let mut world = World::new(MACHINE, loads[0].1.clone(), sizer.size(), 7);
    let mut sizes = Vec::new();
    let mut now_us = 0.0;
    for (index, (lasts_s, load)) in loads.iter().enumerate() {
        if index > 0 {
            world.begin(load.clone());
        }
        let end_us = now_us + lasts_s * 1e6;
        while now_us < end_us {
            now_us += INTERVAL_MS as f64 * 1000.0;
            world.run_until(now_us);
            let mut measured = world.measure();
            if !ready {
                measured.ready_us = 0;
            }
            let decision = sizer.decide(&measured);
            assert_eq!(decision.size, sizer.size());
            world.set_size(decision.size);
            sizes.push(decision.size);
        }
    }
    sizes
}

fn open(jobs_per_s: f64) -> Arrivals {
    Arrivals::Open { jobs_per_s }
}

fn closed(clients: usize) -> Arrivals {
    Arrivals::Closed {
        clients,
        think_us: 0.0,
    }
}

#[test]
fn under_light_load_a_pool_does_not_grow() {
    for phase in [Phase::Nothing, Phase::Compute(1000.0), Phase::Sleep(1000.0)] {
        let load = asked(phase, open(20.0));
        assert_eq!(sizes(&[(20.0, load)], 2, true), [2; 200]);
    }
}

#[test]
fn threads_that_compute_are_as_many_as_cpus_and_those_that_sleep_as_many_as_jobs() {
    let computes = asked(Phase::Compute(1000.0), closed(40));
    let sleeps = asked(Phase::Sleep(10_000.0), closed(40));
    let loads = [(10.0, computes.clone()), (10.0, sleeps), (10.0, computes)];
    let sizes = sizes(&loads, 5, true);
    assert_eq!(sizes[50], 2);
    assert_eq!(sizes[150], 40);
    assert_eq!(sizes[250], 2);
}

#[test]
fn without_the_time_spent_ready_threads_that_compute_stay_few() {
    let load = asked(Phase::Compute(1000.0), closed(40));
    let sizes = sizes(&[(10.0, load)], 2, false);
    assert_eq!(sizes, [2; 100]);
}

#[test]
fn unused_threads_are_given_up() {
    let sleeps = |arrivals| asked(Phase::Sleep(10_000.0), arrivals);
    let loads = [(10.0, sleeps(closed(60))), (40.0, sleeps(open(5.0)))];
    let sizes = sizes(&loads, 2, true);
    assert!(sizes[99] >= 60, "{}", sizes[99]);
    assert!(sizes[499] <= 10, "{}", sizes[499]);
}

/// So many intervals with a queue until the pool grows.
fn intervals_until_it_grows(sizer: &mut Sizer) -> usize {
    let before = sizer.size();
    let grows = |_: &usize| follow(sizer, 1, |size| waited(size as u64, size)) > before;
    (1..=100).find(grows).expect("it grows")
}

/// A pool that has had nothing to do for some time, looked at once a second.
fn nothing(size: usize) -> Measured {
    Measured {
        interval_us: 1_000_000,
        ..stuck(size, 0)
    }
}

#[test]
fn a_pool_grows_at_once_for_a_burst_after_a_minute_of_nothing() {
    let mut sizer = Sizer::new(BOUNDS, 2);
    let usually = intervals_until_it_grows(&mut sizer);
    let mut sizer = Sizer::new(BOUNDS, 2);
    assert_eq!(follow(&mut sizer, 60, nothing), 2);
    let after_a_pause = intervals_until_it_grows(&mut sizer);
    assert!(after_a_pause < usually, "{after_a_pause} and {usually}");
    assert!(after_a_pause <= 2, "{after_a_pause}");
}

/// Before the pause jobs waited, and more threads brought nothing: no search began until a minute after that one.
#[test]
fn what_was_found_before_a_pause_keeps_no_pool_from_growing_for_a_burst() {
    let mut sizer = Sizer::new(BOUNDS, 2);
    sizer.waits = true;
    assert_eq!(follow(&mut sizer, 12, nothing), 2);
    assert_eq!(sizer.useful_max(), 2, "nothing has come yet");
    let after_a_pause = intervals_until_it_grows(&mut sizer);
    assert!(after_a_pause <= 2, "{after_a_pause}");
}

/// Nothing was decided for a second after a change, whatever came.
#[test]
fn a_pool_that_has_just_shrunk_in_a_pause_grows_at_once_for_a_burst() {
    let mut sizer = Sizer::new(BOUNDS, 8);
    assert_eq!(
        follow(&mut sizer, 10, nothing),
        7,
        "one step in ten seconds"
    );
    let after_a_pause = intervals_until_it_grows(&mut sizer);
    assert!(after_a_pause <= 2, "{after_a_pause}");
}

/// The time without jobs before it counted towards the ten seconds after which unused threads end.
#[test]
fn a_pool_does_not_shrink_when_jobs_come_after_a_pause() {
    let mut sizer = Sizer::new(BOUNDS, 8);
    assert_eq!(follow(&mut sizer, 20, nothing), 7);
    let size = follow(&mut sizer, 1, |size| Measured {
        interval_us: 1_000_000,
        jobs: 3,
        waits: waits(3, 0),
        ..stuck(size, 3)
    });
    assert_eq!(size, 7);
}

#[test]
fn a_pool_whose_threads_are_all_stuck_grows() {
    let mut sizer = Sizer::new(BOUNDS, 2);
    let size = follow(&mut sizer, 20, |size| stuck(size, size + 500));
    assert_eq!(size, BOUNDS.max);
}

/// The size after so many intervals, in each of which a pool does what `of` says of its size.
fn follow(sizer: &mut Sizer, intervals: usize, of: impl Fn(usize) -> Measured) -> usize {
    for _ in 0..intervals {
        sizer.decide(&of(sizer.size()));
    }
    sizer.size()
}

fn waits(jobs: u64, wait_us: u64) -> Waits {
    let mut waits = Waits::default();
    (0..jobs).for_each(|_| waits.record(wait_us));
    waits
}

/// So many jobs are there in an interval, none of which ends.
fn stuck(size: usize, jobs: usize) -> Measured {
    Measured {
        interval_us: 100_000,
        size,
        cpus: 2.0,
        shared_cpus: 2.0,
        jobs: 0,
        answers: 0,
        waits: Waits::default(),
        busy_us: 100_000 * size.min(jobs) as u64,
        cpu_us: 0,
        others_cpu_us: 0,
        ready_us: 0,
        loops: 0,
        loops_cpu_us: 0,
        loops_ready_us: 0,
        connections: 0,
        busy_max: size.min(jobs),
        present_max: jobs,
        queue_depth: jobs.saturating_sub(size),
    }
}

/// So many jobs end in an interval, of a hundred that are there.
fn waited(jobs: u64, size: usize) -> Measured {
    Measured {
        jobs,
        waits: waits(jobs, 100_000),
        ..stuck(size, 100)
    }
}

#[test]
fn a_pool_that_has_grown_for_stuck_threads_grows_again_however_late_the_next_job_comes() {
    for rest in [0, 3, 10, 1000] {
        let mut sizer = Sizer::new(BOUNDS, 2);
        let mut after = |intervals, jobs| follow(&mut sizer, intervals, |size| stuck(size, jobs));
        assert_eq!(after(20, 4), 4);
        assert_eq!(after(rest, 4), 4, "all have a thread, for {rest} intervals");
        assert_eq!(after(20, 5), 5, "after {rest} intervals");
    }
}

#[test]
fn a_pool_whose_threads_get_stuck_while_fewer_are_tried_grows_again() {
    let mut sizer = Sizer::new(BOUNDS, 8);
    // However many they are, they do as much: a station behind them is the limit.
    let mut fewest = sizer.size();
    for _ in 0..40 {
        let before = sizer.size();
        sizer.decide(&waited(40, before));
        fewest = fewest.min(sizer.size());
        if sizer.size() < before {
            break;
        }
    }
    assert!(fewest < 8, "fewer are tried");
    let size = follow(&mut sizer, 40, |size| stuck(size, 100));
    assert_eq!(size, BOUNDS.max);
}

#[test]
fn a_settled_pool_whose_threads_all_get_stuck_later_grows() {
    let mut sizer = settled_before_a_station();
    let settled = sizer.size();
    let mut after = |intervals| follow(&mut sizer, intervals, |size| stuck(size, 100));
    assert_eq!(after(20), settled, "two seconds may be chance");
    assert_eq!(after(50), BOUNDS.max);
}

/// A pool before a slow station, at which more threads bring nothing.
fn settled_before_a_station() -> Sizer {
    let mut sizer = Sizer::new(BOUNDS, 8);
    follow(&mut sizer, 200, |size| waited(4, size));
    assert_eq!((sizer.size(), sizer.useful_max()), (8, 8));
    sizer
}

#[test]
fn a_settled_pool_whose_threads_were_given_up_grows_under_the_next_load() {
    let mut sizer = settled_before_a_station();
    let size = follow(&mut sizer, 900, |size| stuck(size, 0));
    assert!(size <= 2, "unused: {size}");
    let size = follow(&mut sizer, 100, |size| waited(size as u64, size));
    assert!(size >= 8, "{size}");
}

#[test]
fn a_settled_pool_of_few_jobs_grows_where_more_threads_come_to_help() {
    let mut sizer = settled_before_a_station();
    let size = follow(&mut sizer, 800, |size| waited(size as u64 * 3 / 8, size));
    assert!(size > 8, "{size}");
}

#[test]
fn a_search_whose_load_ends_keeps_the_least_size() {
    let mut sizer = Sizer::new(Bounds { min: 16, max: 64 }, 16);
    follow(&mut sizer, 3, |size| waited(40, size));
    for _ in 0..10 {
        let decision = sizer.decide(&Measured {
            jobs: 1,
            waits: waits(1, 0),
            busy_us: 10_000,
            ..stuck(sizer.size(), 1)
        });
        assert!(decision.size >= 16, "{decision:?}");
    }
}

#[test]
fn threads_are_no_more_than_the_jobs_of_one_time() {
    let mut sizer = Sizer::new(BOUNDS, 2);
    for _ in 0..100 {
        let size = sizer.size();
        // Whatever their number, threads that are woken wait for the CPU; more of them seem to help.
        sizer.decide(&Measured {
            cpus: f64::INFINITY,
            shared_cpus: f64::INFINITY,
            jobs: 100,
            waits: waits(100, 50_000 / size as u64),
            busy_us: 100_000,
            cpu_us: 90_000,
            ..stuck(size, 20)
        });
        assert!(sizer.size() <= 20, "{}", sizer.size());
    }
    assert!(sizer.size() >= 10, "{}", sizer.size());
}

#[test]
fn a_search_ends_with_its_load() {
    let load = asked(Phase::Sleep(10_000.0), closed(40));
    let nothing = asked(Phase::Sleep(10_000.0), open(1e-6));
    let sizes = sizes(&[(0.6, load), (20.0, nothing)], 2, true);
    assert!(sizes[5] > 2, "it was searching: {:?}", &sizes[..6]);
    assert!(sizes[205] <= 10, "{}", sizes[205]);
}

#[test]
fn sizes_stay_within_bounds() {
    assert_eq!(Sizer::new(Bounds { min: 0, max: 0 }, 0).size(), 1);
    assert_eq!(Sizer::new(Bounds { min: 3, max: 5 }, 99).size(), 5);
    let load = asked(Phase::Sleep(10_000.0), closed(200));
    let sizes = sizes(&[(10.0, load)], 2, true);
    assert!(sizes.iter().all(|size| (1..=64).contains(size)));
    assert_eq!(sizes[99], 64);
}
