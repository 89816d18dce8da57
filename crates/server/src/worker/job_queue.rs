//! Jobs for a pool of workers: bounded, either one queue for all or a deque for each.
//!
//! A job that does not fit is given back at once: waiting is the client's decision, not a loop's.
//!
//! Files and apps are served in turn. In the shared queue so are clients; a deque keeps the order.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize as Count, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use crate::fairness::lanes::{Ahead, Charge, Lane, Lanes, Place};
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
        /// By lane.
        injectors: [Injector<J>; 2],
        stealers: [Box<[Stealer<J>]>; 2],
        /// Jobs that wait in each lane, about. Nobody's sleep depends on it.
        waiting: [Count; 2],
        /// Workers that found nothing; changed only under `parking`.
        asleep: AtomicUsize,
        closed: AtomicBool,
        parking: Mutex<()>,
        changed: Condvar,
    },
}

struct SharedState<J> {
    jobs: Lanes<J>,
    asleep: usize,
    closed: bool,
}

/// One worker's end of the queue.
pub(crate) struct JobSource<J> {
    queue: Arc<JobQueue<J>>,
    /// By lane.
    own: Option<[Worker<J>; 2]>,
    index: usize,
    /// What the last job was charged for, and took.
    done: Cell<Option<(Charge, u64)>>,
    /// Time that it has spent for each lane, where it has a deque.
    used_us: Cell<[u64; 2]>,
}

/// A job that was taken, and whether from another worker's deque.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<J> {
    pub(crate) job: J,
    pub(crate) stolen: bool,
    /// To be given back with `JobSource::done`.
    pub(crate) charge: Charge,
}

impl<J> JobQueue<J> {
    /// A queue for at most `bound` waiting jobs, with an end for each of `workers` workers.
    pub(crate) fn new(kind: Queue, workers: usize, bound: usize) -> (Arc<Self>, Vec<JobSource<J>>) {
        let mut deques: Vec<Option<[Worker<J>; 2]>> = (0..workers).map(|_| None).collect();
        let kind = match kind {
            Queue::Shared => Kind::Shared {
                state: Mutex::new(SharedState {
                    jobs: Lanes::default(),
                    asleep: 0,
                    closed: false,
                }),
                changed: Condvar::new(),
            },
            Queue::WorkStealing => {
                let own: Vec<[Worker<J>; 2]> = (0..workers)
                    .map(|_| Lane::ALL.map(|_| Worker::new_fifo()))
                    .collect();
                let stealers = Lane::ALL.map(|lane| {
                    let of_lane = own.iter().map(|deques| deques[lane as usize].stealer());
                    of_lane.collect()
                });
                deques = own.into_iter().map(Some).collect();
                Kind::Stealing {
                    injectors: Lane::ALL.map(|_| Injector::new()),
                    stealers,
                    waiting: Default::default(),
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
                done: Cell::default(),
                used_us: Cell::default(),
            });
        let sources = sources.collect();
        (queue, sources)
    }

    /// Queues a job.
    ///
    /// # Errors
    /// Gives the job back if the queue is full or closed.
    pub(crate) fn push(&self, place: Place, job: J) -> Result<(), J> {
        self.push_within(self.bound, place, job)
    }

    /// Queues a job that was admitted before, and so has a place whatever the bound: as many as were
    /// admitted and are not done.
    ///
    /// # Errors
    /// Gives the job back if the queue is closed.
    pub(crate) fn push_again(&self, place: Place, job: J) -> Result<(), J> {
        self.push_within(usize::MAX, place, job)
    }

    fn push_within(&self, bound: usize, place: Place, job: J) -> Result<(), J> {
        match &self.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if state.jobs.len() >= bound || state.closed {
                    return Err(job);
                }
                state.jobs.push(place, job);
                self.depth.store(state.jobs.len(), Relaxed);
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
                let is_full = self.depth.fetch_add(1, Ordering::SeqCst) >= bound;
                if is_full || closed.load(Ordering::SeqCst) {
                    self.depth.fetch_sub(1, Ordering::SeqCst);
                    return Err(job);
                }
                waiting[place.lane as usize].fetch_add(1, Relaxed);
                injectors[place.lane as usize].push(job);
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
        self.depth.load(Relaxed)
    }

    /// What a job would find here, about.
    pub(crate) fn ahead(&self, place: Place) -> Ahead {
        if self.depth() == 0 {
            return Ahead::default();
        }
        match &self.kind {
            Kind::Shared { state, .. } => lock(state).jobs.ahead(place),
            Kind::Stealing { waiting, .. } => {
                let jobs = waiting[place.lane as usize].load(Relaxed);
                Ahead {
                    jobs,
                    jobs_of_others: jobs,
                    beside: waiting[place.lane.other() as usize].load(Relaxed),
                }
            }
        }
    }

    /// Takes jobs of a lane out that nobody needs any more; none of deques, which only pass jobs on.
    pub(crate) fn remove_if(&self, lane: Lane, is_needless: impl Fn(&J) -> bool) -> Vec<J> {
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

impl<J> JobSource<J> {
    /// The job that was taken last has kept its worker for so long.
    pub(crate) fn done(&self, charge: Charge, took_us: u64) {
        self.done.set(Some((charge, took_us)));
    }

    /// The next job; waits for one. `None`: closed, and nothing waits any more.
    pub(crate) fn take(&self) -> Option<Taken<J>> {
        match &self.queue.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if let Some((charge, took_us)) = self.done.take() {
                    state.jobs.done(charge, took_us);
                }
                loop {
                    if let Some((job, charge)) = state.jobs.pop() {
                        self.queue.depth.store(state.jobs.len(), Relaxed);
                        let stolen = false;
                        return Some(Taken {
                            job,
                            stolen,
                            charge,
                        });
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
                asleep,
                closed,
                parking,
                changed,
                ..
            } => loop {
                if let Some(taken) = self.find() {
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
                let mut state = lock(state);
                if let Some((charge, took_us)) = self.done.take() {
                    state.jobs.done(charge, took_us);
                }
                let (job, charge) = state.jobs.pop()?;
                self.queue.depth.store(state.jobs.len(), Relaxed);
                let stolen = false;
                Some(Taken {
                    job,
                    stolen,
                    charge,
                })
            }
            Kind::Stealing { .. } => {
                let taken = self.find()?;
                self.queue.depth.fetch_sub(1, Ordering::SeqCst);
                Some(taken)
            }
        }
    }

    /// The lane that it has spent less time for comes first.
    fn find(&self) -> Option<Taken<J>> {
        let mut used_us = self.used_us.get();
        if let Some((charge, took_us)) = self.done.take() {
            used_us[charge.place.lane as usize] += took_us;
        }
        let mut lanes = Lane::ALL;
        lanes.sort_unstable_by_key(|lane| used_us[*lane as usize]);
        let mut found = None;
        for lane in lanes {
            found = self.find_in(lane);
            if found.is_some() {
                break;
            }
            // Who has nothing to do saves no time up.
            let other_us = used_us[lane.other() as usize];
            let own_us = &mut used_us[lane as usize];
            *own_us = other_us.max(*own_us);
        }
        self.used_us.set(used_us);
        found
    }

    /// Its own deque first, then a batch of what is new, then a job of another worker.
    fn find_in(&self, lane: Lane) -> Option<Taken<J>> {
        let Kind::Stealing {
            injectors,
            stealers,
            waiting,
            ..
        } = &self.queue.kind
        else {
            return None;
        };
        let own = &self.own.as_ref()?[lane as usize];
        let injector = &injectors[lane as usize];
        let taken = |job, stolen| {
            waiting[lane as usize].fetch_sub(1, Relaxed);
            Some(Taken {
                job,
                stolen,
                charge: Charge::of(lane),
            })
        };
        if let Some(job) = own.pop() {
            return taken(job, false);
        }
        loop {
            let mut contended = false;
            match injector.steal_batch_and_pop(own) {
                Steal::Success(job) => return taken(job, false),
                Steal::Retry => contended = true,
                Steal::Empty => {}
            }
            // Begin behind oneself, so that thieves do not all meet at the same victim.
            let (before, after) = stealers[lane as usize].split_at(self.index);
            for victim in after.iter().skip(1).chain(before) {
                match victim.steal() {
                    Steal::Success(job) => return taken(job, true),
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
