//! Jobs for a pool of workers: bounded, either one queue for all or a deque for each.
//!
//! A job that does not fit is given back at once: waiting is the client's decision, not a loop's.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crate::options::Queue;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::deque::{Injector, Steal, Stealer, Worker};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// Jobs that wait, seen from those who bring them.
pub(crate) struct JobQueue<J> {
    kind: Kind<J>,
    /// Jobs that wait. In the stealing queue, counted up before a job is there to be found.
    depth: AtomicUsize,
    bound: usize,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each pool")]
enum Kind<J> {
    Shared {
        state: Mutex<SharedState<J>>,
        changed: Condvar,
    },
    Stealing {
        injector: Injector<J>,
        stealers: Box<[Stealer<J>]>,
        /// Workers that found nothing; changed only under `parking`.
        asleep: AtomicUsize,
        closed: AtomicBool,
        parking: Mutex<()>,
        changed: Condvar,
    },
}

struct SharedState<J> {
    jobs: VecDeque<J>,
    asleep: usize,
    closed: bool,
}

/// One worker's end of the queue.
pub(crate) struct JobSource<J> {
    queue: Arc<JobQueue<J>>,
    own: Option<Worker<J>>,
    index: usize,
}

/// A job that was taken, and whether from another worker's deque.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<J> {
    pub(crate) job: J,
    pub(crate) stolen: bool,
}

impl<J> JobQueue<J> {
    /// A queue for at most `bound` waiting jobs, with an end for each of `workers` workers.
    pub(crate) fn new(kind: Queue, workers: usize, bound: usize) -> (Arc<Self>, Vec<JobSource<J>>) {
        let mut deques: Vec<Option<Worker<J>>> = (0..workers).map(|_| None).collect();
        let kind = match kind {
            Queue::Shared => Kind::Shared {
                state: Mutex::new(SharedState {
                    jobs: VecDeque::with_capacity(bound.min(1024)),
                    asleep: 0,
                    closed: false,
                }),
                changed: Condvar::new(),
            },
            Queue::WorkStealing => {
                let own: Vec<_> = (0..workers).map(|_| Worker::new_fifo()).collect();
                let stealers = own.iter().map(Worker::stealer).collect();
                deques = own.into_iter().map(Some).collect();
                Kind::Stealing {
                    injector: Injector::new(),
                    stealers,
                    asleep: AtomicUsize::new(0),
                    closed: AtomicBool::new(false),
                    parking: Mutex::new(()),
                    changed: Condvar::new(),
                }
            }
        };
        let depth = AtomicUsize::new(0);
        let queue = Arc::new(Self { kind, depth, bound });
        let sources = deques
            .into_iter()
            .enumerate()
            .map(|(index, own)| JobSource {
                queue: Arc::clone(&queue),
                own,
                index,
            });
        let sources = sources.collect();
        (queue, sources)
    }

    /// Queues a job.
    ///
    /// # Errors
    /// Gives the job back if the queue is full or closed.
    pub(crate) fn push(&self, job: J) -> Result<(), J> {
        self.push_within(self.bound, job)
    }

    /// Queues a job that was admitted before, and so has a place whatever the bound: as many as were
    /// admitted and are not done.
    ///
    /// # Errors
    /// Gives the job back if the queue is closed.
    pub(crate) fn push_again(&self, job: J) -> Result<(), J> {
        self.push_within(usize::MAX, job)
    }

    fn push_within(&self, bound: usize, job: J) -> Result<(), J> {
        match &self.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if state.jobs.len() >= bound || state.closed {
                    return Err(job);
                }
                state.jobs.push_back(job);
                self.depth.store(state.jobs.len(), Ordering::Relaxed);
                let wake = state.asleep > 0;
                drop(state);
                if wake {
                    changed.notify_one();
                }
            }
            Kind::Stealing {
                injector,
                asleep,
                closed,
                parking,
                changed,
                ..
            } => {
                // The depth is raised before this look at `closed`, and a worker looks at `closed`
                // before the depth: none ends before a job that was accepted.
                let is_full = self.depth.fetch_add(1, Ordering::SeqCst) >= bound;
                if is_full || closed.load(Ordering::SeqCst) {
                    self.depth.fetch_sub(1, Ordering::SeqCst);
                    return Err(job);
                }
                injector.push(job);
                // The depth was raised before this look at the sleepers, and a worker looks at the
                // depth after it has counted itself as asleep: one of the two sees the other.
                fence(Ordering::SeqCst);
                if asleep.load(Ordering::SeqCst) > 0 {
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
        self.depth.load(Ordering::Relaxed)
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

impl<J> JobSource<J> {
    /// The next job; waits for one. `None`: closed, and nothing waits any more.
    pub(crate) fn take(&self) -> Option<Taken<J>> {
        match &self.queue.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                loop {
                    if let Some(job) = state.jobs.pop_front() {
                        self.queue.depth.store(state.jobs.len(), Ordering::Relaxed);
                        return Some(Taken { job, stolen: false });
                    }
                    if state.closed {
                        return None;
                    }
                    state.asleep += 1;
                    state = wait(changed, state);
                    state.asleep -= 1;
                }
            }
            Kind::Stealing {
                injector,
                stealers,
                asleep,
                closed,
                parking,
                changed,
            } => loop {
                if let Some(taken) = self.find(injector, stealers) {
                    self.queue.depth.fetch_sub(1, Ordering::SeqCst);
                    return Some(taken);
                }
                let parked = lock(parking);
                asleep.fetch_add(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                let closed = closed.load(Ordering::SeqCst);
                let nothing = self.queue.depth.load(Ordering::SeqCst) == 0;
                if nothing && !closed {
                    drop(wait(changed, parked));
                } else {
                    drop(parked);
                }
                asleep.fetch_sub(1, Ordering::SeqCst);
                if nothing && closed {
                    return None;
                }
                if !nothing {
                    thread::yield_now(); // counted but not yet there, or about to be taken
                }
            },
        }
    }

    /// Jobs that wait, about.
    pub(crate) fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// The queue, and the number of this end.
    pub(crate) fn place(&self) -> (&JobQueue<J>, usize) {
        (&self.queue, self.index)
    }

    /// The next job, if there is one.
    #[cfg(test)]
    pub(crate) fn try_take(&self) -> Option<Taken<J>> {
        match &self.queue.kind {
            Kind::Shared { state, .. } => {
                let job = lock(state).jobs.pop_front()?;
                Some(Taken { job, stolen: false })
            }
            Kind::Stealing {
                injector, stealers, ..
            } => {
                let taken = self.find(injector, stealers)?;
                self.queue.depth.fetch_sub(1, Ordering::SeqCst);
                Some(taken)
            }
        }
    }

    /// Its own deque first, then a batch of what is new, then a job of another worker.
    fn find(&self, injector: &Injector<J>, stealers: &[Stealer<J>]) -> Option<Taken<J>> {
        let own = self.own.as_ref()?;
        if let Some(job) = own.pop() {
            return Some(Taken { job, stolen: false });
        }
        loop {
            let mut contended = false;
            match injector.steal_batch_and_pop(own) {
                Steal::Success(job) => return Some(Taken { job, stolen: false }),
                Steal::Retry => contended = true,
                Steal::Empty => {}
            }
            // Begin behind oneself, so that thieves do not all meet at the same victim.
            let (before, after) = stealers.split_at(self.index);
            for victim in after.iter().skip(1).chain(before) {
                match victim.steal() {
                    Steal::Success(job) => return Some(Taken { job, stolen: true }),
                    Steal::Retry => contended = true,
                    Steal::Empty => {}
                }
            }
            if !contended {
                return None;
            }
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
