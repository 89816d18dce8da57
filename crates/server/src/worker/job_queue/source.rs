//! One worker's end of a job queue: the next job, and sleep until there is one.
//!
//! A deque passes on: a worker has its own jobs first, then a batch of what is new, then those of others. It
//! remembers the time that it spent for each lane, so that files, apps and handshakes come in turn.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{JobQueue, Kind, SharedState, lock, wait};
use crate::fairness::lanes::{Charge, LANES, Lane, Lanes};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::deque::{Steal, Worker};
use crate::sync::{Condvar, Mutex, thread};
use crate::worker::queue_ends::End;

/// One worker's end of the queue, until dropped.
pub(crate) struct JobSource<J> {
    queue: Arc<JobQueue<J>>,
    /// By lane.
    own: Option<[Worker<J>; LANES]>,
    index: usize,
    /// What the last job was charged for, and took; `None`: it was not done.
    done: Cell<Option<(Charge, Option<u64>)>>,
    /// Until now the worker has waited with its last job, and no other job was there.
    has_rested: Cell<bool>,
    /// Time that it has spent for each lane, where it has a deque.
    used_us: Cell<[u64; LANES]>,
}

/// A job that was taken, and whether from another worker's deque.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<J> {
    pub(crate) job: J,
    pub(crate) stolen: bool,
    /// To be given back with `JobSource::done` or `not_done`.
    pub(crate) charge: Charge,
}

impl<J> JobSource<J> {
    pub(super) fn new(queue: Arc<JobQueue<J>>, end: End<J>) -> Self {
        Self {
            queue,
            own: end.own,
            index: end.index,
            done: Cell::default(),
            has_rested: Cell::default(),
            used_us: Cell::default(),
        }
    }

    /// The job that was taken last has kept its worker for so long.
    pub(crate) fn done(&self, charge: Charge, took_us: u64) {
        self.done.set(Some((charge, Some(took_us))));
    }

    /// The job that was taken last was not done.
    pub(crate) fn not_done(&self, charge: Charge) {
        self.done.set(Some((charge, None)));
    }

    /// The worker was as good as free until now: it kept a connection that waited for its client.
    pub(crate) fn rested(&self) {
        self.has_rested.set(true);
    }

    fn give_back(&self, jobs: &mut Lanes<J>) {
        match self.done.take() {
            Some((charge, Some(took_us))) => jobs.done(charge, took_us),
            Some((charge, None)) => jobs.not_done(charge),
            None => {}
        }
        if self.has_rested.take() {
            jobs.begin_equal_once();
        }
    }

    /// The next job; waits for one. `None`: closed, and nothing waits any more, or it is one too many.
    /// `now_us`: for `Lanes::pop`.
    pub(crate) fn take(&self, now_us: impl Fn() -> u64) -> Option<Taken<J>> {
        match &self.queue.kind {
            Kind::Shared { state, changed } => self.take_shared(state, changed, now_us),
            Kind::Stealing { .. } => self.take_stealing(),
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
    pub(crate) fn try_take(&self, now_us: u64) -> Option<Taken<J>> {
        match &self.queue.kind {
            Kind::Shared { state, .. } => {
                let mut state = lock(state);
                self.give_back(&mut state.jobs);
                let (job, charge) = state.jobs.pop(now_us)?;
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

    fn take_shared(
        &self,
        state: &Mutex<SharedState<J>>,
        changed: &Condvar,
        now_us: impl Fn() -> u64,
    ) -> Option<Taken<J>> {
        let mut state = lock(state);
        self.give_back(&mut state.jobs);
        loop {
            if state.ends.leave() {
                self.queue.note_workers(&state.ends);
                if state.jobs.len() > 0 && state.asleep > 0 {
                    changed.notify_one();
                }
                return None;
            }
            if let Some((job, charge)) = state.jobs.pop(now_us()) {
                self.queue.depth.store(state.jobs.len(), Relaxed);
                self.queue.note_peaks(state.asleep, state.jobs.len());
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

    fn take_stealing(&self) -> Option<Taken<J>> {
        let Kind::Stealing {
            asleep,
            closed,
            is_crowded,
            parking,
            changed,
            ..
        } = &self.queue.kind
        else {
            return None;
        };
        loop {
            let is_leaving = is_crowded.load(Relaxed) && self.is_own_empty();
            if !is_leaving && let Some(taken) = self.find() {
                let depth = self.queue.depth.fetch_sub(1, Ordering::SeqCst);
                (self.queue).note_peaks(asleep.load(Relaxed), depth.saturating_sub(1));
                return Some(taken);
            }
            let mut parked = lock(parking);
            if parked.leave() {
                self.queue.note_workers(&parked);
                is_crowded.store(parked.is_crowded(), Relaxed);
                // The wake-up that brought it here may have been for a job.
                let depth = self.queue.depth.load(Ordering::SeqCst);
                if depth > 0 && asleep.load(Ordering::SeqCst) > 0 {
                    changed.notify_one();
                }
                return None;
            }
            if is_leaving {
                continue; // another was quicker
            }
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
        }
    }

    /// The lane that it has spent less time for comes first.
    fn find(&self) -> Option<Taken<J>> {
        let mut used_us = self.used_us.get();
        if let Some((charge, Some(took_us))) = self.done.take() {
            used_us[charge.flow.lane as usize] += took_us * charge.flow.lane.cost();
        }
        if self.has_rested.take() {
            used_us = [used_us.into_iter().fold(0, u64::max); LANES];
        }
        let mut lanes = Lane::ALL;
        lanes.sort_unstable_by_key(|lane| used_us[*lane as usize]);
        let mut found = None;
        // Where nothing waits, nothing is short: all begin equal then.
        let mut time_us = used_us.into_iter().fold(0, u64::max);
        for lane in lanes {
            found = self.find_in(lane);
            if found.is_some() {
                time_us = used_us[lane as usize];
                break;
            }
        }
        // Who has nothing to do saves no time up.
        for used_us in &mut used_us {
            *used_us = time_us.max(*used_us);
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
            used,
            ..
        } = &self.queue.kind
        else {
            return None;
        };
        let used = used.load(Relaxed).max(self.index + 1);
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
            let (before, after) = stealers[lane as usize][..used].split_at(self.index);
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

    fn is_own_empty(&self) -> bool {
        let own = self.own.iter().flatten();
        own.into_iter().all(Worker::is_empty)
    }
}

impl<J> Drop for JobSource<J> {
    fn drop(&mut self) {
        if !self.is_own_empty() {
            return; // others steal from it
        }
        let end = End {
            own: self.own.take(),
            index: self.index,
        };
        match &self.queue.kind {
            Kind::Shared { state, .. } => lock(state).ends.give_back(end),
            Kind::Stealing { used, parking, .. } => {
                let mut ends = lock(parking);
                ends.give_back(end);
                used.store(ends.used(), Relaxed);
            }
        }
    }
}
