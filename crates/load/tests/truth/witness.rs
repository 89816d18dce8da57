//! Who kept whom from running: whether the machine can explain that a time was too long.
//!
//! There are five witnesses, none of which is the thing that is measured: how late the stub's own
//! answers were after their programmed moment; how long its thread, and the client's threads, could
//! have run and were not let (the kernel's `schedstat`); how long the hypervisor took the machine's
//! CPUs away; and how much of them other processes used, which makes every wake-up longer.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::run::{Outcome, US};

/// Runs of one test at most, if all are disturbed.
const ATTEMPTS: u32 = 4;
/// Time that all tests together may spend on repeating, in milliseconds: the suite is to end.
const REPEATING_MS_MAX: u64 = 12_000;
/// An answer that was later than this was disturbed: the stub spins towards its moment.
const LATE_NS: u64 = 20 * US;

/// From this share of the machine's CPU time on, other processes explain whatever is too long.
const OTHERS_SHARE_MIN: f64 = 0.1;

/// What the witnesses saw.
pub(crate) struct Disturbance {
    /// Share of the answers that were late.
    pub(crate) late_share: f64,
    /// Share of the time in which one of the two sides could have run and was not let.
    pub(crate) held_share: f64,
    /// Share of the time in which the hypervisor ran somebody else.
    pub(crate) stolen_share: f64,
    /// Share of the machine's CPU time that other processes used.
    pub(crate) others_share: f64,
}

impl Disturbance {
    /// `others_share`: of the time of the run, by `Ticks`.
    pub(crate) fn of(outcome: &Outcome, others_share: f64) -> Self {
        let times = &outcome.report.times;
        let late = times.iter().filter(|one| one.late_ns() > LATE_NS).count();
        let wall_s = outcome.results().seconds.max(1e-3);
        let threads = outcome.record.threads.iter();
        let client_s: f64 = threads
            .map(|thread| thread.run_delay_share * thread.wall_s)
            .sum();
        let stub_s = outcome.report.run_delay_ns as f64 / 1e9;
        Self {
            late_share: late as f64 / times.len().max(1) as f64,
            held_share: (client_s + stub_s) / wall_s,
            stolen_share: outcome.record.machine.steal_s.unwrap_or(0.0) / wall_s,
            others_share,
        }
    }

    /// Whether the part `beyond` of all times can be too long for reasons of the machine: the
    /// disturbances fell onto a quarter of them or more, or it was not ours.
    fn explains(&self, beyond: f64) -> bool {
        let is_crowded = self.others_share >= OTHERS_SHARE_MIN;
        is_crowded || self.late_share + self.held_share + self.stolen_share >= beyond / 4.0
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} % of the stub's answers late, threads kept from running for {:.3} % of the time, \
             {:.3} % stolen, {:.1} % of the CPUs used by others",
            self.late_share * 100.0,
            self.held_share * 100.0,
            self.stolen_share * 100.0,
            self.others_share * 100.0
        )
    }
}

/// CPU time so far, in ticks, as /proc/stat has it.
#[derive(Clone, Copy)]
struct Ticks {
    /// Of all CPUs, in which something ran.
    busy: f64,
    /// Of all CPUs.
    all: f64,
    /// Of this process.
    own: f64,
}

impl Ticks {
    fn now() -> Self {
        let (machine, own) = (text("/proc/stat"), text("/proc/self/stat"));
        let numbers = |text: &str| -> Vec<f64> {
            let words = text.split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // user, nice, system, idle, iowait, irq, softirq, steal
        let cpu = numbers(machine.lines().next().unwrap_or_default());
        let all: f64 = cpu.iter().take(8).sum();
        let idle: f64 = cpu.iter().skip(3).take(2).sum();
        // Behind the name in its brackets: state, then numbers, of which 11 and 12 are utime, stime.
        let own = numbers(own.rsplit(')').next().unwrap_or_default());
        Self {
            busy: all - idle,
            all,
            own: own.iter().skip(10).take(2).sum(),
        }
    }

    /// Share of the time since then that others used.
    fn others_share(self) -> f64 {
        let now = Self::now();
        let others = (now.busy - self.busy) - (now.own - self.own);
        others.max(0.0) / (now.all - self.all).max(1.0)
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A time that is too long, and which part of all times it concerns: 0.01 where the 99th percentile
/// is too large.
#[derive(Debug)]
pub(crate) struct TooLong {
    pub(crate) what: String,
    pub(crate) beyond: f64,
}

/// Runs and judges until a run is good. One that is not, and that the machine cannot explain, is a
/// failure.
pub(crate) fn judged(run: impl Fn() -> Outcome, judge: impl Fn(&Outcome) -> Vec<TooLong>) {
    static REPEATING_MS: AtomicU64 = AtomicU64::new(0);
    for attempt in 1..=ATTEMPTS {
        let (begin, ticks) = (Instant::now(), Ticks::now());
        let outcome = run();
        let others_share = ticks.others_share();
        let found = judge(&outcome);
        let disturbance = Disturbance::of(&outcome, others_share);
        eprintln!("run {attempt}: {disturbance}");
        for one in &found {
            eprintln!("  {}", one.what);
        }
        if found.is_empty() {
            return;
        }
        let unexplained = found.iter().find(|one| !disturbance.explains(one.beyond));
        if let Some(one) = unexplained {
            panic!(
                "{}, and the machine does not explain it: {disturbance}",
                one.what
            );
        }
        let took_ms = begin.elapsed().as_millis() as u64;
        if REPEATING_MS.fetch_add(took_ms, Ordering::Relaxed) + took_ms > REPEATING_MS_MAX {
            break;
        }
    }
    let message = "not judged: the machine disturbed every run";
    assert!(
        std::env::var_os("LOADLINE_TRUTH_STRICT").is_none(),
        "{message}"
    );
    eprintln!("{message}");
}
