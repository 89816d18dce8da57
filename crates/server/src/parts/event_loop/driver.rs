//! What differs between event loops: how they wait, and what a connection knows of its socket.

use std::io;
use std::os::fd::BorrowedFd;

use loadline_base::{Millis, Token};
use loadline_proto::{CloseReason, ConnectionRecord, Exchange, Handler, ServerSession, Turn};
use loadline_sys::{Accepted, Interest};

use crate::kit::Kit;
use crate::options::ServerOptions;
use crate::parts::connection::{Connection, Noted, Pause};
use crate::site::Site;

/// Something that a wait brought.
pub(crate) enum Happened<F> {
    /// There is mail, or the shutdown has moved on: a turn looks at both in any case.
    Woken,
    /// Somebody knocks: newcomers are to be accepted.
    Knock,
    /// A newcomer that is accepted already.
    Arrived(Accepted),
    /// For this connection.
    To(Token, F),
}

/// Watches listeners.
pub(crate) trait Watch {
    /// Begins to watch the listener with this number.
    fn watch(
        &mut self,
        number: u32,
        listener: BorrowedFd<'_>,
        interest: Interest,
    ) -> io::Result<()>;

    /// Somebody knocked, and was let in: whether it goes on to be watched is the driver's to see to.
    fn watch_on(&mut self, number: u32, listener: BorrowedFd<'_>);

    /// Stops.
    fn unwatch(&mut self, number: u32, listener: BorrowedFd<'_>);
}

/// How a loop waits: for readiness (epoll), or for what was done (a ring).
pub(crate) trait Driver: Watch + Send + Sized {
    /// What a slot holds.
    type Connection: Link<Self> + Send;
    /// What is told to a connection.
    type Fact<'d>
    where
        Self: 'd;

    /// One that watches nothing yet.
    fn new(options: &ServerOptions) -> io::Result<Self>;

    /// Wakes up when this (an eventfd) is written.
    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()>;

    /// Waits for something to happen; `next` tells it.
    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()>;

    /// The next thing that the last wait brought.
    fn next(&mut self) -> Option<Happened<Self::Fact<'_>>>;

    /// How many are still to be told.
    fn left(&self) -> usize;

    /// Whether what has come to a socket is told by `next` alone, so that a drain has to hear it
    /// before it tells idle connections.
    const HEARS_BEFORE_DRAIN: bool;

    /// Keeps in mind what happened while a worker had the connection.
    fn miss(missed: &mut Noted, fact: Self::Fact<'_>);
}

/// What a fact came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Bytes, or their end: what a connection over capacity is closed at.
    pub(crate) is_input: bool,
    /// A visit would find something to do.
    pub(crate) is_ready: bool,
}

/// A connection of a loop: a session, and what is known of its socket.
pub(crate) trait Link<D: Driver>: Sized {
    /// A connection that was just accepted.
    fn new<H: Handler>(accepted: Accepted, site: &Site<H>, turn: &mut Turn<'_>) -> Self;

    /// It has a slot now.
    fn seat(&mut self, token: Token, driver: &mut D);

    /// Something happened to it.
    fn told(&mut self, fact: D::Fact<'_>, turn: &mut Turn<'_>) -> Heard;

    /// Carries out orders until there is a reason to pause.
    fn visit<H: Handler>(&mut self, site: &Site<H>, kit: &mut Kit<H>, driver: &mut D) -> Pause;

    /// Nothing to do for it before something happens: sees to it that this is heard.
    fn settle(&mut self, token: Token, driver: &mut D) -> io::Result<()>;

    /// The blocking step is done, or was refused.
    fn completed<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        site: &Site<H>,
        kit: &mut Kit<H>,
        driver: &mut D,
    );

    /// For what an app's task says.
    fn session(&mut self) -> &mut ServerSession;

    /// The range that a pause asked for is in memory.
    fn warmed(&mut self);

    /// The deadline may have passed.
    fn expired(&mut self, turn: &mut Turn<'_>);

    /// The server is going down; says whether the session was told. It is not while what has come to
    /// it was not told yet; a newcomer of whom nothing has come may be given a moment: `patient`.
    fn drain<H: Handler>(&mut self, kit: &mut Kit<H>, driver: &mut D, patient: bool) -> bool;

    /// To be answered with 503 and closed.
    fn refuse(&mut self, turn: &mut Turn<'_>);

    /// To be closed without an answer.
    fn abort(&mut self, reason: CloseReason);

    /// Reads what has come and throws it away, so that closing ends the connection rather than
    /// resetting it.
    fn read_in_vain(&self, scratch: &mut [u8]);

    /// Gives memory back and closes the socket, which comes last. Returns what the journal of
    /// connections wants to know, if there is one.
    fn end(self, turn: &mut Turn<'_>, driver: &mut D) -> Option<Box<ConnectionRecord>>;

    /// When to look at it again.
    fn deadline(&self) -> Option<Millis>;

    /// Between two requests.
    fn is_idle(&self) -> bool;

    /// Whether nothing would be lost with it that it has still to send, or that has come to it and was
    /// not told yet. What is not certain now is in the next turn.
    fn is_idle_for_certain(&self, driver: &mut D) -> bool;

    /// Whether it was as good as idle when it was last settled, and has only been told so since.
    fn idles_on(&mut self) -> bool;

    /// As what goes to a worker (`--socket-io worker`), where that is possible.
    fn into_served(self) -> Result<Connection, Self>;

    /// Back from a worker.
    fn from_served(connection: Connection, missed: Noted) -> Option<Self>;

    /// Whoever will watch the socket is told what there is to read: nothing to be tried before.
    fn read_by_event(&mut self);
}
