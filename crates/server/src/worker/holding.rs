//! Workers that keep their connection while it waits for its client, as long as no other connection
//! waits for a worker, and no worker is too many: the threads of a pool (`--architecture thread-pool`).
//!
//! ```text
//!   worker:     seat says since when it waits ▸ jobs in the queue?  ──┐  so one of the two always
//!   submitter:  job in the queue ▸ which seat waits the longest?    ──┘  sees the other
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use loadline_base::Millis;
use loadline_sys::Waker;

use crate::connection_thread::Hold;
use crate::worker::job::Job;
use crate::worker::job_queue::JobQueue;

/// The workers' seats.
#[derive(Debug)]
pub(crate) struct Seats {
    seats: Box<[Seat]>,
    /// Idle connections may have to make room for others: their loop wants them all.
    all_wanted: AtomicBool,
}

/// One worker, seen from outside.
#[derive(Debug)]
struct Seat {
    /// Since when its connection waits for its client, in ms; or one of the two below.
    waits_since: AtomicU64,
    waker: Waker,
}

/// It does not wait.
const BUSY: u64 = u64::MAX - 1;
/// Its connection has lost it to others.
const LOST: u64 = u64::MAX;

impl Seats {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let seat = |_| {
            Ok(Seat {
                waits_since: AtomicU64::new(BUSY),
                waker: Waker::new()?,
            })
        };
        Ok(Self {
            seats: (0..count).map(seat).collect::<io::Result<_>>()?,
            all_wanted: AtomicBool::new(false),
        })
    }

    /// Whether idle connections may have to make room for others: then no worker keeps any.
    pub(crate) fn want_all(&self, all_wanted: bool) {
        if self.all_wanted.load(Ordering::Relaxed) == all_wanted {
            return;
        }
        self.all_wanted.store(all_wanted, Ordering::SeqCst);
        while all_wanted && self.free_one() {}
    }

    /// A job waits for which no worker is free: the connection that has waited for its client the
    /// longest loses its worker.
    ///
    /// Looks at each seat, some ns; for a job for which a worker would have to be woken anyway.
    /// `false`: none waits.
    pub(crate) fn free_one(&self) -> bool {
        fence(Ordering::SeqCst);
        loop {
            let waiting = self.seats.iter().map(|seat| {
                let since = seat.waits_since.load(Ordering::SeqCst);
                (since, seat)
            });
            let longest = waiting.filter(|(since, _)| *since < BUSY);
            let Some((since, seat)) = longest.min_by_key(|(since, _)| *since) else {
                return false;
            };
            let order = Ordering::SeqCst;
            let lost = (seat.waits_since).compare_exchange(since, LOST, order, order);
            if lost.is_ok() {
                seat.waker.wake();
                return true;
            }
        }
    }
}

/// A connection's right to the worker of a seat.
pub(crate) struct Held<'w> {
    seat: &'w Seat,
    all_wanted: &'w AtomicBool,
    jobs: &'w JobQueue<Job>,
}

impl<'w> Held<'w> {
    pub(crate) fn new(seats: &'w Seats, index: usize, jobs: &'w JobQueue<Job>) -> Self {
        Self {
            seat: &seats.seats[index],
            all_wanted: &seats.all_wanted,
            jobs,
        }
    }
}

impl Hold for Held<'_> {
    const GIVES_BACK: bool = true;

    fn rest(&self, now: Millis) -> bool {
        self.seat.waits_since.store(now.0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_wanted = self.is_wanted();
        if is_wanted {
            self.seat.waits_since.store(BUSY, Ordering::SeqCst);
        }
        !is_wanted
    }

    fn resume(&self) -> bool {
        self.seat.waits_since.swap(BUSY, Ordering::SeqCst) != LOST
    }

    fn is_wanted(&self) -> bool {
        self.jobs.depth() > 0 || self.jobs.excess() > 0 || self.all_wanted.load(Ordering::SeqCst)
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.seat.waker)
    }
}
