//! Time slices of threads of connections: short ones once there are many threads.
//!
//! With thousands that are ready, one that has just computed waits until all others have had as much, and its
//! client gives up meanwhile. With few, short slices cost more than they gain (docs/decisions/0065).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loadline_sys::time_slice::ThreadNumber;

/// From so many connections on.
pub(crate) const MANY: usize = 512;

/// Of the threads of a server that serve a connection each.
#[derive(Debug, Default)]
pub(crate) struct TimeSlices {
    are_short: AtomicBool,
    /// Threads with the usual slices.
    usual: Mutex<HashSet<ThreadNumber>>,
}

/// A thread, until dropped.
#[derive(Debug)]
pub(crate) struct Sliced<'s>(&'s TimeSlices, ThreadNumber);

impl TimeSlices {
    /// The calling thread begins.
    pub(crate) fn enter(&self) -> Sliced<'_> {
        let number = ThreadNumber::own();
        let mut usual = self.lock();
        match self.are_short.load(Ordering::Relaxed) {
            true => ask(number), // it may have been started before
            false => _ = usual.insert(number),
        }
        Sliced(self, number)
    }

    /// All threads get short slices, with the calling one, and those that it starts from now on.
    pub(crate) fn shorten(&self) {
        let mut usual = self.lock();
        if !self.are_short.swap(true, Ordering::Relaxed) {
            ask(ThreadNumber::own());
            usual.drain().for_each(ask);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ThreadNumber>> {
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
        self.0.lock().remove(&self.1);
    }
}
