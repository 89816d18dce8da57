//! What was measured over one interval or several, and what it says.

use super::loops::are_starved;
use super::{Measured, Waits};

/// Waits below this are the waking of a thread, which no size changes.
const WAKING_US: f64 = 20.0;
/// Jobs that wait longer than this share of their service, one in a hundred of them, wait for
/// threads.
const WEAK: f64 = 0.1;
/// So much on average is a queue.
const STRONG: f64 = 0.25;
/// Threads beyond those that keep the CPUs busy on average, in standard deviations of a Poisson
/// variable: those that block do so at random.
const SPARE: f64 = 3.0;
/// Threads that block for less than this share of their time compute.
const BLOCKED_MIN: f64 = 0.05;
/// The most threads that compute, for each CPU that they share with event loops,
const COMPUTING_MAX: f64 = 8.0;
/// and how many more than one they are where a job costs a loop as much as it computes. Jobs of 100 us
/// cost loops a sixth of that, and did most on six for each CPU (docs/decisions/0066).
const COMPUTING_MORE: f64 = 40.0;
/// Threads that keep connections save the way over a loop and a queue; but the more of them compute at once, the
/// longer each job takes. So there may be CPUs x (1 + this / CPU time of a job).
const KEPT_US: f64 = 5_000.0;
/// CPUs are used up with so much of their time: some is always lost between threads.
const SATURATED: f64 = 0.85;
/// So many more threads than keep saturated CPUs busy are worth a trial with fewer.
const OVERSIZED: f64 = 1.2;

/// Sums of [`Measured`].
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) intervals: u32,
    pub(super) time_us: f64,
    pub(super) jobs: u64,
    answers: u64,
    /// Sum of the squares of the jobs of each interval.
    pub(super) jobs_squared: f64,
    pub(super) waits: Waits,
    pub(super) busy_us: f64,
    pub(super) cpu_us: f64,
    pub(super) others_cpu_us: f64,
    pub(super) ready_us: f64,
    /// Intervals in which jobs waited and none began.
    pub(super) stuck: u32,
    /// Intervals in which event loops hardly had a CPU.
    starved: u32,
    /// Jobs in the queue at the end.
    pub(super) queue_depth: usize,
    /// The most jobs at one time.
    pub(super) present_max: usize,
}

/// Whether jobs wait for threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pressure {
    None,
    /// One in a hundred does.
    Weak,
    /// They do on average.
    Strong,
}

impl Sample {
    pub(super) fn add(&mut self, measured: &Measured) {
        self.intervals += 1;
        self.time_us += measured.interval_us as f64;
        self.jobs += measured.jobs;
        self.answers += measured.answers;
        self.jobs_squared += (measured.jobs as f64).powi(2);
        self.waits.merge(&measured.waits);
        self.busy_us += measured.busy_us as f64;
        self.cpu_us += measured.cpu_us as f64;
        self.others_cpu_us += measured.others_cpu_us as f64;
        self.ready_us += measured.ready_us as f64;
        if measured.queue_depth > 0 && measured.waits.count() == 0 {
            self.stuck += 1;
        }
        self.starved += u32::from(are_starved(measured));
        self.queue_depth = measured.queue_depth;
        self.present_max = self.present_max.max(measured.present_max);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.intervals += other.intervals;
        self.time_us += other.time_us;
        self.jobs += other.jobs;
        self.answers += other.answers;
        self.jobs_squared += other.jobs_squared;
        self.waits.merge(&other.waits);
        self.busy_us += other.busy_us;
        self.cpu_us += other.cpu_us;
        self.others_cpu_us += other.others_cpu_us;
        self.ready_us += other.ready_us;
        self.stuck += other.stuck;
        self.starved += other.starved;
        self.queue_depth = other.queue_depth;
        self.present_max = self.present_max.max(other.present_max);
    }

    pub(super) fn jobs_per_s(&self) -> f64 {
        self.jobs as f64 * 1e6 / self.time_us.max(1.0)
    }

    /// The standard error of the throughput as a part of it, by how much intervals differ; no less
    /// than half of what a Poisson process would have.
    pub(super) fn error(&self) -> f64 {
        let (jobs, count) = (self.jobs.max(1) as f64, f64::from(self.intervals));
        let least = 0.5 / jobs.sqrt();
        if self.intervals < 2 {
            return least.max(0.1);
        }
        let variance = (self.jobs_squared - jobs * jobs / count) / (count - 1.0);
        least.max((variance.max(0.0) * count).sqrt() / jobs)
    }

    /// How long a job holds its thread; without a job, as long as threads were held.
    pub(super) fn service_us(&self) -> f64 {
        self.busy_us / self.jobs.max(1) as f64
    }

    /// Mean number of threads with a job.
    pub(super) fn busy(&self) -> f64 {
        self.busy_us / self.time_us.max(1.0)
    }

    /// CPUs that the threads used on average.
    pub(super) fn cpus_used(&self) -> f64 {
        self.cpu_us / self.time_us.max(1.0)
    }

    pub(super) fn pressure(&self) -> Pressure {
        let service_us = self.service_us();
        if self.stuck * 2 > self.intervals || self.waits.mean_us() > WAKING_US + STRONG * service_us
        {
            Pressure::Strong
        } else if self.waits.quantile_us(0.99) > WAKING_US + WEAK * service_us {
            Pressure::Weak
        } else {
            Pressure::None
        }
    }

    /// Whether event loops hardly had a CPU, most of the time.
    pub(super) fn starves_loops(&self) -> bool {
        self.starved * 2 > self.intervals
    }

    /// Whether the CPUs have no time left.
    fn is_saturated(&self, cpus: f64) -> bool {
        self.cpu_us + self.others_cpu_us > SATURATED * cpus * self.time_us
    }

    /// Clearly fewer threads than these that are enough for CPUs which have no time left.
    pub(super) fn needed_of(&self, size: usize, cpus: f64) -> Option<usize> {
        let needed = self.threads_busy(cpus).ceil();
        let is_oversized = self.is_saturated(cpus) && size as f64 > OVERSIZED * needed;
        is_oversized.then_some(needed as usize)
    }

    /// Threads that use all CPUs, if each computes and blocks as the present ones do, and jobs cost other
    /// threads as much as they do; more of them would only wait for each other. A thread that waits for
    /// a CPU does not block.
    fn threads_busy(&self, cpus: f64) -> f64 {
        match self.blocked_share() {
            share if share < BLOCKED_MIN => cpus,
            _ => cpus * (1.0 + self.blocked_us() / (self.cpu_us + self.others_cpu_us).max(1.0)),
        }
    }

    /// The same, and some to spare. Of threads that compute briefly several for each CPU, since each change to
    /// an event loop and back takes time, and it has more to do at once where it waits for its turn.
    fn threads_for(&self, cpus: f64) -> f64 {
        let more = COMPUTING_MORE * self.loops_for_jobs_us() / self.cpu_us.max(1.0);
        let least = cpus * (1.0 + more).min(COMPUTING_MAX);
        self.threads_and_spare(cpus).max(least)
    }

    /// CPU time that jobs cost other threads, which also refuse requests, or answer them without a job: a
    /// response costs them about as much with a job as without one.
    fn loops_for_jobs_us(&self) -> f64 {
        match self.answers > self.jobs {
            true => self.others_cpu_us * self.jobs as f64 / self.answers as f64,
            false => self.others_cpu_us,
        }
    }

    /// The most threads that the CPUs can use. Those that keep connections have no CPUs of their own (`cpus` is
    /// infinite): they are bounded by what all share.
    pub(super) fn useful(&self, cpus: f64, shared_cpus: f64) -> f64 {
        if cpus <= shared_cpus {
            return self.threads_for(cpus);
        }
        let cpu_us = self.cpu_us / self.jobs.max(1) as f64;
        let least = shared_cpus * (1.0 + KEPT_US / cpu_us.max(1.0));
        self.threads_and_spare(shared_cpus).max(least)
    }

    /// Threads that use all CPUs, and some to spare: those that block do so at random.
    pub(super) fn threads_and_spare(&self, cpus: f64) -> f64 {
        let busy = self.threads_busy(cpus);
        match self.blocked_share() {
            share if share < BLOCKED_MIN => busy,
            share => busy + SPARE * busy.sqrt() * share,
        }
    }

    /// Of the time in which threads had a job, without that in which they waited for a CPU.
    fn blocked_share(&self) -> f64 {
        let blocked_us = self.blocked_us();
        blocked_us / (blocked_us + self.cpu_us).max(1.0)
    }

    fn blocked_us(&self) -> f64 {
        (self.busy_us - self.cpu_us - self.ready_us).max(0.0)
    }
}
