//! Jobs for a pool of workers: bounded, either one queue for all or a deque for each.
//!
//! A job that does not fit is given back at once: waiting is the client's decision, not a loop's.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_deque::{Injector, Steal, Stealer, Worker};

use crate::options::Queue;

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
        match &self.kind {
            Kind::Shared { state, changed } => {
                let mut state = lock(state);
                if state.jobs.len() >= self.bound || state.closed {
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
                if closed.load(Ordering::Relaxed) {
                    return Err(job);
                }
                if self.depth.fetch_add(1, Ordering::SeqCst) >= self.bound {
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

    #[cfg(test)]
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
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
                let nothing = self.queue.depth.load(Ordering::SeqCst) == 0;
                let closed = closed.load(Ordering::SeqCst);
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
                    std::thread::yield_now(); // counted but not yet there, or about to be taken
                }
            },
        }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_full_queue_gives_the_job_back() {
        for kind in Queue::ALL {
            let (queue, sources) = JobQueue::new(*kind, 2, 3);
            assert_eq!(
                (0..5).map(|n| queue.push(n)).collect::<Vec<_>>(),
                [Ok(()), Ok(()), Ok(()), Err(3), Err(4)]
            );
            assert_eq!(queue.depth(), 3);
            assert_eq!(sources[0].take().map(|taken| taken.job), Some(0));
            assert_eq!((queue.depth(), queue.push(5)), (2, Ok(())));
        }
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        for kind in Queue::ALL {
            let (queue, sources) = JobQueue::new(*kind, 2, 9);
            queue.push(1).unwrap();
            queue.close();
            assert_eq!(queue.push(2), Err(2));
            assert_eq!(sources[1].take().map(|taken| taken.job), Some(1));
            assert_eq!(sources[0].take(), None);
            assert_eq!(sources[1].take(), None);
        }
    }

    #[test]
    fn every_job_is_done_once_and_no_worker_sleeps_through_one() {
        for kind in Queue::ALL {
            let (queue, sources) = JobQueue::new(*kind, 4, 64);
            let (done, results) = mpsc::channel();
            let workers: Vec<_> = sources
                .into_iter()
                .map(|source| {
                    let done = done.clone();
                    thread::spawn(move || {
                        while let Some(taken) = source.take() {
                            done.send(taken.job).unwrap();
                        }
                    })
                })
                .collect();
            // Bursts, so that workers fall asleep in between: each job of the next burst waits for
            // all of the last one.
            for burst in 0..500u32 {
                let jobs = burst % 7 + 1;
                (0..jobs).for_each(|job| queue.push(burst * 10 + job).unwrap());
                let mut came: Vec<_> = (0..jobs).map(|_| results.recv().unwrap()).collect();
                came.sort_unstable();
                assert_eq!(came, (burst * 10..burst * 10 + jobs).collect::<Vec<_>>());
            }
            queue.close();
            workers
                .into_iter()
                .for_each(|worker| worker.join().unwrap());
            assert_eq!(queue.depth(), 0);
        }
    }

    #[test]
    fn idle_workers_steal_what_a_busy_one_has_hoarded() {
        const JOBS: usize = 32;
        let (queue, mut sources) = JobQueue::new(Queue::WorkStealing, 2, JOBS);
        (0..JOBS).for_each(|job| queue.push(job).unwrap());
        // The first worker fetches a batch and is busy with its first job for ever.
        let (thief, busy) = (sources.pop().unwrap(), sources.pop().unwrap());
        assert_eq!(busy.take().map(|taken| taken.job), Some(0));
        queue.close();
        let rest: Vec<_> = std::iter::from_fn(|| thief.take()).collect();
        assert_eq!(rest.len(), JOBS - 1);
        assert!(rest.iter().filter(|taken| taken.stolen).count() > 0);
    }
}
