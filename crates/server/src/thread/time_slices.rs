//! Time slices of threads of connections: short ones once there are many threads.
//!
//! With thousands that are ready, one that has just computed waits until all others have had as much, and its
//! client gives up meanwhile. With few, short slices cost more than they gain (docs/decisions/0065).

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_sys::time_slice::ThreadNumber;

/// From so many connections on.
pub(crate) const MANY: usize = 512;

/// Of the threads of a server that serve a connection each.
#[derive(Debug)]
pub(crate) struct TimeSlices {
    /// Threads with the usual slices; `None`: all have short ones.
    usual: Mutex<Option<HashSet<ThreadNumber>>>,
}

/// A thread, until dropped.
#[derive(Debug)]
pub(crate) struct Sliced<'s>(&'s TimeSlices, ThreadNumber);

impl Default for TimeSlices {
    fn default() -> Self {
        Self {
            usual: Mutex::new(Some(HashSet::new())),
        }
    }
}

impl TimeSlices {
    /// The calling thread begins.
    pub(crate) fn enter(&self) -> Sliced<'_> {
        let number = ThreadNumber::own();
        match &mut *self.lock() {
            Some(usual) => _ = usual.insert(number),
            None => ask(number), // it may have been started before
        }
        Sliced(self, number)
    }

    /// All threads get short slices, with the calling one, and those that it starts from now on.
    pub(crate) fn shorten(&self) {
        // Under the lock: none of them ends meanwhile.
        let mut usual = self.lock();
        if let Some(threads) = usual.take() {
            ask(ThreadNumber::own());
            threads.into_iter().for_each(ask);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashSet<ThreadNumber>>> {
        // Nothing in here panics while it holds the lock.
        self.usual.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask(thread: ThreadNumber) {
    if let Err(error) = thread.ask_for_shortest_slices() {
        tracing::debug!("a thread keeps the usual time slices: {error}");
    }
}

impl Drop for Sliced<'_> {
    fn drop(&mut self) {
        if let Some(usual) = &mut *self.0.lock() {
            usual.remove(&self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_is_not_asked_for() {
        let slices = TimeSlices::default();
        let usual = || slices.lock().as_ref().map(HashSet::len);
        let begun = slices.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(slices.enter()));
        });
        assert_eq!(usual(), Some(1));
        drop(begun);
        assert_eq!(usual(), Some(0));
        std::thread::scope(|scope| {
            scope.spawn(|| slices.shorten());
        });
        assert_eq!(usual(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(slices.enter()));
        });
        assert_eq!(usual(), None);
    }
}
