//! Whether event loops get too little of the CPUs beside the threads of a pool.
//!
//! Then they read and refuse less, so that more jobs are done, and a larger pool seems better; but clients wait for a
//! loop, which no queue shows.

use super::Measured;

/// Loops are runnable for so much of the time,
const RUNNABLE: f64 = 0.9;
/// and wait for a CPU for so many times as long as they run.
const WAITS: f64 = 3.0;
/// The pool's threads use so much of the CPUs: otherwise loops wait for something else.
const USED: f64 = 0.5;
/// If each client sends its next request at once, those that are connected wait for so long in the mean. With fewer
/// clients threads may have the CPUs first: each change to a loop and back takes time.
const MEAN_US: f64 = 250_000.0;

/// In this interval.
pub(super) fn are_starved(measured: &Measured) -> bool {
    let time_us = measured.interval_us as f64;
    let (cpu_us, ready_us) = (measured.loops_cpu_us as f64, measured.loops_ready_us as f64);
    let waits_long = measured.connections as f64 * time_us > MEAN_US * measured.answers as f64;
    let used_us = measured.shared_cpus * time_us * USED;
    measured.loops > 0
        && measured.cpu_us as f64 > used_us
        && cpu_us + ready_us > RUNNABLE * measured.loops as f64 * time_us
        && ready_us > WAITS * cpu_us
        && waits_long
}
