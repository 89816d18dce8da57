//! What other threads leave for a loop: results of workers, connections from an acceptor.
//!
//! Bounded by construction: a message stands for a connection or a job, and those are bounded where
//! they are made. The loop takes everything at once, by swapping vectors under the lock, so both
//! keep their memory. It is woken once per batch, and only if it sleeps.
//!
//! ```text
//!   sender: has_mail = true ▸ asleep?  ──┐  each writes its own flag before it reads the other's:
//!   loop:   asleep = true ▸ has_mail?  ──┘  so one of the two always sees the other
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use loadline_sys::Waker;

/// Messages for one loop.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    inbox: Mutex<Vec<M>>,
    has_mail: AtomicBool,
    asleep: AtomicBool,
    waker: Waker,
}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            inbox: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    /// Leaves a message; wakes the loop if it sleeps and was not woken yet.
    pub(crate) fn post(&self, message: M) {
        self.lock().push(message);
        self.nudge();
    }

    /// Has the loop take a turn, with or without a message.
    pub(crate) fn nudge(&self) {
        self.has_mail.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// The loop says that it is about to wait. `false`: there is mail, so it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.has_mail.load(Ordering::SeqCst) {
            self.asleep.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// The loop has waited.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether `take` would find something (or a nudge).
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::SeqCst)
    }

    /// Takes everything there is into `taken`, which must be empty.
    pub(crate) fn take(&self, taken: &mut Vec<M>) {
        debug_assert!(taken.is_empty());
        if self.has_mail.load(Ordering::Relaxed) {
            let mut inbox = self.lock();
            self.has_mail.store(false, Ordering::SeqCst);
            std::mem::swap(&mut *inbox, taken);
        }
    }

    /// To be watched by the loop, edge-triggered.
    pub(crate) fn waker_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<M>> {
        // A thread that panicked while pushing has left a whole vector.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use loadline_sys::{Events, Interest, Poller};

    use super::*;

    fn events(poller: &Poller, timeout_ms: u64) -> usize {
        poller.wait(&mut Events::new(), Some(timeout_ms)).unwrap()
    }

    #[test]
    fn a_batch_wakes_once_and_only_a_sleeper() {
        let mailbox = Mailbox::new().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(mailbox.waker_fd(), 0, Interest::Waker).unwrap();
        mailbox.post(1);
        assert_eq!(
            events(&poller, 0),
            0,
            "a loop that is awake needs no waking"
        );
        assert!(!mailbox.fall_asleep(), "there is mail");
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1]);
        taken.clear();
        assert!(mailbox.fall_asleep());
        for message in 2..10 {
            mailbox.post(message);
        }
        assert_eq!(events(&poller, 1000), 1);
        assert_eq!(events(&poller, 0), 0, "once");
        mailbox.wake_up();
        mailbox.take(&mut taken);
        assert_eq!(taken, (2..10).collect::<Vec<_>>());
    }

    #[test]
    fn no_message_is_slept_through() {
        const SENDERS: u64 = 4;
        const EACH: u64 = 20_000;
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let poller = Poller::new().unwrap();
        poller.add(mailbox.waker_fd(), 0, Interest::Waker).unwrap();
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || (0..EACH).for_each(|number| mailbox.post(number)))
            })
            .collect();
        let (mut sum, mut count, mut taken) = (0, 0, Vec::new());
        while count < SENDERS * EACH {
            if mailbox.fall_asleep() {
                assert_eq!(events(&poller, 10_000), 1, "asleep with mail: {count} came");
                mailbox.wake_up();
            }
            mailbox.take(&mut taken);
            count += taken.len() as u64;
            sum += taken.drain(..).sum::<u64>();
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
        assert_eq!(sum, SENDERS * EACH * (EACH - 1) / 2);
    }
}
