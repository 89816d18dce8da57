//! A driver of readiness: edge-triggered epoll.
//!
//! A connection is registered once, for reading and writing, when it first has to wait. From then on
//! a request costs one receive and one send: readiness is a flag of the connection, and backpressure
//! is not reading.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use loadline_base::Token;
use loadline_proto::{Context, ServerSession};
use loadline_sys::{Event, Events, Interest, Poller, socket};

use super::{Readiness, Socket};
use crate::transport::{Detached, Driver, DriverEvent, LoopTransport, Reported, Watch};

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

    fn new() -> io::Result<Self> {
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
    fn next(&mut self) -> Option<DriverEvent<Event>> {
        if self.next == self.events.len() {
            return None;
        }
        let event = self.events.get(self.next);
        self.next += 1;
        Some(match event.bits {
            WAKER => DriverEvent::Woken,
            LISTENERS => DriverEvent::AcceptReady,
            bits => DriverEvent::To(Token::from_bits(bits), event),
        })
    }

    #[inline]
    fn left(&self) -> usize {
        self.events.len() - self.next
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.events.is_full()
    }

    const KEEPS_EVENTS: bool = false;
    const REPORTS_BEFORE_DRAIN: bool = false;

    fn miss(missed: &mut Readiness, event: Event) {
        missed.add(event.into());
    }
}

impl LoopTransport<Epoll> for Socket {
    fn new(fd: OwnedFd, copies_files: bool) -> Self {
        Self::of_loop(fd, copies_files)
    }

    fn adopt(&mut self, _token: Token, _driver: &mut Epoll) {}

    fn received_ago_ms(&self, _driver: &Epoll) -> Option<u32> {
        socket::received_ago_ms(self.fd())
    }

    #[inline]
    fn on_event(
        &mut self,
        event: Event,
        _session: &mut ServerSession,
        _cx: &mut Context<'_>,
    ) -> Reported {
        self.note(event.into());
        Reported {
            is_input: event.is_readable(),
            is_ready: self.is_ready(),
        }
    }

    #[inline]
    fn settle(&mut self, token: Token, driver: &mut Epoll) -> io::Result<()> {
        if std::mem::replace(&mut self.known.registered, true) {
            return Ok(());
        }
        // The first read came before this. What has come since is an event at once.
        driver
            .poller
            .add(self.fd(), token.to_bits(), Interest::Connection)
    }

    fn unsettle(&mut self, driver: &mut Epoll) {
        if std::mem::take(&mut self.known.registered) {
            let _ = driver.poller.remove(self.fd()); // it was added, so this cannot fail
        }
    }

    fn queued(&mut self) {
        self.ready.readable |= !self.known.registered;
    }

    fn detach(mut self, driver: &mut Epoll) -> Result<Detached, Self> {
        if self.is_sending() {
            return Err(self);
        }
        LoopTransport::unsettle(&mut self, driver);
        Ok(Detached {
            fd: self.fd,
            copies_files: self.known.copies_files,
            has_received: !self.known.fresh,
            arrived: self.arrived,
        })
    }

    /// What has come meanwhile was not reported: it is read without an event.
    fn attach(detached: Detached) -> Self {
        Self::from_detached(detached)
    }

    fn discard_input(&self, read_buffer: &mut [u8]) {
        // Whatever it comes to, the connection is closed next.
        let _ = socket::receive(self.fd(), read_buffer);
    }

    fn is_at_end(&self) -> bool {
        self.ready.hung_up && socket::is_at_end(self.fd())
    }

    fn into_socket(self) -> Result<Socket, Self> {
        Ok(self)
    }

    fn from_socket(mut socket: Socket, missed: Readiness) -> Result<Self, Socket> {
        socket.note(missed);
        Ok(socket)
    }

    fn read_by_event(&mut self) {
        self.ready.readable = false;
    }
}
