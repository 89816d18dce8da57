//! What happened: counts, and the times of each request.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    record: Mutex<Record>,
    times_max: usize,
}

#[derive(Debug)]
struct Record {
    counts: Counts,
    times: Vec<Times>,
}

impl Shared {
    pub(crate) fn new(faults: usize, connection_faults: usize, times_max: usize) -> Self {
        let counts = Counts {
            faults: vec![0; faults],
            connection_faults: vec![0; connection_faults],
            ..Counts::default()
        };
        // All at once: a list that moves while it grows would hold answers up.
        let times = Vec::with_capacity(times_max);
        Self {
            record: Mutex::new(Record { counts, times }),
            times_max,
        }
    }

    /// Adds to the counts.
    pub(crate) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.lock().counts);
    }

    /// Counts an answer, and keeps its times if there is room.
    pub(crate) fn answered(&self, times: Times) {
        let mut record = self.lock();
        record.counts.answers += 1;
        if record.times.len() < self.times_max {
            record.times.push(times);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    pub(crate) fn times(&self) -> Vec<Times> {
        self.lock().times.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
