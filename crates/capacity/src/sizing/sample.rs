//! What was measured over one interval or several, and what it says.

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

/// Sums of [`Measured`].
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) intervals: u32,
    pub(super) time_us: f64,
    pub(super) jobs: u64,
    /// Sum of the squares of the jobs of each interval.
    pub(super) jobs_squared: f64,
    pub(super) waits: Waits,
    pub(super) busy_us: f64,
    pub(super) cpu_us: f64,
    pub(super) ready_us: f64,
    /// Intervals in which jobs waited and none began.
    pub(super) stuck: u32,
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
        self.jobs_squared += (measured.jobs as f64).powi(2);
        self.waits.merge(&measured.waits);
        self.busy_us += measured.busy_us as f64;
        self.cpu_us += measured.cpu_us as f64;
        self.ready_us += measured.ready_us as f64;
        if measured.queue_depth > 0 && measured.waits.count() == 0 {
            self.stuck += 1;
        }
        self.queue_depth = measured.queue_depth;
        self.present_max = self.present_max.max(measured.present_max);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.intervals += other.intervals;
        self.time_us += other.time_us;
        self.jobs += other.jobs;
        self.jobs_squared += other.jobs_squared;
        self.waits.merge(&other.waits);
        self.busy_us += other.busy_us;
        self.cpu_us += other.cpu_us;
        self.ready_us += other.ready_us;
        self.stuck += other.stuck;
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

    /// Threads that use all CPUs, if each computes and blocks as the present ones do; more of them
    /// would only wait for each other. A thread that waits for a CPU does not block.
    pub(super) fn threads_for(&self, cpus: f64) -> f64 {
        let blocked_us = (self.busy_us - self.cpu_us - self.ready_us).max(0.0);
        let active_us = self.cpu_us.max(1.0);
        if blocked_us < 0.05 * active_us {
            return cpus;
        }
        let mean = cpus * (1.0 + blocked_us / active_us);
        mean + SPARE * mean.sqrt() * blocked_us / (blocked_us + active_us)
    }
}
