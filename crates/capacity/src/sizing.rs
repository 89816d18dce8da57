//! How many threads a pool should have, from what its threads and its queue did: grows and shrinks
//! while it runs. Pure: it takes in what was measured in an interval, and answers with a number.
//!
//! ```text
//!            jobs wait, or the load is another one
//!   ┌──────┐ ─────────────────────────────────────► ┌───────┐
//!   │ hold │                                        │ climb │  tries sizes
//!   └──────┘ ◄───────────────────────────────────── └───────┘
//!                      a size was found
//! ```
//!
//! Four rules, each for what the others do not see:
//!
//! | rule | says | from |
//! |---|---|---|
//! | CPUs | no more threads than keep the CPUs busy: `CPUs x (1 + blocked / computing)` and some to spare; computing is what their jobs take of the CPUs, on them and on other threads (event loops). Threads that keep connections may be more where jobs compute briefly: `CPUs x (1 + 5 ms / CPU time of a job)` | the threads' time, by wall clock and CPU clock; the process's CPU clock |
//! | jobs | no more threads than there were jobs at one time | the peak of jobs on threads and in the queue |
//! | waits | if jobs do not wait for threads, no more threads; if threads had no job for long, fewer | Little's law, the peak of busy threads |
//! | climbing | if jobs wait: as many threads as make more throughput or shorter responses (`climb`) | throughput, waits |
//!
//! Where the CPUs have no time left and no job waits, clients wait before an event loop instead. Then
//! fewer threads may do more, since a job that waits costs no waking of a thread: one trial shows it. Where loops
//! hardly get a CPU beside the threads, and clients may wait long for them, no larger size is better, and the size
//! comes down to one thread for each CPU, and what threads that block need beside that (`loops`).
//!
//! The first alone would let a pool before a slow database grow without end, since waiting for the
//! database looks like sleep. The last alone would try sizes on a machine whose CPUs are taken.
//!
//! While a size is held, weak signs change it by one step in ten seconds at most. A new kind of load
//! (other CPU time or other time on a thread for each job) begins a new search. So does a minute in which
//! jobs wait and are too few to tell a new kind.

mod climb;
mod load;
mod loops;
mod sample;
mod waits;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use climb::{Climb, Next};
use load::Load;
use sample::{Pressure, Sample};
pub use waits::{BUCKETS, Waits, bucket};

/// The interval that the constants here are made for; others work.
pub const INTERVAL_MS: u64 = 100;

/// Intervals that are looked at together while the size is held.
const RECENT: usize = 10;
/// So many intervals with a queue begin a climb: one may be an accident.
const PRESSED_MIN: u32 = 3;
/// After a pause of this length there is no time to wait for more of them,
const PAUSE_US: f64 = 10e6;
/// for so long.
const BURST_US: f64 = 1e6;
/// So many with single jobs that wait.
const PRESSED_WEAKLY_MIN: u32 = 10;
/// While held, weak signs change the size by one step in this time.
const PERIOD_US: f64 = 10e6;
/// A load is new for so long.
const NEW_US: f64 = 4e6;
/// A step while held, as a share of the size.
const STEP: f64 = 0.1;
/// The size is reduced where it is so many times what the CPUs can use,
const TOO_MANY: f64 = 1.5;
/// or what was busy at once in the last 10 s: by a step,
const UNUSED: f64 = 1.5;
/// or at once.
const IDLE: f64 = 4.0;
/// All threads are busy.
const ALL: f64 = 0.95;
/// Jobs by which their kind is known.
const JOBS_MIN: u64 = 50;
/// Seconds whose peaks are kept.
const PEAKS: usize = 10;
/// If for so long jobs wait and none ends, what was found of the size no longer holds.
const STUCK_US: f64 = 3e6;
/// Nor does it after so long, if jobs are too few to know their kind by.
const UNTOLD_US: f64 = 60e6;
/// So many intervals show whether loops hardly have a CPU, so that there are to be fewer threads.
const STARVED_MIN: u32 = 5;
/// No change of size needs longer to show.
const LAG_MAX_US: f64 = 500_000.0;

/// Bounds of a size; both belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The fewest threads, 1 or more.
    pub min: usize,
    /// The most threads.
    pub max: usize,
}

/// What a pool did in one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Length of the interval.
    pub interval_us: u64,
    /// Threads at its end.
    pub size: usize,
    /// CPUs that the pool's threads may use; infinite where they also wait for what uses none of them: the
    /// clients whose connections they keep, a database.
    pub cpus: f64,
    /// CPUs that the pool's jobs and all else of the process share; infinite where jobs use no CPU here. The
    /// same as `cpus`, unless threads keep connections.
    pub shared_cpus: f64,
    /// Jobs done.
    pub jobs: u64,
    /// Responses of the whole server, as this pool's part, refusals and those that took no job included; 0 where
    /// they are unknown.
    pub answers: u64,
    /// How long the jobs that began waited in the queue.
    pub waits: Waits,
    /// Time that threads had a job, summed, jobs under way included.
    pub busy_us: u64,
    /// CPU time of all threads.
    pub cpu_us: u64,
    /// CPU time of other threads of the process, which jobs pass through before and after; 0 where it is
    /// unknown.
    pub others_cpu_us: u64,
    /// Time that threads were ready to run without a CPU (`schedstat`); 0 where it is unknown.
    pub ready_us: u64,
    /// Event loops of the server whose times are known; 0 where none are.
    pub loops: usize,
    /// CPU time of these.
    pub loops_cpu_us: u64,
    /// Time that they were ready to run without a CPU.
    pub loops_ready_us: u64,
    /// Connections of the whole server at the end, as this pool's part; 0 where they are unknown.
    pub connections: u64,
    /// The most threads that had a job at one time.
    pub busy_max: usize,
    /// The most jobs that there were at one time, on threads and in the queue.
    pub present_max: usize,
    /// Jobs in the queue at its end.
    pub queue_depth: usize,
}

/// Why a size was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The size is right, or nothing says otherwise yet.
    Hold,
    /// A new size has not shown what it does.
    Settle,
    /// Another size is tried.
    Try,
    /// The search ended with this size.
    Found,
    /// More threads than the CPUs can use, or than leave event loops enough of them.
    Cpus,
    /// Threads had no job for long.
    Unused,
    /// Some jobs wait: one step more.
    Step,
}

/// A decision, and what it was made from: a line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Time measured so far.
    pub at_us: u64,
    /// Threads before.
    pub from: usize,
    /// Threads that there should be.
    pub size: usize,
    /// Why.
    pub reason: Reason,
    /// Jobs done a second, since the last change of size.
    pub jobs_per_s: f64,
    /// Mean time of a job on its thread.
    pub service_us: f64,
    /// Mean wait in the queue.
    pub wait_mean_us: f64,
    /// The wait that one job in a hundred exceeds.
    pub wait_p99_us: f64,
    /// Mean number of threads with a job.
    pub busy: f64,
    /// CPUs that the threads used.
    pub cpus_used: f64,
    /// Threads that the CPUs can use, if all do as these.
    pub useful: f64,
}

/// Decides the size of one pool.
#[derive(Clone, Debug)]
pub struct Sizer {
    bounds: Bounds,
    size: usize,
    at_us: f64,
    /// Before this, what is measured belongs to the size before.
    settled_at_us: f64,
    /// Since the last change, or the last 10 s.
    level: Sample,
    recent: VecDeque<Sample>,
    /// The most busy threads of each of the last ten seconds.
    peaks: VecDeque<usize>,
    peak_began_us: f64,
    pressed: u32,
    climb: Option<Climb>,
    /// Jobs wait with the size that the last climb found; another size would not help.
    waits: bool,
    /// The load for which the size is right, once it is known.
    load: Option<Load>,
    /// When it was last seen to be another.
    shifted_at_us: f64,
    /// How long jobs have waited without one that ended.
    stuck_us: f64,
    /// When the last search ended.
    found_us: f64,
    /// For how long there was no job.
    idle_us: f64,
    /// Before this, jobs have begun to come after a pause.
    burst_until_us: f64,
}

impl Sizer {
    /// A sizer that begins with some size, brought within bounds.
    #[must_use]
    pub fn new(bounds: Bounds, size: usize) -> Self {
        let min = bounds.min.max(1);
        let bounds = Bounds {
            min,
            max: bounds.max.max(min),
        };
        Self {
            bounds,
            size: size.clamp(bounds.min, bounds.max),
            at_us: 0.0,
            settled_at_us: 0.0,
            level: Sample::default(),
            recent: VecDeque::new(),
            peaks: VecDeque::from([0]),
            peak_began_us: 0.0,
            pressed: 0,
            climb: None,
            waits: false,
            load: None,
            shifted_at_us: 0.0,
            stuck_us: 0.0,
            found_us: 0.0,
            idle_us: 0.0,
            burst_until_us: 0.0,
        }
    }

    /// Takes in what was measured since the last call, and decides.
    pub fn decide(&mut self, measured: &Measured) -> Decision {
        self.at_us += measured.interval_us as f64;
        self.note_peak(measured.busy_max);
        self.note_pause(measured);
        self.stuck_us = match measured.jobs == 0 && measured.queue_depth > 0 {
            true => self.stuck_us + measured.interval_us as f64,
            false => 0.0,
        };
        let (size, reason) = if self.at_us <= self.settled_at_us {
            (self.size, Reason::Settle)
        } else {
            self.level.add(measured);
            self.note_recent(measured);
            self.choose(measured)
        };
        let decision = self.describe(size, reason, measured);
        if size != self.size || reason == Reason::Found {
            self.change(size, measured.interval_us);
        }
        decision
    }

    /// The present size.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The most threads that would help: the present ones where jobs wait, and more were found to bring
    /// nothing.
    #[must_use]
    pub fn useful_max(&self) -> usize {
        match self.waits {
            true => self.size,
            false => self.bounds.max,
        }
    }

    fn choose(&mut self, measured: &Measured) -> (usize, Reason) {
        let recent = self.recent();
        let (cpus, shared_cpus) = (measured.cpus, measured.shared_cpus);
        let useful = recent.useful(cpus, shared_cpus);
        if let Some(fewer) = self.too_many(&recent, useful, shared_cpus) {
            self.climb = None;
            self.forget();
            self.shifted_at_us = self.at_us;
            return (fewer, Reason::Cpus);
        }
        if let Some(fewer) = self.starves_loops(&recent, cpus) {
            self.climb = None;
            // With more threads a search would find the same. The load is known by what it is with fewer.
            (self.waits, self.load) = (true, None);
            self.found_us = self.at_us;
            return (fewer, Reason::Cpus);
        }
        // More threads than there were jobs would have nothing to do.
        let useful = (useful.ceil() as usize).min(recent.present_max.max(self.level.present_max));
        let limits = (
            self.bounds.min,
            useful.clamp(self.bounds.min, self.bounds.max),
        );
        if let Some(climb) = &mut self.climb {
            return match climb.next(self.size, &self.level, cpus, limits) {
                Next::Wait => (self.size, Reason::Hold),
                Next::Try(size) => (size, Reason::Try),
                Next::Done { size, waits } => {
                    if climb.has_moved() {
                        self.load = None; // it is right for the present one
                    }
                    (self.waits, self.climb) = (waits, None);
                    self.found_us = self.at_us;
                    // A size by what was busy may be below the least.
                    (size.clamp(self.bounds.min, self.bounds.max), Reason::Found)
                }
            };
        }
        self.hold(&recent, limits.1, cpus)
    }

    /// Whether the size is to change, or a climb to begin.
    fn hold(&mut self, recent: &Sample, limit: usize, cpus: f64) -> (usize, Reason) {
        if self.peaks.len() >= PEAKS {
            let peak = self.peak();
            if self.size as f64 > IDLE * peak as f64 + 8.0 {
                let fewer = 2 * peak + 1;
                self.forget();
                return (fewer.max(self.bounds.min), Reason::Unused);
            }
        }
        if self.is_another_load() {
            let no_wait = recent.pressure() == Pressure::None;
            self.forget();
            self.shifted_at_us = self.at_us;
            if no_wait && recent.busy() > 2.0 * cpus {
                self.start(Climb::down());
                return (self.size, Reason::Hold);
            }
            if no_wait && recent.needed_of(self.size, cpus).is_some() {
                self.start(Climb::new());
                return (self.size, Reason::Hold);
            }
        }
        let is_untold = recent.jobs < JOBS_MIN && self.at_us - self.found_us >= UNTOLD_US;
        if self.waits && (self.stuck_us >= STUCK_US || is_untold) {
            self.forget();
            self.shifted_at_us = self.at_us;
        }
        let pressure = recent.pressure();
        self.pressed = match pressure {
            Pressure::None => 0,
            _ if self.at_us < self.burst_until_us => PRESSED_MIN.max(self.pressed + 1),
            _ => self.pressed + 1,
        };
        let pressed_min = match pressure {
            Pressure::Strong => PRESSED_MIN,
            _ if self.at_us - self.shifted_at_us < NEW_US => PRESSED_WEAKLY_MIN,
            _ => u32::MAX, // a step now and then is enough
        };
        let may_climb = self.size < limit || self.size as f64 > cpus;
        if self.pressed >= pressed_min && !self.waits && may_climb {
            let is_busy = recent.busy() > (ALL * self.size as f64).max(2.0 * cpus);
            self.start(match pressure < Pressure::Strong && is_busy {
                true => Climb::down(),
                false => Climb::new(),
            });
            return (self.size, Reason::Hold);
        }
        self.step(limit)
    }

    /// Once in ten seconds, one step.
    fn step(&mut self, limit: usize) -> (usize, Reason) {
        if self.level.time_us < PERIOD_US {
            return (self.size, Reason::Hold);
        }
        let pressure = std::mem::take(&mut self.level).pressure();
        let step = (STEP * self.size as f64).ceil() as usize;
        if pressure > Pressure::None && !self.waits && self.size < limit {
            ((self.size + step).min(limit), Reason::Step)
        } else if self.size as f64 > UNUSED * self.peak() as f64 + 2.0 {
            self.forget();
            ((self.size - step).max(self.bounds.min), Reason::Unused)
        } else {
            (self.size, Reason::Hold)
        }
    }

    /// Whether the load is not the one for which the size was found. If none is known, this is.
    fn is_another_load(&mut self) -> bool {
        if self.recent.len() < RECENT {
            return false;
        }
        let now = Load::new(&self.recent);
        if now.jobs < JOBS_MIN {
            return false;
        }
        let before = *self.load.get_or_insert(now);
        let rate = before.jobs_per_s.differs(&now.jobs_per_s);
        let kind = before.service_us.differs(&now.service_us) || before.cpu_us.differs(&now.cpu_us);
        kind || rate && self.waits
    }

    /// What the last search found no longer holds.
    fn forget(&mut self) {
        (self.waits, self.load) = (false, None);
    }

    fn start(&mut self, climb: Climb) {
        self.climb = Some(climb);
        self.level = Sample::default();
        self.pressed = 0;
    }

    /// The size to come down to, where threads wait for CPUs or use half of them.
    fn too_many(&self, recent: &Sample, useful: f64, cpus: f64) -> Option<usize> {
        let needs_cpus = recent.ready_us > 0.1 * recent.cpu_us || recent.cpus_used() > 0.5 * cpus;
        if recent.jobs < JOBS_MIN || !needs_cpus || self.size as f64 <= TOO_MANY * useful {
            return None;
        }
        let fewer = (useful.ceil() as usize).clamp(self.bounds.min, self.bounds.max);
        (fewer < self.size).then_some(fewer)
    }

    /// The size to come down to, where event loops hardly have a CPU beside the threads.
    fn starves_loops(&self, recent: &Sample, cpus: f64) -> Option<usize> {
        let is_known = recent.intervals >= STARVED_MIN;
        let needed = recent.threads_and_spare(cpus).ceil() as usize;
        let fewer = needed.clamp(self.bounds.min, self.bounds.max);
        (is_known && recent.starves_loops() && fewer < self.size).then_some(fewer)
    }

    fn recent(&self) -> Sample {
        let mut sum = Sample::default();
        for one in &self.recent {
            sum.merge(one);
        }
        sum
    }

    fn note_recent(&mut self, measured: &Measured) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let mut one = Sample::default();
        one.add(measured);
        self.recent.push_back(one);
    }

    fn note_peak(&mut self, busy_max: usize) {
        if self.at_us - self.peak_began_us >= 1e6 {
            self.peak_began_us = self.at_us;
            self.peaks.push_back(0);
            if self.peaks.len() > PEAKS {
                self.peaks.pop_front();
            }
        }
        if let Some(last) = self.peaks.back_mut() {
            *last = busy_max.max(*last);
        }
    }

    /// What was before a pause says nothing of the jobs that come after it.
    fn note_pause(&mut self, measured: &Measured) {
        let is_idle = measured.jobs == 0 && measured.busy_us == 0 && measured.queue_depth == 0;
        if is_idle {
            self.idle_us += measured.interval_us as f64;
            return;
        }
        if self.idle_us >= PAUSE_US {
            self.recent.clear();
            self.level = Sample::default();
            // Nothing is left that began with another size.
            self.settled_at_us = 0.0;
            self.forget();
            self.shifted_at_us = self.at_us;
            self.burst_until_us = self.at_us + BURST_US;
        }
        self.idle_us = 0.0;
    }

    fn peak(&self) -> usize {
        self.peaks.iter().copied().max().unwrap_or(0)
    }

    fn change(&mut self, size: usize, interval_us: u64) {
        let lag_us = match self.level.jobs {
            0 => 0.0,
            _ => self.level.service_us().min(LAG_MAX_US),
        };
        self.settled_at_us = self.at_us + lag_us.max(interval_us as f64);
        self.size = size;
        self.level = Sample::default();
        self.recent.clear();
        self.pressed = 0;
        self.peaks = VecDeque::from([0]);
        self.peak_began_us = self.at_us;
    }

    fn describe(&self, size: usize, reason: Reason, measured: &Measured) -> Decision {
        let level = &self.level;
        Decision {
            at_us: self.at_us as u64,
            from: self.size,
            size,
            reason,
            jobs_per_s: level.jobs_per_s(),
            service_us: level.service_us(),
            wait_mean_us: level.waits.mean_us(),
            wait_p99_us: level.waits.quantile_us(0.99),
            busy: level.busy(),
            cpus_used: level.cpus_used(),
            useful: level.useful(measured.cpus, measured.shared_cpus),
        }
    }
}
