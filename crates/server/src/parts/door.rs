//! The listeners of a loop: an acceptor whose listeners are watched while it accepts.
//!
//! While the acceptor pauses at the descriptor limit, its listeners must not be watched: they stay
//! readable, and the loop would spin.

use std::io;

use loadline_base::Millis;
use loadline_sys::{Interest, Poller};

use crate::listener::Listener;
use crate::parts::acceptor::{Acceptor, AtLimit, LogAfter, Newcomer};
use crate::parts::counters::Row;

/// Listeners watched by one poller.
pub(crate) struct Door {
    acceptor: Acceptor,
    interest: Interest,
    bits: u64,
    watched: bool,
}

impl Door {
    /// Watches the listeners; their events carry `bits`.
    pub(crate) fn open(
        listeners: Vec<Listener>,
        interest: Interest,
        poller: &Poller,
        bits: u64,
        log_after: &LogAfter,
    ) -> io::Result<Self> {
        let mut door = Self {
            acceptor: Acceptor::new(listeners, AtLimit::Refuse, log_after)?,
            interest,
            bits,
            watched: false,
        };
        door.watch(poller)?;
        Ok(door)
    }

    /// The next connection; `None` if none waits, or while accepting is paused.
    pub(crate) fn next(
        &mut self,
        now: Millis,
        row: &Row,
        poller: &Poller,
    ) -> io::Result<Option<Newcomer>> {
        let newcomer = self.acceptor.next(now, row)?;
        if self.acceptor.paused_until().is_some() {
            self.unwatch(poller);
        }
        Ok(newcomer)
    }

    /// When to look again; `None` while the listeners are watched.
    pub(crate) fn reopens_at(&self) -> Option<Millis> {
        self.acceptor.paused_until().filter(|_| !self.watched)
    }

    /// Watches the listeners again if the pause is over. What waits there is an event at once.
    pub(crate) fn reopen(&mut self, now: Millis, poller: &Poller) -> io::Result<()> {
        // The acceptor itself goes on with its back-off: it is over only when accepting succeeds.
        match self.reopens_at() {
            Some(until) if now >= until => self.watch(poller),
            _ => Ok(()),
        }
    }

    /// Something is closed to make room: no pause.
    pub(crate) fn resume(&mut self, poller: &Poller) -> io::Result<()> {
        self.acceptor.resume();
        self.watch(poller)
    }

    /// The server is going down: what the kernel has completed by now is still taken.
    pub(crate) fn begin_drain(&mut self) {
        self.acceptor.begin_drain();
    }

    /// Whether the drain has taken all that it had to.
    pub(crate) fn is_drained(&self) -> bool {
        self.acceptor.is_drained()
    }

    /// Stops watching and listening.
    pub(crate) fn close(mut self, poller: &Poller) {
        // A duplicate in another loop would keep the registration alive.
        self.unwatch(poller);
    }

    fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        if !self.watched {
            for listener in self.acceptor.listeners() {
                poller.add(listener, self.bits, self.interest)?;
            }
            self.watched = true;
        }
        Ok(())
    }

    fn unwatch(&mut self, poller: &Poller) {
        if self.watched {
            for listener in self.acceptor.listeners() {
                let _ = poller.remove(listener); // it was added, so this cannot fail
            }
            self.watched = false;
        }
    }
}
