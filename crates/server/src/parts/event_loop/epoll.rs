//! A driver of readiness: edge-triggered epoll.
//!
//! A connection is registered once, for reading and writing, when it first has to wait. From then on
//! a request costs one receive and one send: readiness is a flag of the connection, and backpressure
//! is not reading.

use std::io;
use std::os::fd::BorrowedFd;

use loadline_base::{Millis, Token};
use loadline_proto::{CloseReason, ConnectionRecord, Exchange, Handler, ServerSession, Turn};
use loadline_sys::{Accepted, Event, Events, Interest, Poller, socket};

use super::driver::{Driver, Happened, Heard, Link, Watch};
use crate::kit::Kit;
use crate::options::ServerOptions;
use crate::parts::connection::{Connection, Noted, Pause};
use crate::site::Site;

/// Bits of events that are no connection's: no slot has these indexes.
const WAKER: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1;

/// Waits for readiness.
pub(crate) struct Epoll {
    poller: Poller,
    events: Events,
    /// Events that were told.
    told: usize,
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
    type Connection = Connection;
    type Fact<'d> = Event;

    fn new(_options: &ServerOptions) -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            events: Events::new(),
            told: 0,
        })
    }

    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add(waker, WAKER, Interest::Waker)
    }

    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()> {
        self.poller.wait(&mut self.events, timeout_ms)?;
        self.told = 0;
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<Happened<Event>> {
        if self.told == self.events.len() {
            return None;
        }
        let event = self.events.get(self.told);
        self.told += 1;
        Some(match event.bits {
            WAKER => Happened::Woken,
            LISTENERS => Happened::Knock,
            bits => Happened::To(Token::from_bits(bits), event),
        })
    }

    #[inline]
    fn left(&self) -> usize {
        self.events.len() - self.told
    }

    const HEARS_BEFORE_DRAIN: bool = false;

    fn miss(missed: &mut Noted, fact: Event) {
        missed.add(fact);
    }
}

impl Link<Epoll> for Connection {
    fn new<H: Handler>(accepted: Accepted, site: &Site<H>, turn: &mut Turn<'_>) -> Self {
        Self::new(accepted, site, turn)
    }

    fn seat(&mut self, _token: Token, _driver: &mut Epoll) {}

    #[inline]
    fn told(&mut self, fact: Event, _turn: &mut Turn<'_>) -> Heard {
        self.note(fact.into());
        Heard {
            is_input: fact.is_readable(),
            is_ready: self.is_ready(),
        }
    }

    #[inline]
    fn visit<H: Handler>(
        &mut self,
        site: &Site<H>,
        kit: &mut Kit<H>,
        _driver: &mut Epoll,
    ) -> Pause {
        self.visit(site, kit)
    }

    #[inline]
    fn settle(&mut self, token: Token, driver: &mut Epoll) -> io::Result<()> {
        if self.is_registered() {
            return Ok(());
        }
        // The first read came before this. What has come since is an event at once.
        self.register();
        driver
            .poller
            .add(self.socket(), token.to_bits(), Interest::Connection)
    }

    fn completed<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        site: &Site<H>,
        kit: &mut Kit<H>,
        _driver: &mut Epoll,
    ) {
        self.completed(exchange, site, kit);
    }

    fn session(&mut self) -> &mut ServerSession {
        self.session()
    }

    fn warmed(&mut self) {
        self.warmed();
    }

    fn expired(&mut self, turn: &mut Turn<'_>) {
        self.expired(turn);
    }

    fn drain<H: Handler>(&mut self, kit: &mut Kit<H>, _driver: &mut Epoll, patient: bool) -> bool {
        self.drain(kit, patient)
    }

    fn refuse(&mut self, turn: &mut Turn<'_>) {
        self.refuse(turn);
    }

    fn abort(&mut self, reason: CloseReason) {
        self.abort(reason);
    }

    fn read_in_vain(&self, scratch: &mut [u8]) {
        self.read_in_vain(scratch);
    }

    fn end(self, turn: &mut Turn<'_>, _driver: &mut Epoll) -> Option<Box<ConnectionRecord>> {
        self.end(turn)
    }

    fn deadline(&self) -> Option<Millis> {
        self.deadline()
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    /// A request may be an event that was not told yet.
    fn is_idle_for_certain(&self, _driver: &mut Epoll) -> bool {
        self.is_idle() && !socket::has_input(self.socket())
    }

    #[inline]
    fn idles_on(&mut self) -> bool {
        false
    }

    fn into_served(self) -> Result<Connection, Self> {
        Ok(self)
    }

    fn from_served(mut connection: Connection, missed: Noted) -> Option<Self> {
        connection.note(missed);
        Some(connection)
    }

    fn read_by_event(&mut self) {
        self.read_by_event();
    }
}
