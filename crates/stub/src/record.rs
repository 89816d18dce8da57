//! What happened: counts, and the times of each request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Complete requests.
    pub requests: u64,
    /// Answers given to the kernel to their last byte, as the program has them without faults; or
    /// with a fault that leaves them complete: a status, content or length, or late.
    pub answers: u64,
    /// Answers that were due when the connection was gone.
    pub missed: u64,
    /// What was received that is no request this responder understands.
    pub not_understood: u64,
    /// Requests that each of `StubOptions::faults` concerned.
    pub faults: Vec<u64>,
    /// Connections that each of `StubOptions::connection_faults` concerned.
    pub connection_faults: Vec<u64>,
}

/// When things happened to one request, in nanoseconds of the monotonic clock.
///
/// A client's times contain these: it sent before the arrival, and received after the answer was
/// given to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The number of the request, from 1, in the order of arrival.
    pub number: u64,
    /// When its last byte arrived: as the kernel stamped it, however much later this program was
    /// woken for it; or, should there be no stamp, when the wait that saw it had ended.
    pub arrived_ns: u64,
    /// When the answer was due.
    pub due_ns: u64,
    /// When its first byte was given to the kernel: right before the system call, in which the
    /// kernel wakes the client.
    pub sent_ns: u64,
}

impl Times {
    /// From the arrival to the answer, as it was.
    #[must_use]
    pub fn true_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.arrived_ns)
    }

    /// How much later than programmed the answer was: the responder's own error.
    #[must_use]
    pub fn late_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.due_ns)
    }
}

/// What a responder has to say at its end.
#[derive(Clone, Debug)]
pub struct Report {
    /// Counts.
    pub counts: Counts,
    /// Of each request that was answered, whole or in part, in the order of the answers; at most
    /// `StubOptions::times_max`.
    pub times: Vec<Times>,
    /// Time in which the responder's thread could have run and was not allowed to, in nanoseconds:
    /// what the machine added to its times (`/proc/thread-self/schedstat`, if there is one).
    pub run_delay_ns: u64,
}

/// Written by the responder's thread, read by others.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) not_understood: AtomicU64,
    pub(crate) faults: Vec<AtomicU64>,
    pub(crate) connection_faults: Vec<AtomicU64>,
    times: Mutex<Vec<Times>>,
    times_max: usize,
}

impl Shared {
    pub(crate) fn new(faults: usize, connection_faults: usize, times_max: usize) -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            not_understood: AtomicU64::new(0),
            faults: zeros(faults),
            connection_faults: zeros(connection_faults),
            // All at once: a list that moves while it grows would hold answers up.
            times: Mutex::new(Vec::with_capacity(times_max)),
            times_max,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let all = |counts: &[AtomicU64]| counts.iter().map(load).collect();
        Counts {
            connections: load(&self.connections),
            requests: load(&self.requests),
            answers: load(&self.answers),
            missed: load(&self.missed),
            not_understood: load(&self.not_understood),
            faults: all(&self.faults),
            connection_faults: all(&self.connection_faults),
        }
    }

    pub(crate) fn record(&self, times: Times) {
        let mut list = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < self.times_max {
            list.push(times);
        }
    }

    pub(crate) fn times(&self) -> Vec<Times> {
        let list = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}

/// Adds one to a count that only the calling thread writes.
pub(crate) fn count(count: &AtomicU64) {
    count.store(load(count) + 1, Ordering::Relaxed);
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
