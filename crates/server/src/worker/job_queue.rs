//! Jobs for a pool of workers: bounded, either one queue for all or a deque for each.
//!
//! A job that does not fit is given back at once: waiting is the client's decision, not a loop's.
//!
//! Files, apps and handshakes are served in turn. In the shared queue so are clients; a deque keeps the order.
//!
//! The number of workers may change. One that is too many leaves between two jobs, and passes on the
//! wake-up that it may have got for a job.

#[path = "job_queue/source.rs"] // found from `interleavings`, too
pub(crate) mod source;

use std::sync::atomic::{AtomicUsize as Count, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use crate::fairness::lanes::{Ahead, FlowKey, LANES, Lane, Lanes};
use crate::options::Queue;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::deque::{Injector, Stealer, Worker};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::worker::peaks::{Peaks, PeaksTaken};
use crate::worker::queue_ends::{End, Ends};
use source::JobSource;

/// Jobs that wait, seen from those who bring them.
pub(crate) struct JobQueue<J> {
    kind: Kind<J>,
    /// Jobs that wait. In the stealing queue, counted up before a job is there to be found.
    depth: AtomicUsize,
    /// Of jobs that wait: in the shared queue of all, in deques of those in each lane.
    bound: usize,
    /// Workers that there are. Nothing in here depends on them.
    workers: Count,
    peaks: Peaks,
    /// Workers that there should be.
    workers_wanted: Count,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each pool")]
enum Kind<J> {
    Shared {
        state: Mutex<SharedState<J>>,
        changed: Condvar,
    },
    Stealing {
        /// By lane.
        injectors: [Injector<J>; LANES],
        stealers: [Box<[Stealer<J>]>; LANES],
        /// Jobs that wait in each lane, counted up before a job is there to be found. Nobody's sleep depends on it.
        waiting: [Count; LANES],
        /// Workers that found nothing; changed only under `parking`.
        asleep: AtomicUsize,
        closed: AtomicBool,
        /// Some workers are too many; changed only under `parking`.
        is_crowded: AtomicBool,
        /// All deques of workers come before this one. Nobody's sleep depends on it.
        used: Count,
        parking: Mutex<Ends<J>>,
        changed: Condvar,
    },
}

struct SharedState<J> {
    jobs: Lanes<J>,
    asleep: usize,
    closed: bool,
    ends: Ends<J>,
}

impl<J> JobQueue<J> {
    /// A queue for at most `bound` waiting jobs, in deques in each lane, and at most `workers_max` workers. There are
    /// none yet.
    pub(crate) fn new(kind: Queue, workers_max: usize, bound: usize) -> Arc<Self> {
        let own = || Lane::ALL.map(|_| Worker::new_fifo());
        let end = |index| End {
            own: matches!(kind, Queue::WorkStealing).then(own),
            index,
        };
        let ends = Ends::new((0..workers_max).map(end).collect());
        let kind = match kind {
            Queue::Shared => Kind::Shared {
                state: Mutex::new(SharedState {
                    jobs: Lanes::default(),
                    asleep: 0,
                    closed: false,
                    ends,
                }),
                changed: Condvar::new(),
            },
            Queue::WorkStealing => Kind::Stealing {
                injectors: Lane::ALL.map(|_| Injector::new()),
                stealers: Lane::ALL.map(|lane| {
                    let own = ends.spare().iter().flat_map(|end| &end.own);
                    own.map(|deques| deques[lane as usize].stealer()).collect()
                }),
                waiting: Default::default(),
                asleep: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
                is_crowded: AtomicBool::new(false),
                used: Count::new(0),
                parking: Mutex::new(ends),
                changed: Condvar::new(),
            },
        };
        Arc::new(Self {
            kind,
            depth: AtomicUsize::new(0),
            bound,
            workers: Count::new(0),
            peaks: Peaks::default(),
            workers_wanted: Count::new(0),
        })
    }

    /// A queue and the ends of its workers.
    #[cfg(test)]
    pub(crate) fn with_workers(
        kind: Queue,
        workers: usize,
        bound: usize,
    ) -> (Arc<Self>, Vec<JobSource<J>>) {
        let queue = Self::new(kind, workers, bound);
        let sources = queue.resize(workers);
        (queue, sources)
    }

    /// Changes the number of workers, 1 or more. Gives the ends of those that are to be started; those
    /// that are too many leave. There may be fewer ends than asked for, while some are leaving.
    pub(crate) fn resize(self: &Arc<Self>, workers: usize) -> Vec<JobSource<J>> {
        self.workers_wanted.store(workers, Relaxed);
        let (added, changed) = match &self.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if state.closed {
                    return Vec::new();
                }
                let added = state.ends.resize(workers);
                self.note_workers(&state.ends);
                (added, state.ends.is_crowded().then_some(changed))
            }
            Kind::Stealing {
                closed,
                is_crowded,
                used,
                parking,
                changed,
                ..
            } => {
                let mut ends = lock(parking);
                if closed.load(Ordering::SeqCst) {
                    return Vec::new();
                }
                let added = ends.resize(workers);
                self.note_workers(&ends);
                used.store(ends.used(), Relaxed);
                is_crowded.store(ends.is_crowded(), Relaxed);
                (added, ends.is_crowded().then_some(changed))
            }
        };
        if let Some(changed) = changed {
            changed.notify_all();
        }
        let source = |end| JobSource::new(Arc::clone(self), end);
        added.into_iter().map(source).collect()
    }

    /// Counts out a worker that could not be started; its end is dropped besides.
    pub(crate) fn count_out(&self) {
        match &self.kind {
            Kind::Shared { state, .. } => {
                let mut state = lock(state);
                state.ends.count_out();
                self.note_workers(&state.ends);
            }
            Kind::Stealing { parking, .. } => {
                let mut ends = lock(parking);
                ends.count_out();
                self.note_workers(&ends);
            }
        }
    }

    fn note_workers(&self, ends: &Ends<J>) {
        self.workers.store(ends.workers(), Relaxed);
    }

    /// Workers that there are.
    pub(crate) fn workers(&self) -> usize {
        self.workers.load(Relaxed)
    }

    /// Workers that are too many and have not left yet, about.
    pub(crate) fn excess(&self) -> usize {
        let wanted = self.workers_wanted.load(Ordering::SeqCst);
        self.workers().saturating_sub(wanted)
    }

    /// The most workers that had a job, and the most jobs, at one time since the last call.
    pub(crate) fn take_peaks(&self) -> PeaksTaken {
        let asleep = match &self.kind {
            Kind::Shared { state, .. } => lock(state).asleep,
            Kind::Stealing { asleep, .. } => asleep.load(Ordering::SeqCst),
        };
        let busy = self.workers().saturating_sub(asleep);
        self.peaks.take(busy, self.depth())
    }

    /// A job has come or was taken; now so many workers are asleep and so many jobs wait.
    fn note_peaks(&self, asleep: usize, depth: usize) {
        let busy = self.workers().saturating_sub(asleep);
        self.peaks.note(busy, depth);
    }

    /// Queues a job.
    ///
    /// # Errors
    /// Gives the job back if the queue is full or closed.
    pub(crate) fn push(&self, flow: FlowKey, job: J) -> Result<(), J> {
        self.push_within(self.bound, flow, job)
    }

    /// Queues a job that was admitted before, and so has a place whatever the bound: as many as were
    /// admitted and are not done.
    ///
    /// # Errors
    /// Gives the job back if the queue is closed.
    pub(crate) fn push_again(&self, flow: FlowKey, job: J) -> Result<(), J> {
        self.push_within(usize::MAX, flow, job)
    }

    fn push_within(&self, bound: usize, flow: FlowKey, job: J) -> Result<(), J> {
        match &self.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if state.jobs.len() >= bound || state.closed {
                    return Err(job);
                }
                let has_worker = state.asleep > state.jobs.len();
                state.jobs.push(flow, job);
                if has_worker {
                    state.jobs.begin_equal();
                }
                self.depth.store(state.jobs.len(), Relaxed);
                self.note_peaks(state.asleep, state.jobs.len());
                let wake = state.asleep > 0;
                drop(state);
                if wake {
                    changed.notify_one();
                }
            }
            Kind::Stealing {
                injectors,
                waiting,
                asleep,
                closed,
                parking,
                changed,
                ..
            } => {
                // The depth is raised before this look at `closed`, and a worker looks at `closed`
                // before the depth: none ends before a job that was accepted.
                let depth = self.depth.fetch_add(1, Ordering::SeqCst);
                let waiting = &waiting[flow.lane as usize];
                let is_full = waiting.fetch_add(1, Relaxed) >= bound;
                if is_full || closed.load(Ordering::SeqCst) {
                    waiting.fetch_sub(1, Relaxed);
                    self.depth.fetch_sub(1, Ordering::SeqCst);
                    return Err(job);
                }
                injectors[flow.lane as usize].push(job);
                // The depth was raised before this look at the sleepers, and a worker looks at the
                // depth after it has counted itself as asleep: one of the two sees the other.
                fence(Ordering::SeqCst);
                let asleep = asleep.load(Ordering::SeqCst);
                self.note_peaks(asleep, depth + 1);
                if asleep > 0 {
                    drop(lock(parking));
                    changed.notify_one();
                }
            }
        }
        Ok(())
    }

    /// Lets the workers go once nothing waits any more.
    pub(crate) fn close(&self) {
        match &self.kind {
            Kind::Shared { state, changed } => {
                lock(state).closed = true;
                changed.notify_all();
            }
            Kind::Stealing {
                closed,
                parking,
                changed,
                ..
            } => {
                closed.store(true, Ordering::SeqCst);
                drop(lock(parking));
                changed.notify_all();
            }
        }
    }

    /// Jobs that wait, about.
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::SeqCst) // `holding.rs` looks at it after it has said that a worker waits
    }

    /// What a job would find here, about.
    pub(crate) fn ahead(&self, flow: FlowKey) -> Ahead {
        if self.depth() == 0 {
            return Ahead::default();
        }
        match &self.kind {
            Kind::Shared { state, .. } => lock(state).jobs.ahead(flow),
            Kind::Stealing { waiting, .. } => {
                let jobs = waiting[flow.lane as usize].load(Relaxed);
                let mut beside = [0; LANES];
                for other in flow.lane.others() {
                    beside[other as usize] = waiting[other as usize].load(Relaxed);
                }
                Ahead {
                    jobs,
                    jobs_of_others: jobs,
                    beside,
                    runs: [false; LANES],
                    is_only: false,
                    before_us: 0,
                }
            }
        }
    }

    /// Makes room in a queue that is full by a job of the client that has most, or of the next one if none of its jobs
    /// may go, unless this is about as much as the client of `flow` has; never in deques, which only pass jobs on.
    pub(crate) fn take_of_heaviest(&self, flow: FlowKey, may_go: impl Fn(&J) -> bool) -> Option<J> {
        let Kind::Shared { state, .. } = &self.kind else {
            return None;
        };
        let mut state = lock(state);
        if state.closed || state.jobs.len() < self.bound {
            return None;
        }
        let job = state.jobs.take_of_heaviest(flow, may_go);
        self.depth.store(state.jobs.len(), Relaxed);
        job
    }

    /// Takes jobs of a lane out that nobody needs any more; none of deques, which only pass jobs on.
    pub(crate) fn remove_if(&self, lane: Lane, is_needless: impl Fn(&J, bool) -> bool) -> Vec<J> {
        let Kind::Shared { state, .. } = &self.kind else {
            return Vec::new();
        };
        let mut state = lock(state);
        let removed = state.jobs.remove_if(lane, is_needless);
        self.depth.store(state.jobs.len(), Relaxed);
        removed
    }

    /// Whether there is a free worker for each job that waits (shared queue).
    pub(crate) fn has_free_workers(&self) -> bool {
        self.free_workers().is_some()
    }

    /// Whether there is one more.
    pub(crate) fn has_more_free_workers(&self) -> bool {
        self.free_workers().is_some_and(|more| more > 0)
    }

    /// How many more free workers there are than jobs.
    fn free_workers(&self) -> Option<usize> {
        match &self.kind {
            Kind::Shared { state, .. } => {
                let state = lock(state);
                state.asleep.checked_sub(state.jobs.len())
            }
            Kind::Stealing { .. } => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics while it holds a lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
