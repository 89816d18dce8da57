//! Workers that keep their connection while it waits for its client, as long as no other connection
//! waits for a worker, and no worker is too many: the threads of a pool (`--architecture thread-pool`). One
//! that waits for an app's task, perhaps since that waits for its client, goes to its loop at once.
//!
//! ```text
//!   worker:     seat says since when it waits ▸ jobs in the queue?  ──┐  so one of the two always
//!   submitter:  job in the queue ▸ which seat waits the longest?    ──┘  sees the other
//! ```
//!
//! They wait without a timeout, which would cost the kernel 0.5 us for each wait: the loop wakes them at
//! their deadlines. It looks at the seats when the earliest deadline has come that it knows. Most deadlines
//! only move on while it sleeps, and nobody has to say so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use loadline_base::{Millis, Token};
use loadline_sys::Waker;

use crate::connection_thread::{Hold, Resting};
use crate::task::TaskHome;
use crate::worker::job::{Job, Message};
use crate::worker::job_queue::JobQueue;
use crate::worker::mailbox::Mailbox;

/// The workers' seats.
#[derive(Debug)]
pub(crate) struct Seats {
    seats: Box<[Seat]>,
    /// When the loop looks at the seats' deadlines next, in ms: not after the earliest of those that wait.
    look_at: AtomicU64,
    /// Connections may have to make room for others: their loop wants them all.
    all_wanted: AtomicBool,
}

/// One worker, seen from outside. On a cache line of its own, since the worker writes it twice for each wait.
#[derive(Debug)]
#[repr(align(64))]
struct Seat {
    /// Since when its connection waits for its client, in ms; or one of the two below.
    waits_since: AtomicU64,
    /// When it is to be woken, in ms, if it waits.
    deadline: AtomicU64,
    waker: Waker,
}

/// There is no deadline.
const NEVER: u64 = u64::MAX;
/// It does not wait.
const BUSY: u64 = u64::MAX - 1;
/// Its connection has lost it to others.
const LOST: u64 = u64::MAX;

impl Seats {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let seat = |_| {
            Ok(Seat {
                waits_since: AtomicU64::new(BUSY),
                deadline: AtomicU64::new(NEVER),
                waker: Waker::new()?,
            })
        };
        Ok(Self {
            seats: (0..count).map(seat).collect::<io::Result<_>>()?,
            look_at: AtomicU64::new(NEVER),
            all_wanted: AtomicBool::new(false),
        })
    }

    /// Whether connections may have to make room for others: then no worker keeps one that waits.
    pub(crate) fn want_all(&self, all_wanted: bool) {
        if self.all_wanted.load(Ordering::Relaxed) == all_wanted {
            return;
        }
        self.all_wanted.store(all_wanted, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for seat in self.seats.iter().filter(|_| all_wanted) {
            let since = seat.waits_since.load(Ordering::SeqCst);
            if since < BUSY {
                seat.free(since);
            }
        }
    }

    /// Wakes the workers whose connections have waited until their deadlines. Returns when to look again:
    /// a worker whose deadline comes earlier sends mail.
    pub(crate) fn wake_expired(&self, now: Millis) -> Option<Millis> {
        let look_at = self.look_at.load(Ordering::SeqCst);
        if look_at > now.0 {
            return (look_at != NEVER).then_some(Millis(look_at));
        }
        // Before the look: who begins to wait after it finds this, and says when it is to be woken.
        self.look_at.store(NEVER, Ordering::SeqCst);
        let mut earliest = NEVER;
        for seat in &self.seats {
            if seat.waits_since.load(Ordering::SeqCst) >= BUSY {
                continue;
            }
            let deadline = seat.deadline.load(Ordering::SeqCst);
            match deadline > now.0 {
                true => earliest = earliest.min(deadline),
                false => seat.waker.wake(),
            }
        }
        let look_at = self
            .look_at
            .fetch_min(earliest, Ordering::SeqCst)
            .min(earliest);
        (look_at != NEVER).then_some(Millis(look_at))
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
            if seat.free(since) {
                return true;
            }
        }
    }
}

impl Seat {
    /// Its connection, which has waited since then, loses it; `false`: it does not wait any more.
    fn free(&self, since: u64) -> bool {
        let order = Ordering::SeqCst;
        let lost = (self.waits_since).compare_exchange(since, LOST, order, order);
        if lost.is_ok() {
            self.waker.wake();
        }
        lost.is_ok()
    }
}

/// A connection's right to the worker of a seat.
pub(crate) struct Held<'w> {
    seat: &'w Seat,
    seats: &'w Seats,
    jobs: &'w JobQueue<Job>,
    /// Of the loop that wakes it at its deadline.
    mailbox: &'w Mailbox<Message>,
    /// The same loop, for its tasks.
    home: Option<(&'w Arc<dyn TaskHome>, Token)>,
}

impl<'w> Held<'w> {
    pub(crate) fn new(
        seats: &'w Seats,
        index: usize,
        jobs: &'w JobQueue<Job>,
        mailbox: &'w Mailbox<Message>,
    ) -> Self {
        Self {
            seat: &seats.seats[index],
            seats,
            jobs,
            mailbox,
            home: None,
        }
    }

    /// Its tasks are begun for this loop.
    pub(crate) fn with_home(self, home: Option<&'w Arc<dyn TaskHome>>, token: Token) -> Self {
        Self {
            home: home.map(|home| (home, token)),
            ..self
        }
    }
}

impl Hold for Held<'_> {
    const GIVES_BACK: bool = true;
    const IS_WOKEN_AT_DEADLINE: bool = true;

    fn rest(&self, resting: &Resting) -> bool {
        let deadline = resting.deadline.map_or(NEVER, |at| at.0);
        self.seat.deadline.store(deadline, Ordering::Relaxed);
        self.seat.waits_since.swap(resting.now.0, Ordering::SeqCst); // and the deadline is seen with it
        if self.is_wanted() {
            self.seat.waits_since.store(BUSY, Ordering::SeqCst);
            return false;
        }
        let look_at = &self.seats.look_at;
        if deadline < look_at.load(Ordering::SeqCst)
            && deadline < look_at.fetch_min(deadline, Ordering::SeqCst)
        {
            self.mailbox.nudge();
        }
        true
    }

    fn resume(&self) -> bool {
        self.seat.waits_since.swap(BUSY, Ordering::SeqCst) != LOST
    }

    fn is_wanted(&self) -> bool {
        let all_wanted = &self.seats.all_wanted;
        self.jobs.depth() > 0 || self.jobs.excess() > 0 || all_wanted.load(Ordering::SeqCst)
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.seat.waker)
    }

    fn home(&self) -> Option<(&Arc<dyn TaskHome>, Token)> {
        self.home
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use loadline_sys::wait_readable;

    use super::*;
    use crate::fairness::Occupation;

    fn resting(now: Millis, deadline: Option<Millis>) -> Resting {
        Resting {
            now,
            deadline,
            occupation: Occupation::Idle(now),
            proxied_client: None,
            bytes: 0,
        }
    }
    use crate::options::Queue;

    fn is_woken(seat: &Seat) -> bool {
        let woken = wait_readable(&[seat.waker.as_fd()], Some(0)).unwrap();
        seat.waker.clear();
        woken[0]
    }

    #[test]
    fn workers_are_woken_at_their_deadlines_and_the_loop_at_an_earlier_one() {
        let seats = Seats::new(3).unwrap();
        let jobs = JobQueue::new(Queue::Shared, 3, 10);
        let mailbox = Mailbox::new().unwrap();
        let hold = |index| Held::new(&seats, index, &jobs, &mailbox);
        let [first, second, third] = [hold(0), hold(1), hold(2)];

        assert_eq!(seats.wake_expired(Millis(0)), None);
        assert!(mailbox.fall_asleep());
        assert!(first.rest(&resting(Millis(0), Some(Millis(70)))));
        assert!(!mailbox.fall_asleep(), "the loop knows of no deadline yet");
        mailbox.wake_up();
        mailbox.take(&mut Vec::new());
        assert!(mailbox.fall_asleep());
        assert!(
            second.rest(&resting(Millis(0), Some(Millis(80))))
                && third.rest(&resting(Millis(0), None))
        );
        assert!(first.resume() && first.rest(&resting(Millis(20), Some(Millis(90)))));
        assert!(mailbox.fall_asleep(), "later ones are no news");
        assert_eq!(seats.wake_expired(Millis(69)), Some(Millis(70)));
        assert_eq!(
            seats.wake_expired(Millis(70)),
            Some(Millis(80)),
            "it has moved on"
        );
        assert!(second.resume());
        assert_eq!(
            seats.wake_expired(Millis(80)),
            Some(Millis(90)),
            "it does not wait"
        );
        assert!(!seats.seats.iter().any(is_woken));
        assert!(second.rest(&resting(Millis(80), Some(Millis(95)))));
        assert_eq!(seats.wake_expired(Millis(90)), Some(Millis(95)));
        let woken = seats.seats.iter().map(is_woken);
        assert_eq!(woken.collect::<Vec<_>>(), [true, false, false]);
        assert!(first.resume(), "and has lost nothing");
    }
}
