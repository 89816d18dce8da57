//! What the workers of a pool do, read from outside: their counts, and the CPU clocks of their threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_capacity::sizing::{Waits, bucket};
use loadline_proto::latency::HistogramCounts;
use loadline_sys::usage::ThreadUsage;

use crate::telemetry::counters::{Registry, Role, ThreadStats};

/// How long threads waited for a CPU is a file of each; so many are read, and stand for all (of workers, of loops).
const DELAYS_READ_MAX: usize = 16;

/// The workers of one pool that are at work.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    threads: Mutex<MeteredThreads>,
    /// Workers keep connections, and do what these ask for: each request is a job, each poll of a task
    /// that has waited, and each blocking step that was queued by itself.
    keeps_connections: bool,
}

#[derive(Debug, Default)]
struct MeteredThreads {
    present: Vec<MeteredThread>,
    /// What those did who have left.
    left: Work,
}

#[derive(Debug)]
struct MeteredThread {
    stats: Arc<ThreadStats>,
    usage: ThreadUsage,
    /// What `stats` counted for earlier threads.
    before: Work,
    /// At the last reading.
    busy_us: u64,
    /// `None`: it was not read.
    run_delay_us: Option<u64>,
}

/// One worker, until dropped.
#[derive(Debug)]
pub(crate) struct MeterGuard {
    meter: Arc<Meter>,
    usage: ThreadUsage,
}

/// What workers have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) jobs: u64,
    /// Jobs under way included.
    pub(crate) busy_us: u64,
    pub(crate) cpu_us: u64,
    /// In which they waited for a CPU, about.
    pub(crate) ready_us: u64,
    pub(crate) waits: HistogramCounts,
}

impl Meter {
    /// Of a pool whose workers may keep connections.
    pub(crate) fn new(keeps_connections: bool) -> Self {
        Self {
            keeps_connections,
            ..Self::default()
        }
    }

    /// The calling thread begins to work.
    pub(crate) fn enter(self: &Arc<Self>, stats: &Arc<ThreadStats>) -> MeterGuard {
        let usage = ThreadUsage::of_this_thread();
        let before = self.work_of(stats, usage, 0);
        let thread = MeteredThread {
            stats: Arc::clone(stats),
            usage,
            busy_us: before.busy_us,
            run_delay_us: Some(run_delay_us(usage)),
            before,
        };
        self.lock().present.push(thread);
        MeterGuard {
            meter: Arc::clone(self),
            usage,
        }
    }

    /// All that was done since the first worker began.
    pub(crate) fn read(&self, now_us: u64) -> Work {
        let mut threads = self.lock();
        let mut work = Work::default();
        let mut busy_us = 0;
        let (mut seen_us, mut delay_us) = (0, 0);
        for (index, thread) in threads.present.iter_mut().enumerate() {
            let now = self.work_of(&thread.stats, thread.usage, now_us);
            let newly_busy_us = now.busy_us.saturating_sub(thread.busy_us);
            thread.busy_us = now.busy_us;
            busy_us += newly_busy_us;
            let delayed_us = (index < DELAYS_READ_MAX).then(|| run_delay_us(thread.usage));
            if let (Some(before_us), Some(now_us)) = (thread.run_delay_us, delayed_us) {
                delay_us += now_us.saturating_sub(before_us);
                seen_us += newly_busy_us;
            }
            thread.run_delay_us = delayed_us;
            work.add(&now.since(&thread.before));
        }
        if seen_us > 0 {
            let of_all = delay_us as f64 * busy_us as f64 / seen_us as f64;
            threads.left.ready_us += of_all as u64;
        }
        work.add(&threads.left);
        work
    }

    /// What the counts of a thread say, and its CPU clock; `now_us` 0: there is no job under way.
    fn work_of(&self, stats: &ThreadStats, usage: ThreadUsage, now_us: u64) -> Work {
        let mut work = Work {
            jobs: match self.keeps_connections {
                true => {
                    let answers = stats.core.requests() + stats.steps.value();
                    // A thread writes more refusals in a second than it does jobs.
                    answers.saturating_sub(stats.core.refusals.value())
                }
                false => stats.jobs.value(),
            },
            busy_us: stats.busy_us_at(now_us),
            cpu_us: usage.cpu().map_or(0, as_us),
            ..Work::default()
        };
        stats.job_waits().add_to(&mut work.waits);
        work
    }

    fn lock(&self) -> MutexGuard<'_, MeteredThreads> {
        // Nothing panics while it holds the lock.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        let mut threads = self.meter.lock();
        let mine = |thread: &MeteredThread| thread.usage == self.usage;
        if let Some(index) = threads.present.iter().position(mine) {
            let thread = threads.present.swap_remove(index);
            let now = self.meter.work_of(&thread.stats, thread.usage, 0);
            threads.left.add(&now.since(&thread.before));
        }
    }
}

impl Work {
    /// What was done after an earlier moment.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            jobs: self.jobs.saturating_sub(earlier.jobs),
            busy_us: self.busy_us.saturating_sub(earlier.busy_us),
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            ready_us: self.ready_us.saturating_sub(earlier.ready_us),
            waits: self.waits.since(&earlier.waits),
        }
    }

    fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.busy_us += other.busy_us;
        self.cpu_us += other.cpu_us;
        self.ready_us += other.ready_us;
        self.waits.add(&other.waits);
    }

    /// The waits, as the sizer has them; times as many times as long. `keeps_connections`: jobs of
    /// connections that had their worker have not waited, and are not in the histogram.
    pub(crate) fn waits(&self, times: f64, keeps_connections: bool) -> Waits {
        let scaled = |us: u64| (us as f64 * times) as u64;
        let mut counts = [0; loadline_capacity::sizing::BUCKETS];
        let waited: u64 = self.waits.times_us().map(|(_, count)| count).sum();
        if keeps_connections && waited > 0 {
            counts[0] = self.jobs.saturating_sub(waited);
        }
        for (us, count) in self.waits.times_us() {
            counts[bucket(scaled(us))] += count;
        }
        Waits::from_counts(counts, scaled(self.waits.sum_us))
    }
}

/// What event loops have used of the CPUs since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoopUse {
    /// Those that were read, where the system tells both times.
    pub(crate) loops: usize,
    pub(crate) cpu_us: u64,
    /// In which they waited for a CPU.
    pub(crate) ready_us: u64,
}

impl LoopUse {
    pub(crate) fn read(registry: &Registry) -> Self {
        let mut sum = Self::default();
        for usage in registry.usages(Role::Loop).iter().take(DELAYS_READ_MAX) {
            if let (Some(cpu), Some(delay_ns)) = (usage.cpu(), usage.run_delay_ns()) {
                sum.loops += 1;
                sum.cpu_us += as_us(cpu);
                sum.ready_us += delay_ns / 1000;
            }
        }
        sum
    }

    /// What was used after an earlier moment; of no loop if others were read then.
    pub(crate) fn since(self, earlier: Self) -> Self {
        if self.loops != earlier.loops {
            return Self::default();
        }
        Self {
            loops: self.loops,
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            ready_us: self.ready_us.saturating_sub(earlier.ready_us),
        }
    }
}

fn run_delay_us(usage: ThreadUsage) -> u64 {
    usage.run_delay_ns().unwrap_or(0) / 1000
}

pub(crate) fn as_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_those_who_have_left_is_kept() {
        let meter = Arc::new(Meter::default());
        let stats = Arc::new(ThreadStats::default());
        stats.jobs.add(100); // of a worker before
        let metered = meter.enter(&stats);
        stats.jobs.add(3);
        stats.busy_us.add(3_000);
        stats.job_waits().add(1_000, 3);
        stats.job_began_us.set(10_000);
        let work = meter.read(12_000);
        assert_eq!((work.jobs, work.busy_us), (3, 5_000));
        stats.job_began_us.set(0);
        drop(metered);
        let later = meter.read(20_000);
        assert_eq!((later.jobs, later.busy_us), (3, 3_000));
        let again = meter.enter(&stats);
        stats.jobs.add(1);
        assert_eq!(meter.read(30_000).jobs, 4);
        assert_eq!(meter.read(40_000).since(&later).jobs, 1);
        drop(again);
    }

    #[test]
    fn refusals_of_threads_that_keep_connections_are_no_jobs() {
        let meter = Arc::new(Meter::new(true));
        let stats = Arc::new(ThreadStats::default());
        let _metered = meter.enter(&stats);
        stats.core.answers[1].add(10);
        stats.core.answers[4].add(90);
        stats.core.refusals.add(86); // the others are of an app
        stats.refused_late.add(120); // handshakes among them, which have no response
        assert_eq!(meter.read(1).jobs, 14);
    }

    #[test]
    fn what_loops_use_is_that_of_loops_alone() {
        let registry = Registry::default();
        registry.thread_stats(Role::Worker).runs_here();
        assert_eq!(LoopUse::read(&registry), LoopUse::default());
        registry.thread_stats(Role::Loop).runs_here();
        let first = LoopUse::read(&registry);
        let is_known = ThreadUsage::of_this_thread().run_delay_ns().is_some();
        assert_eq!(first.loops, usize::from(is_known));
        assert_eq!(first.since(LoopUse::default()), LoopUse::default());
        let second = LoopUse::read(&registry);
        assert!(second.cpu_us >= first.cpu_us);
        assert_eq!(second.since(first).loops, first.loops);
    }

    #[test]
    fn waits_are_scaled_as_wholes() {
        let stats = ThreadStats::default();
        stats.job_waits().add(100, 9);
        stats.job_waits().add(5_000, 1);
        let work = Meter::default().work_of(&stats, ThreadUsage::of_this_thread(), 0);
        let waits = work.waits(20.0, false);
        assert_eq!((waits.count(), waits.mean_us()), (10, 11_800.0));
        let p50_us = waits.quantile_us(0.5);
        assert!((1_700.0..2_400.0).contains(&p50_us), "{p50_us}");
    }
}
