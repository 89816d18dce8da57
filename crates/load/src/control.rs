//! How a run is started together and stopped early.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the threads of a run look at in each turn. Times are of the monotonic clock, which all
/// processes of a machine share.
#[derive(Debug, Default)]
pub struct Control {
    start_ns: AtomicU64,
    end: AtomicBool,
    stop: AtomicBool,
}

impl Control {
    /// A run that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the moment from which everything is counted; once, after every thread said that it is
    /// ready.
    pub fn start_at(&self, start_ns: u64) {
        self.start_ns.store(start_ns, Ordering::Release);
    }

    /// The moment from which everything is counted; `None`: not known yet.
    #[must_use]
    pub fn start_ns(&self) -> Option<u64> {
        let ns = self.start_ns.load(Ordering::Acquire);
        (ns > 0).then_some(ns)
    }

    /// The requests that the run was to have are done: virtual users, which have
    /// no number of them, come to their end as if the last phase had.
    pub fn end(&self) {
        self.end.store(true, Ordering::Release);
    }

    /// Whether the requests are done.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.end.load(Ordering::Acquire)
    }

    /// Asks every thread to end: it sends nothing more, waits for no answer, and reports.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
