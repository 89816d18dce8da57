//! The listeners of a loop: an acceptor whose listeners are watched while it accepts.
//!
//! While the acceptor pauses at the descriptor limit, its listeners must not be watched: they stay
//! readable, and the loop would spin.

use std::io;
use std::os::fd::AsFd;

use loadline_base::Millis;
use loadline_sys::Interest;

use crate::accept::acceptor::{Acceptor, AtLimit, LogAfter, NewConnection};
use crate::accept::listener::Listener;
use crate::telemetry::counters::ThreadStats;
use crate::transport::Watch;

/// Listeners watched by one driver.
pub(crate) struct ListenerSet {
    acceptor: Acceptor,
    interest: Interest,
    watched: bool,
}

impl ListenerSet {
    /// Watches the listeners.
    pub(crate) fn open(
        listeners: Vec<Listener>,
        interest: Interest,
        driver: &mut impl Watch,
        log_after: &LogAfter,
    ) -> io::Result<Self> {
        let mut listeners = Self {
            acceptor: Acceptor::new(listeners, AtLimit::Refuse, log_after)?,
            interest,
            watched: false,
        };
        listeners.watch(driver)?;
        Ok(listeners)
    }

    /// The next connection; `None` if none waits, or while accepting is paused.
    pub(crate) fn next(
        &mut self,
        now: Millis,
        stats: &ThreadStats,
        driver: &mut impl Watch,
    ) -> io::Result<Option<NewConnection>> {
        let taken = self.acceptor.next(now, stats)?;
        if self.acceptor.paused_until().is_some() {
            self.unwatch(driver);
        }
        Ok(taken)
    }

    /// When to look again; `None` while the listeners are watched.
    pub(crate) fn resumes_at(&self) -> Option<Millis> {
        self.acceptor.paused_until().filter(|_| !self.watched)
    }

    /// Watches the listeners again if the pause is over. What waits there is an event at once.
    pub(crate) fn resume_due(&mut self, now: Millis, driver: &mut impl Watch) -> io::Result<()> {
        // The acceptor itself goes on with its back-off: it is over only when accepting succeeds.
        match self.resumes_at() {
            Some(until) if now >= until => self.watch(driver),
            _ => Ok(()),
        }
    }

    /// What had connected was accepted, or accepting pauses.
    pub(crate) fn watch_on(&self, driver: &mut impl Watch) {
        if self.watched {
            for listener in self.acceptor.listeners() {
                driver.watch_on(listener.number(), listener.as_fd());
            }
        }
    }

    /// A connection was accepted without the acceptor.
    pub(crate) fn accepted(&mut self) {
        self.acceptor.accepted();
    }

    /// As if descriptors had run out.
    #[cfg(test)]
    pub(crate) fn pause(&mut self, until: Millis) {
        self.acceptor.pause(until);
    }

    /// Something is closed to make room: no pause.
    pub(crate) fn resume(&mut self, driver: &mut impl Watch) -> io::Result<()> {
        self.acceptor.resume();
        self.watch(driver)
    }

    /// The server is going down: what the kernel has completed by now is still taken.
    pub(crate) fn begin_drain(&mut self) {
        self.acceptor.begin_drain();
    }

    /// Whether the drain has taken all that it had to.
    pub(crate) fn is_drained(&self) -> bool {
        self.acceptor.is_drained()
    }

    fn watch(&mut self, driver: &mut impl Watch) -> io::Result<()> {
        if !self.watched {
            for listener in self.acceptor.listeners() {
                driver.watch(listener.number(), listener.as_fd(), self.interest)?;
            }
            self.watched = true;
        }
        Ok(())
    }

    /// Stops watching: before this is dropped, since a duplicate of a listener in another loop
    /// would keep the registration alive.
    pub(crate) fn unwatch(&mut self, driver: &mut impl Watch) {
        if self.watched {
            for listener in self.acceptor.listeners() {
                driver.unwatch(listener.number(), listener.as_fd());
            }
            self.watched = false;
        }
    }
}
