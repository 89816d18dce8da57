//! Counts per serving thread, summed on demand.

use std::collections::HashSet;
use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use loadline_base::Counter;
use loadline_base::sorting::sort_by_key;
use loadline_proto::latency::{Histogram, HistogramCounts};
use loadline_proto::{CloseReason, Counters, Http2Count};
use loadline_sys::usage::ThreadUsage;

use crate::overload::AppCounts;

/// What a serving thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Accepts and hands over; serves no connection itself.
    Acceptor,
    /// Serves many connections by epoll.
    Loop,
    /// Runs what may block, for loops.
    Worker,
    /// Serves one connection at a time, blocking.
    Thread,
}

impl Role {
    /// The name in the status page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Loop => "loop",
            Self::Worker => "worker",
            Self::Thread => "thread",
        }
    }
}

/// A gauge or counter with any number of writers, for what is not on the path of each request.
#[derive(Debug, Default)]
pub(crate) struct SharedCounter(AtomicU64);

impl SharedCounter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of one serving thread.
///
/// Alone in its cache lines (128 bytes: processors fetch lines in pairs), so that no thread's
/// counting slows another's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadStats {
    /// What sessions count.
    pub(crate) core: Counters,
    /// Connections that the thread serves now.
    pub(crate) connections: Counter,
    /// Requests whose app's task was begun by this thread.
    pub(crate) app_requests: Counter,
    /// Those of connections of this thread whose task has not ended, or has not begun.
    pub(crate) app_requests_in_progress: Counter,
    /// Blocking steps that ran on a thread that should not block, for want of workers.
    pub(crate) blocked_in_place: Counter,
    /// Time that they took, in microseconds.
    pub(crate) blocked_in_place_us: Counter,
    /// Jobs that the thread carried out (workers). Each poll of a task is one.
    pub(crate) jobs: Counter,
    /// Those of them that were a step of a request: a blocking step, or a poll of its task.
    pub(crate) steps: Counter,
    /// Time that jobs, requests or connections waited in a queue before the thread took them, microseconds.
    pub(crate) queue_wait_us: Counter,
    /// How many these were.
    pub(crate) queue_taken: Counter,
    /// Jobs taken from the queue of another worker.
    pub(crate) steals: Counter,
    /// Connections that have moved from this loop to another one.
    pub(crate) connections_moved: Counter,
    /// Time the thread was not waiting, in microseconds.
    pub(crate) busy_us: Counter,
    /// When the job or busy time under way began; 0: there is none (workers, threads). Cleared before its
    /// time counts as busy, so that a reader never has it twice.
    pub(crate) job_began_us: Counter,
    /// How long each job took (workers), or kept its thread busy (threads that serve connections).
    job_times: OnceLock<Box<Histogram>>,
    /// How long each job waited (workers of pools that change their size).
    job_waits: OnceLock<Box<Histogram>>,
    /// Times that accepting was put off at the descriptor limit.
    pub(crate) accepts_deferred: Counter,
    /// Jobs, requests or connections that wait for this thread, or for any in its group. Many writers.
    pub(crate) queue_depth: SharedCounter,
    /// Jobs, and requests of connections, that were refused because the queue was full. Many writers.
    pub(crate) queue_full: SharedCounter,
    /// Those of them that had a place, and made room for a job of another client. Many writers.
    pub(crate) queue_full_over_share: SharedCounter,
    /// Requests that were refused since they could not have been answered in time. Many writers.
    pub(crate) refused_late: SharedCounter,
    /// Those of them that a client with nothing in the queue would have been spared, and those that made
    /// room for another client's. Many writers.
    pub(crate) refused_over_share: SharedCounter,
    /// Jobs that were not done since their client had left. Many writers.
    pub(crate) abandoned: SharedCounter,
    /// The thread that counts here now (workers, threads, loops).
    usage: Mutex<Option<ThreadUsage>>,
    /// That thread has ended, and another one is to go on with its context.
    is_set_aside: AtomicBool,
}

impl ThreadStats {
    /// Time that the thread was not waiting, with that of the job under way.
    pub(crate) fn busy_us_at(&self, now_us: u64) -> u64 {
        let busy_us = self.busy_us.value();
        // Read after the busy time: a job that ends meanwhile is missed once, not counted twice.
        match self.job_began_us.value() {
            0 => busy_us,
            began_us => busy_us + now_us.saturating_sub(began_us),
        }
    }

    /// The calling thread is the one that counts here: others may read what it uses of the CPUs.
    pub(crate) fn runs_here(&self) {
        *self.lock_usage() = Some(ThreadUsage::of_this_thread());
        self.is_set_aside.store(false, Ordering::Relaxed);
    }

    /// The thread that counts here ends.
    pub(crate) fn ends_here(&self) {
        *self.lock_usage() = None;
    }

    /// The same, and its context is kept for another one: until then no thread counts here.
    pub(crate) fn set_aside(&self) {
        self.ends_here();
        self.is_set_aside.store(true, Ordering::Relaxed);
    }

    fn lock_usage(&self) -> MutexGuard<'_, Option<ThreadUsage>> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is begun that has waited for so long.
    pub(crate) fn note_wait(&self, waited_us: u64) {
        self.queue_wait_us.add(waited_us);
        self.queue_taken.add(1);
    }

    /// How long each job took, of a thread that has jobs.
    pub(crate) fn job_times(&self) -> &Histogram {
        self.job_times.get_or_init(Box::default)
    }

    /// How long each job waited before.
    pub(crate) fn job_waits(&self) -> &Histogram {
        self.job_waits.get_or_init(Box::default)
    }
}

/// The counts of every thread of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    threads: Mutex<RegisteredThreads>,
    /// Connections that were cut at the end of the grace or by the second stage of a shutdown.
    pub(crate) cut: SharedCounter,
    /// Where the number of workers changes: the most of them that would help; 0: it stays.
    pub(crate) workers_useful: Counter,
}

#[derive(Debug, Default)]
struct RegisteredThreads {
    all: Vec<(Role, Arc<ThreadStats>)>,
    /// Those of threads that have ended.
    free: Vec<(Role, Arc<ThreadStats>)>,
    /// The busy time of each in the last snapshot: a job that ends meanwhile does not set it back.
    busy_us_shown: Vec<u64>,
}

impl Registry {
    /// The counts of a serving thread: those that a thread of its kind has left, or new ones. So there
    /// are no more of them than threads that served at once, however short-lived the threads are.
    pub(crate) fn thread_stats(&self, role: Role) -> Arc<ThreadStats> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = threads.free.iter().rposition(|(of, _)| *of == role) {
            return threads.free.swap_remove(position).1;
        }
        let stats = Arc::<ThreadStats>::default();
        threads.all.push((role, Arc::clone(&stats)));
        stats
    }

    /// Takes back the counts of a thread that ends. They stay as they are.
    pub(crate) fn release(&self, role: Role, stats: Arc<ThreadStats>) {
        stats.job_began_us.set(0); // a panic may have left it
        stats.ends_here();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.free.push((role, stats));
    }

    /// Responses that were begun, and connections that there are, all threads together.
    pub(crate) fn answers_and_connections(&self) -> (u64, u64) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.all.iter().fold((0, 0_u64), |sum, (_, stats)| {
            let connections = sum.1.wrapping_add(stats.connections.value());
            (sum.0 + stats.core.requests(), connections)
        })
    }

    /// The threads of a role that have begun.
    pub(crate) fn usages(&self, role: Role) -> Vec<ThreadUsage> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let all = threads.all.iter().filter(|(of, _)| *of == role);
        all.filter_map(|(_, stats)| *stats.lock_usage()).collect()
    }

    /// How long requests and jobs took, all threads together.
    pub(crate) fn timings(&self) -> Timings {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut timings = Timings::default();
        for (_, stats) in &threads.all {
            stats.core.latencies.add_to(&mut timings.requests);
            if let Some(times) = stats.job_times.get() {
                times.add_to(&mut timings.jobs);
            }
        }
        sort_by_key(&mut timings.requests, |series| (series.0, series.1));
        timings
    }

    /// The counts now. Each number is exact, but they are read one after the other.
    pub(crate) fn snapshot(&self, now_us: u64) -> Snapshot {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = &mut *threads;
        let mut seen: Vec<(Role, usize)> = Vec::new();
        let free: HashSet<*const ThreadStats> = threads
            .free
            .iter()
            .map(|(_, stats)| Arc::as_ptr(stats))
            .collect();
        threads.busy_us_shown.resize(threads.all.len(), 0);
        let shown = threads.busy_us_shown.iter_mut();
        let per_thread = threads.all.iter().zip(shown).map(|((role, stats), shown)| {
            *shown = stats.busy_us_at(now_us).max(*shown);
            let index = match seen.iter_mut().find(|(of, _)| of == role) {
                Some((_, count)) => {
                    *count += 1;
                    *count - 1
                }
                None => {
                    seen.push((*role, 1));
                    0
                }
            };
            ThreadSnapshot {
                role: *role,
                index,
                is_in_use: !free.contains(&Arc::as_ptr(stats))
                    && !stats.is_set_aside.load(Ordering::Relaxed),
                usage: *stats.lock_usage(),
                counts: Counts {
                    busy_us: *shown,
                    ..Counts::of(stats)
                },
            }
        });
        let per_thread: Vec<_> = per_thread.collect();
        let mut total = Counts::default();
        for thread in &per_thread {
            total += &thread.counts;
        }
        Snapshot {
            total,
            per_thread,
            cut: self.cut.value(),
            workers_useful: usize::try_from(self.workers_useful.value())
                .ok()
                .filter(|count| *count > 0),
            ..Snapshot::default()
        }
    }
}

macro_rules! counts {
    (
        core { $($(#[$core_doc:meta])* $core:ident,)* }
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        /// Counts at one moment, of one thread or of all.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            /// Answers begun, by status class 1xx..5xx (index 0 is 1xx).
            pub answers: [u64; 5],
            /// Faults by blame: peer, local, limit, timeout.
            pub faults: [u64; 4],
            /// Connections closed, by reason; indexed by `CloseReason as usize`.
            pub closed: [u64; CloseReason::ALL.len()],
            /// What clients of HTTP/2 do; indexed by `Http2Count as usize`.
            pub http2: [u64; Http2Count::ALL.len()],
            $($(#[$core_doc])* pub $core: u64,)*
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The plain numbers with their names in the status page.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($core), self.$core),)*
                    $((stringify!($name), self.$name),)*
                ]
            }

            fn of(stats: &ThreadStats) -> Self {
                Self {
                    answers: values(&stats.core.answers),
                    faults: values(&stats.core.faults),
                    closed: values(&stats.core.closed),
                    http2: values(&stats.core.http2),
                    $($core: stats.core.$core.value(),)*
                    $($name: stats.$name.value(),)*
                }
            }

            /// Makes one of each number and the same one of `other`.
            fn combine(&mut self, other: &Self, one_of: fn(u64, u64) -> u64) {
                let arrays = [
                    (&mut self.answers[..], &other.answers[..]),
                    (&mut self.faults[..], &other.faults[..]),
                    (&mut self.closed[..], &other.closed[..]),
                    (&mut self.http2[..], &other.http2[..]),
                ];
                for (own, others) in arrays {
                    for (own, other) in own.iter_mut().zip(others) {
                        *own = one_of(*own, *other);
                    }
                }
                $(self.$core = one_of(self.$core, other.$core);)*
                $(self.$name = one_of(self.$name, other.$name);)*
            }
        }
    };
}

counts! {
    core {
        /// Bytes received.
        bytes_in,
        /// Bytes sent.
        bytes_out,
        /// Connections taken over.
        accepted,
        /// Responses of the server's own pages.
        own_pages,
        /// Requests refused because there was no memory for their content.
        content_refused_memory,
    }
    /// Connections being served.
    connections,
    /// Requests whose app's task was begun.
    app_requests,
    /// Those whose task has not ended, or has not begun.
    app_requests_in_progress,
    /// Blocking steps that ran where nothing should block, for want of workers.
    blocked_in_place,
    /// Time that they took, in microseconds.
    blocked_in_place_us,
    /// Jobs that workers carried out. Each poll of a task is one.
    jobs,
    /// Time that jobs, requests or connections waited in a queue, in microseconds.
    queue_wait_us,
    /// How many these were.
    queue_taken,
    /// Jobs taken from the queue of another worker.
    steals,
    /// Connections that have moved from one loop to another.
    connections_moved,
    /// Time not spent waiting, in microseconds. A worker's job counts as it runs.
    busy_us,
    /// Times that accepting was put off at the descriptor limit.
    accepts_deferred,
    /// Jobs, requests or connections waiting for a thread.
    queue_depth,
    /// Jobs refused because the queue was full.
    queue_full,
    /// Those of them that made room for a job of another client.
    queue_full_over_share,
    /// Requests refused since they could not have been answered within the latency goal.
    refused_late,
    /// Requests, also for want of room in the queue, and connections that were refused since their client had
    /// more than others.
    refused_over_share,
    /// Jobs that were not done since their client had left.
    abandoned,
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        self.combine(other, u64::wrapping_add);
    }
}

impl Counts {
    /// Answers of every class but 1xx.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.answers[1..].iter().sum()
    }

    /// Leaves what was counted since an earlier moment. Connections, queued jobs and app requests in
    /// progress stay as they are: they are no counts of events.
    pub fn subtract(&mut self, earlier: &Self) {
        let (connections, depth) = (self.connections, self.queue_depth);
        let in_progress = self.app_requests_in_progress;
        self.combine(earlier, u64::saturating_sub);
        self.connections = connections;
        self.queue_depth = depth;
        self.app_requests_in_progress = in_progress;
    }

    /// Connections closed for one reason.
    #[must_use]
    pub fn closed_for(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize]
    }
}

fn values<const N: usize>(counters: &[Counter; N]) -> [u64; N] {
    std::array::from_fn(|index| counters[index].value())
}

/// Counts of one serving thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSnapshot {
    /// What the thread does.
    pub role: Role,
    /// Which of its role.
    pub index: usize,
    /// Whether a thread has these counts now; `false`: the one that had them has ended.
    pub is_in_use: bool,
    /// Where to read what a worker, thread or loop has used of the CPUs; `None`: it has not begun, or has ended.
    pub usage: Option<ThreadUsage>,
    /// Its counts.
    pub counts: Counts,
}

impl fmt::Display for ThreadSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.role.name(), self.index)
    }
}

/// How long requests and jobs took, from the start of the server to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Latencies of requests: number of the listener, number of the mount, counts.
    pub requests: Vec<(usize, usize, HistogramCounts)>,
    /// Times of jobs.
    pub jobs: HistogramCounts,
}

/// Counts of a server at one moment: the sum, and each thread's share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All threads together.
    pub total: Counts,
    /// Each thread. A thread that ended leaves its counts, for others of its kind to continue.
    pub per_thread: Vec<ThreadSnapshot>,
    /// Connections that a shutdown cut.
    pub cut: u64,
    /// Where the number of workers, or of threads of a pool, changes: the most of them that would help. It
    /// is less than the upper bound where jobs wait and more threads were found to bring nothing.
    pub workers_useful: Option<usize>,
    /// The budget of memory; `None`: without a limit.
    pub memory_budget_bytes: Option<u64>,
    /// What is used of it.
    pub memory_used_bytes: u64,
    /// What the kernel may keep for all connections beside that: their number, times what it grants a new
    /// one to send and to receive.
    pub socket_buffers_estimated_bytes: u64,
    /// Apps by mount; none without a latency goal.
    pub apps: Vec<AppCounts>,
}

impl Snapshot {
    /// Threads of a role that there are now.
    #[must_use]
    pub fn threads(&self, role: Role) -> usize {
        let all = self.per_thread.iter();
        all.filter(|thread| thread.role == role && thread.is_in_use)
            .count()
    }
}

#[cfg(test)]
mod tests;
