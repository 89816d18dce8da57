//! What is read of a server at one moment.

use std::time::{Duration, Instant};

use loadline_proto::latency::HistogramCounts;
use loadline_server::{Role, Snapshot};
use loadline_sys::usage::ThreadUsage;

/// The most threads whose waits for a CPU are read: each is a file. A pool that changes its size has no
/// more workers.
const THREADS_READ_MAX: usize = 256;

/// What is read at one moment.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) snapshot: Snapshot,
    /// All listeners and mounts together.
    pub(crate) latencies: HistogramCounts,
    pub(crate) jobs: HistogramCounts,
    /// CPU time of the process.
    pub(crate) cpu: Duration,
    /// What each thread of the snapshot has used, as far as it was read.
    pub(crate) cpu_uses: Vec<Option<CpuUse>>,
    pub(crate) resident_bytes: Option<u64>,
    /// Sizes of other parts of the program.
    pub(crate) sizes: Vec<(&'static str, u64)>,
}

/// What a thread has used of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuUse {
    pub(crate) cpu: Duration,
    /// Time in which it waited for a CPU.
    pub(crate) run_delay: Duration,
    /// How often it did.
    pub(crate) waits: u64,
}

impl CpuUse {
    /// Of the threads that carry requests out; the others have `None`.
    pub(crate) fn of_threads(snapshot: &Snapshot) -> Vec<Option<Self>> {
        let mut left = THREADS_READ_MAX;
        let threads = snapshot.per_thread.iter();
        let uses = threads.map(|thread| {
            let carries_out = matches!(thread.role, Role::Worker | Role::Thread);
            let usage = thread.usage.filter(|_| carries_out)?;
            left = left.checked_sub(1)?;
            Self::of(usage)
        });
        uses.collect()
    }

    fn of(thread: ThreadUsage) -> Option<Self> {
        let delay = thread.run_delay().unwrap_or_default();
        Some(Self {
            cpu: thread.cpu()?,
            run_delay: Duration::from_nanos(delay.ns),
            waits: delay.count,
        })
    }

    /// What was used since an earlier moment.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(then.cpu),
            run_delay: self.run_delay.saturating_sub(then.run_delay),
            waits: self.waits.saturating_sub(then.waits),
        }
    }
}
