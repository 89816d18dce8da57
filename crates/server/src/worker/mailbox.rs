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
use std::sync::PoisonError;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, Waker};

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
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    fn lock(&self) -> MutexGuard<'_, Vec<M>> {
        // A thread that panicked while pushing has left a whole vector.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
