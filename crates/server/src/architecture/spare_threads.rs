//! Threads whose connection has ended, kept for a moment for a new one: starting and ending a thread costs
//! as much as a refusal (docs/decisions/0065).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As many as come and go in a moment.
pub(crate) const THREADS_MAX: usize = 64;
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
    /// Threads that wait.
    waiting: usize,
    /// No more than threads that wait.
    work: VecDeque<W>,
}

impl<W> SpareThreads<W> {
    /// So many threads at most may wait.
    pub(crate) fn new(threads_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                threads_max,
                waiting: 0,
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

    /// This thread waits for work. `None`: it is to end.
    pub(crate) fn wait(&self) -> Option<W> {
        let mut state = self.lock();
        if state.waiting >= state.threads_max {
            return None;
        }
        state.waiting += 1;
        let is_to_wait = |state: &mut State<W>| state.work.is_empty() && state.threads_max > 0;
        let waited = (self.changed).wait_timeout_while(state, self.wait_max, is_to_wait);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.work.pop_front()
    }

    /// All that wait are to end; none waits any more.
    pub(crate) fn close(&self) {
        self.lock().threads_max = 0;
        self.changed.notify_all();
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
            thread::spawn(move || threads.wait())
        };
        let waiting = [wait(), wait()];
        await_waiting(&threads, 2);
        assert_eq!(threads.wait(), None, "there are two already");
        assert_eq!((threads.give(2), threads.give(3)), (None, None));
        let mut taken = waiting.map(|thread| thread.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [Some(2), Some(3)]);
        assert_eq!(threads.give(4), Some(4));
    }

    #[test]
    fn threads_end_at_once_when_it_is_closed_and_what_was_given_is_still_taken() {
        let threads = Arc::new(SpareThreads::new(2));
        let waiting = [0, 1].map(|_| {
            let threads = Arc::clone(&threads);
            thread::spawn(move || threads.wait())
        });
        await_waiting(&threads, 2);
        assert_eq!(threads.give(1), None);
        threads.close();
        let mut taken = waiting.map(|thread| thread.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [None, Some(1)]);
        assert_eq!(threads.wait(), None);
    }

    #[test]
    fn a_thread_without_work_ends() {
        let threads = SpareThreads::<u32> {
            wait_max: Duration::from_millis(1),
            ..SpareThreads::new(1)
        };
        assert_eq!(threads.wait(), None);
        assert_eq!(waiting(&threads), 0);
        assert_eq!(SpareThreads::<u32>::new(0).wait(), None);
    }
}
