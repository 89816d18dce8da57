//! Workers that keep a connection while it waits for its client: the threads of a pool
//! (`--architecture thread-pool`).
//!
//! A worker keeps its connection only while no other connection waits for a worker, and the pool is not too
//! large. A connection that waits for an app's task goes back to its loop at once.
//!
//! ```text
//!   worker:     store when the wait began ▸ jobs in the queue?         ──┐  one of the two
//!   submitter:  put the job into the queue ▸ which holder waits longest? ┘  always sees the other
//! ```
//!
//! Workers wait without a timeout, which would cost the kernel 0.5 us for each wait. The loop wakes them at
//! their deadlines: it sleeps until the earliest deadline it knows of, then looks at all holders. A deadline
//! that moves to a later time while the loop sleeps needs no notification.

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

/// All workers of a pool, as holders of connections.
#[derive(Debug)]
pub(crate) struct Holders {
    holders: Box<[Holder]>,
    /// When the loop looks at the holders' deadlines next, in ms: not after the earliest of those that wait.
    look_at: AtomicU64,
    /// Connections may have to make room for others: their loop wants them all.
    all_wanted: AtomicBool,
}

/// One worker, seen from outside. On a cache line of its own, since the worker writes it twice for each wait.
#[derive(Debug)]
#[repr(align(64))]
struct Holder {
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

impl Holders {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let holder = |_| {
            Ok(Holder {
                waits_since: AtomicU64::new(BUSY),
                deadline: AtomicU64::new(NEVER),
                waker: Waker::new()?,
            })
        };
        Ok(Self {
            holders: (0..count).map(holder).collect::<io::Result<_>>()?,
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
        for holder in self.holders.iter().filter(|_| all_wanted) {
            let since = holder.waits_since.load(Ordering::SeqCst);
            if since < BUSY {
                holder.free(since);
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
        for holder in &self.holders {
            if holder.waits_since.load(Ordering::SeqCst) >= BUSY {
                continue;
            }
            let deadline = holder.deadline.load(Ordering::SeqCst);
            match deadline > now.0 {
                true => earliest = earliest.min(deadline),
                false => holder.waker.wake(),
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
    /// Looks at each holder, some ns; for a job for which a worker would have to be woken anyway.
    /// `false`: none waits.
    pub(crate) fn free_one(&self) -> bool {
        fence(Ordering::SeqCst);
        loop {
            let waiting = self.holders.iter().map(|holder| {
                let since = holder.waits_since.load(Ordering::SeqCst);
                (since, holder)
            });
            let longest = waiting.filter(|(since, _)| *since < BUSY);
            let Some((since, holder)) = longest.min_by_key(|(since, _)| *since) else {
                return false;
            };
            if holder.free(since) {
                return true;
            }
        }
    }
}

impl Holder {
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

/// One worker's hold on its connection.
pub(crate) struct Held<'w> {
    holder: &'w Holder,
    holders: &'w Holders,
    jobs: &'w JobQueue<Job>,
    /// Of the loop that wakes it at its deadline.
    mailbox: &'w Mailbox<Message>,
    /// The same loop, for its tasks.
    home: Option<(&'w Arc<dyn TaskHome>, Token)>,
}

impl<'w> Held<'w> {
    pub(crate) fn new(
        holders: &'w Holders,
        index: usize,
        jobs: &'w JobQueue<Job>,
        mailbox: &'w Mailbox<Message>,
    ) -> Self {
        Self {
            holder: &holders.holders[index],
            holders,
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
        self.holder.deadline.store(deadline, Ordering::Relaxed);
        self.holder
            .waits_since
            .swap(resting.now.0, Ordering::SeqCst); // and the deadline is seen with it
        if self.is_wanted() {
            self.holder.waits_since.store(BUSY, Ordering::SeqCst);
            return false;
        }
        let look_at = &self.holders.look_at;
        if deadline < look_at.load(Ordering::SeqCst)
            && deadline < look_at.fetch_min(deadline, Ordering::SeqCst)
        {
            self.mailbox.nudge();
        }
        true
    }

    fn resume(&self) -> bool {
        self.holder.waits_since.swap(BUSY, Ordering::SeqCst) != LOST
    }

    fn is_wanted(&self) -> bool {
        let all_wanted = &self.holders.all_wanted;
        self.jobs.depth() > 0 || self.jobs.excess() > 0 || all_wanted.load(Ordering::SeqCst)
    }

    fn waker(&self) -> Option<&Waker> {
        Some(&self.holder.waker)
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

    fn is_woken(holder: &Holder) -> bool {
        let woken = wait_readable(&[holder.waker.as_fd()], Some(0)).unwrap();
        holder.waker.clear();
        woken[0]
    }

    #[test]
    fn workers_are_woken_at_their_deadlines_and_the_loop_at_an_earlier_one() {
        let holders = Holders::new(3).unwrap();
        let jobs = JobQueue::new(Queue::Shared, 3, 10);
        let mailbox = Mailbox::new().unwrap();
        let hold = |index| Held::new(&holders, index, &jobs, &mailbox);
        let [first, second, third] = [hold(0), hold(1), hold(2)];

        assert_eq!(holders.wake_expired(Millis(0)), None);
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
        assert_eq!(holders.wake_expired(Millis(69)), Some(Millis(70)));
        assert_eq!(
            holders.wake_expired(Millis(70)),
            Some(Millis(80)),
            "it has moved on"
        );
        assert!(second.resume());
        assert_eq!(
            holders.wake_expired(Millis(80)),
            Some(Millis(90)),
            "it does not wait"
        );
        assert!(!holders.holders.iter().any(is_woken));
        assert!(second.rest(&resting(Millis(80), Some(Millis(95)))));
        assert_eq!(holders.wake_expired(Millis(90)), Some(Millis(95)));
        let woken = holders.holders.iter().map(is_woken);
        assert_eq!(woken.collect::<Vec<_>>(), [true, false, false]);
        assert!(first.resume(), "and has lost nothing");
    }
}
