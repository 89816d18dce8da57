//! Threads whose connection has ended, kept for a moment for a new one: starting and ending a thread costs
//! as much as a refusal (docs/decisions/0065).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As many as come and go in a tenth of a second, at 10,000 a second. More are not worth the memory: some
/// 52 KiB each, for a second.
pub(crate) const THREADS_MAX: usize = 1_000;
/// A thread that has waited so long is not needed.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Threads that wait, and work for them.
#[derive(Debug)]
pub(crate) struct SpareThreads<W> {
    state: Mutex<State<W>>,
    changed: Condvar,
    wait_max: Duration,
}

#[derive(Debug)]
struct State<W> {
    threads_max: usize,
    is_closed: bool,
    /// Threads that wait.
    waiting: usize,
    /// Threads without work: those that wait, and those that are about to wait or to end.
    idle: usize,
    /// No more than threads that wait.
    work: VecDeque<W>,
}

/// A thread whose work is done, until it is dropped or has work again.
#[derive(Debug)]
pub(crate) struct Idle<'t, W>(&'t SpareThreads<W>);

impl<W> Idle<'_, W> {
    /// This thread waits for work. `Err`: it is to end.
    pub(crate) fn wait(self) -> Result<W, Self> {
        let threads = self.0;
        let mut state = threads.lock();
        if state.is_closed || state.waiting >= state.threads_max {
            drop(state);
            return Err(self);
        }
        state.waiting += 1;
        let is_to_wait = |state: &mut State<W>| state.work.is_empty() && !state.is_closed;
        let waited = (threads.changed).wait_timeout_while(state, threads.wait_max, is_to_wait);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        let work = state.work.pop_front();
        drop(state);
        work.ok_or(self)
    }

    /// Whether all are to end.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }
}

impl<W> Drop for Idle<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.idle -= 1;
        if state.is_closed {
            self.0.changed.notify_all();
        }
    }
}

impl<W> SpareThreads<W> {
    /// So many threads at most may wait.
    pub(crate) fn new(threads_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                threads_max,
                is_closed: false,
                waiting: 0,
                idle: 0,
                work: VecDeque::new(),
            }),
            changed: Condvar::new(),
            wait_max: WAIT_MAX,
        }
    }

    /// Gives work to a thread that waits; back if none does.
    pub(crate) fn give(&self, work: W) -> Option<W> {
        let mut state = self.lock();
        if state.work.len() >= state.waiting {
            return Some(work);
        }
        state.work.push_back(work);
        self.changed.notify_one();
        None
    }

    /// This thread's work is done.
    pub(crate) fn idle(&self) -> Idle<'_, W> {
        self.lock().idle += 1;
        Idle(self)
    }

    /// Threads without work are to end, and have ended then.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.idle > 0));
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        // Nothing in here panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn waiting(threads: &SpareThreads<u32>) -> usize {
        threads.lock().waiting
    }

    /// Waits until so many threads do.
    fn await_waiting(threads: &SpareThreads<u32>, count: usize) {
        while waiting(threads) != count {
            thread::yield_now();
        }
    }

    #[test]
    fn each_piece_of_work_goes_to_a_thread_that_waits() {
        let threads = Arc::new(SpareThreads::new(2));
        assert_eq!(threads.give(1), Some(1), "nobody waits");
        let wait = || {
            let threads = Arc::clone(&threads);
            thread::spawn(move || threads.idle().wait().ok())
        };
        let waiting = [wait(), wait()];
        await_waiting(&threads, 2);
        assert!(threads.idle().wait().is_err(), "there are two already");
        assert_eq!((threads.give(2), threads.give(3)), (None, None));
        let mut taken = waiting.map(|thread| thread.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [Some(2), Some(3)]);
        assert_eq!(threads.give(4), Some(4));
    }

    #[test]
    fn threads_have_ended_when_it_is_closed_and_what_was_given_is_still_taken() {
        let threads = Arc::new(SpareThreads::new(2));
        let ending = [0, 1].map(|_| {
            let threads = Arc::clone(&threads);
            thread::spawn(move || threads.idle().wait().ok())
        });
        await_waiting(&threads, 2);
        assert_eq!(threads.give(1), None);
        threads.close();
        assert_eq!(waiting(&threads), 0);
        let mut taken = ending.map(|thread| thread.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [None, Some(1)]);
        assert!(threads.idle().wait().is_err_and(|idle| idle.is_closed()));
    }

    #[test]
    fn a_thread_without_work_ends() {
        let threads = SpareThreads::<u32> {
            wait_max: Duration::from_millis(1),
            ..SpareThreads::new(1)
        };
        assert!(threads.idle().wait().is_err_and(|idle| !idle.is_closed()));
        assert_eq!(waiting(&threads), 0);
        assert!(SpareThreads::<u32>::new(0).idle().wait().is_err());
    }
}
