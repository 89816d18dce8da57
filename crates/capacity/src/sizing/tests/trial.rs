//! One sizer on one made-up server under two loads, beside every fixed size.

use super::world::{Load, Machine, World};
use crate::sizing::{Bounds, Decision, INTERVAL_MS, Measured, Sizer};
use crate::stats::quantile;

const INTERVAL_US: f64 = INTERVAL_MS as f64 * 1000.0;
/// A load lasts so long; it is judged from the fifth second on.
const LOAD_S: f64 = 15.0;
const SETTLED_S: f64 = 5.0;
/// A fixed size is measured by so many jobs, or for so long.
const ROW_JOBS: usize = 6000;
const ROW_S: f64 = 4.0;

/// What kind of pool it is.
pub(super) struct Pool {
    pub(super) bounds: Bounds,
    /// Begins with so many for each CPU.
    pub(super) per_cpu: usize,
    /// What is seen of it.
    pub(super) seen: fn(&mut Measured),
}

/// How a sizer did under one load.
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) name: String,
    pub(super) best: usize,
    pub(super) size: usize,
    /// Throughput, as a share of the best fixed size's.
    pub(super) share: f64,
    /// p99, as a multiple of the best fixed size's.
    pub(super) p99: f64,
    /// The same of the best fixed size, measured a second time.
    pub(super) p99_again: f64,
    /// Until the last change that was more than a step, in the first ten seconds.
    pub(super) settle_s: f64,
    /// Changes in the ten seconds after the fifth.
    pub(super) changes: usize,
    /// Those of more than one step.
    pub(super) leaps: usize,
}

pub(super) struct Run {
    jobs_per_s: f64,
    p99_us: f64,
}

/// A pool on a machine, under one load after the other.
pub(super) fn judge(pool: &Pool, machine: Machine, loads: &[Load], seed: u64) -> Vec<Outcome> {
    let mut sizer = Sizer::new(pool.bounds, pool.per_cpu * machine.cpus);
    let mut world = World::new(machine, loads[0].clone(), sizer.size(), seed);
    let mut outcomes = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        let began_us = index as f64 * LOAD_S * 1e6;
        if index > 0 {
            world.begin(load.clone());
        }
        let (run, trace) = follow(&mut sizer, &mut world, pool, began_us);
        let (best, fixed) = best_fixed(machine, load, pool.bounds, seed);
        let again = run_fixed(machine, load, best, seed + 500_000, 10.0, usize::MAX);
        let late = |decision: &&Decision| {
            decision.size != decision.from && decision.at_us as f64 - began_us > SETTLED_S * 1e6
        };
        let leaps = trace.iter().filter(late).filter(|d| !is_step(d)).count();
        let settled_us = trace
            .iter()
            .filter(|decision| decision.size != decision.from && !is_step(decision))
            .map_while(|d| (d.at_us as f64 - began_us < 1e7).then_some(d.at_us as f64))
            .last();
        outcomes.push(Outcome {
            seed,
            name: load.name.clone(),
            best,
            size: sizer.size(),
            share: run.jobs_per_s / fixed.jobs_per_s,
            p99: run.p99_us / fixed.p99_us,
            p99_again: again.p99_us / fixed.p99_us,
            settle_s: settled_us.map_or(0.0, |at_us| (at_us - began_us) / 1e6),
            changes: trace.iter().filter(late).count(),
            leaps,
        });
    }
    outcomes
}

fn is_step(decision: &Decision) -> bool {
    let step = (decision.from as f64 * 0.1).ceil() as usize;
    decision.size.abs_diff(decision.from) <= step.max(1)
}

fn follow(
    sizer: &mut Sizer,
    world: &mut World,
    pool: &Pool,
    began_us: f64,
) -> (Run, Vec<Decision>) {
    let mut trace = Vec::new();
    let intervals = (LOAD_S * 1e6 / INTERVAL_US) as usize;
    for interval in 1..=intervals {
        world.run_until(began_us + interval as f64 * INTERVAL_US);
        let mut measured = world.measure();
        (pool.seen)(&mut measured);
        let decision = sizer.decide(&measured);
        world.set_size(decision.size);
        trace.push(decision);
        if (interval as f64 * INTERVAL_US - SETTLED_S * 1e6).abs() < 1.0 {
            world.take_responses_us();
        }
    }
    let responses_us = world.take_responses_us();
    (Run::new(&responses_us, LOAD_S - SETTLED_S), trace)
}

/// Every size that could be best: of those with the most throughput, the one with the shortest
/// p99.
pub(super) fn best_fixed(machine: Machine, load: &Load, bounds: Bounds, seed: u64) -> (usize, Run) {
    let mut size = bounds.min;
    let mut row = Vec::new();
    while size <= bounds.max {
        let run = run_fixed(machine, load, size, seed + 1_000_000, ROW_S, ROW_JOBS);
        row.push((size, run));
        size = (size + 1).max((size as f64 * 1.15).round() as usize);
    }
    row.push((
        bounds.max,
        run_fixed(machine, load, bounds.max, seed + 1_000_000, ROW_S, ROW_JOBS),
    ));
    let most = row
        .iter()
        .map(|(_, run)| run.jobs_per_s)
        .fold(0.0, f64::max);
    let best = row
        .iter()
        .filter(|(_, run)| run.jobs_per_s >= 0.99 * most)
        .min_by(|a, b| a.1.p99_us.total_cmp(&b.1.p99_us))
        .map_or(1, |(size, _)| *size);
    // Measured again, as long as the sizer: the shortest of many is short by luck, too.
    let run = run_fixed(machine, load, best, seed + 2_000_000, 10.0, usize::MAX);
    (best, run)
}

fn run_fixed(
    machine: Machine,
    load: &Load,
    size: usize,
    seed: u64,
    run_s: f64,
    jobs: usize,
) -> Run {
    let mut world = World::new(machine, load.clone(), size, seed);
    world.run_while(1e6, jobs / 4);
    world.take_responses_us();
    let began_us = world.now_us();
    world.run_while(began_us + run_s * 1e6, jobs);
    let took_s = (world.now_us() - began_us) / 1e6;
    Run::new(&world.take_responses_us(), took_s)
}

impl Run {
    fn new(responses_us: &[f64], took_s: f64) -> Self {
        Self {
            jobs_per_s: responses_us.len() as f64 / took_s,
            p99_us: quantile(responses_us, 0.99).unwrap_or(0.0),
        }
    }
}
