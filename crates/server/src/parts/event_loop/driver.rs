//! What differs between event loops: how they wait for sockets, and how events reach a transport.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use loadline_base::Token;
use loadline_proto::{Context, ServerSession};
use loadline_sys::{Accepted, Interest};

use crate::options::ServerOptions;
use crate::transport::Transport;
use crate::transport::socket::{Readiness, Socket};

/// Something that a wait brought.
pub(crate) enum Happened<F> {
    /// There is mail, or the shutdown has moved on: a turn looks at both in any case.
    Woken,
    /// A listener is ready: connections are to be accepted.
    AcceptReady,
    /// A new connection that is accepted already.
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

    /// Connections were accepted: the driver sees to it that the listener is still watched.
    fn watch_on(&mut self, number: u32, listener: BorrowedFd<'_>);

    /// Stops.
    fn unwatch(&mut self, number: u32, listener: BorrowedFd<'_>);
}

/// How a loop waits: for readiness (epoll), or for what was done (a ring).
pub(crate) trait Driver: Watch + Send + Sized {
    /// How its connections receive and send.
    type Transport: LoopTransport<Self> + Send;
    /// What is reported to a connection.
    type Event<'d>
    where
        Self: 'd;

    /// One that watches nothing yet.
    fn new(options: &ServerOptions) -> io::Result<Self>;

    /// Wakes up when this (an eventfd) is written.
    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()>;

    /// Waits for something to happen; `next` tells it.
    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()>;

    /// The next thing that the last wait brought.
    fn next(&mut self) -> Option<Happened<Self::Event<'_>>>;

    /// Events that are still to be reported.
    fn left(&self) -> usize;

    /// Whether input is reported by `next` alone, so that a drain has to report all of it before idle
    /// connections drain.
    const REPORTS_BEFORE_DRAIN: bool;

    /// Keeps in mind what happened while a worker had the connection.
    fn miss(missed: &mut Readiness, event: Self::Event<'_>);
}

/// What an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Bytes, or their end: what a connection over capacity is closed at.
    pub(crate) is_input: bool,
    /// A visit would find something to do.
    pub(crate) is_ready: bool,
}

/// A transport whose socket a loop's driver waits for.
pub(crate) trait LoopTransport<D: Driver>: Transport<D> {
    /// Of a connection that was just accepted.
    fn new(fd: OwnedFd, copies_files: bool) -> Self;

    /// Its connection has a slot now, with this token.
    fn adopt(&mut self, token: Token, driver: &mut D);

    /// Something happened to the socket.
    fn on_event(
        &mut self,
        event: D::Event<'_>,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> Reported;

    /// Nothing to do before an event: sees to it that there will be one.
    fn settle(&mut self, token: Token, driver: &mut D) -> io::Result<()>;

    /// Reads what has come and throws it away, so that closing ends the connection rather than
    /// resetting it.
    fn discard_input(&self, read_buffer: &mut [u8]);

    /// Whether it was as good as idle when it was last settled, and only its last answer has left
    /// since.
    fn rests_on(&mut self) -> bool {
        false
    }

    /// For a worker (`--socket-io worker`), where that is possible.
    fn into_socket(self) -> Result<Socket, Self>;

    /// Back from a worker.
    fn from_socket(socket: Socket, missed: Readiness) -> Result<Self, Socket>;

    /// Reading waits for an event.
    fn read_by_event(&mut self);
}
