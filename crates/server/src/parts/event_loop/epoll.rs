//! A driver of readiness: edge-triggered epoll.
//!
//! A connection is registered once, for reading and writing, when it first has to wait. From then on
//! a request costs one receive and one send: readiness is a flag of the connection, and backpressure
//! is not reading.

use std::io;
use std::os::fd::BorrowedFd;

use loadline_base::Token;
use loadline_sys::{Event, Events, Interest, Poller};

use super::driver::{Driver, Happened, Watch};
use crate::options::ServerOptions;
use crate::transport::socket::{Readiness, Socket};

/// Bits of events that are no connection's: no slot has these indexes.
const WAKER: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;

/// Waits for readiness.
pub(crate) struct Epoll {
    pub(crate) poller: Poller,
    events: Events,
    /// Events that were next.
    next: usize,
}

impl Watch for Epoll {
    fn watch(
        &mut self,
        _number: u32,
        listener: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<()> {
        self.poller.add(listener, LISTENERS, interest)
    }

    fn watch_on(&mut self, _number: u32, _listener: BorrowedFd<'_>) {}

    fn unwatch(&mut self, _number: u32, listener: BorrowedFd<'_>) {
        let _ = self.poller.remove(listener); // it was added, so this cannot fail
    }
}

impl Driver for Epoll {
    type Transport = Socket;
    type Event<'d> = Event;

    fn new(_options: &ServerOptions) -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            events: Events::new(),
            next: 0,
        })
    }

    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add(waker, WAKER, Interest::Waker)
    }

    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()> {
        self.poller.wait(&mut self.events, timeout_ms)?;
        self.next = 0;
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<Happened<Event>> {
        if self.next == self.events.len() {
            return None;
        }
        let event = self.events.get(self.next);
        self.next += 1;
        Some(match event.bits {
            WAKER => Happened::Woken,
            LISTENERS => Happened::AcceptReady,
            bits => Happened::To(Token::from_bits(bits), event),
        })
    }

    #[inline]
    fn left(&self) -> usize {
        self.events.len() - self.next
    }

    const REPORTS_BEFORE_DRAIN: bool = false;

    fn miss(missed: &mut Readiness, event: Event) {
        missed.add(event);
    }
}
