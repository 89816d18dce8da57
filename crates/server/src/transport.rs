//! How bytes pass between a socket and its session: by readiness (`socket.rs`, for epoll loops and
//! blocking threads) or by completion (`ring.rs`, for io_uring).
//!
//! A transport reports to the session what was received and sent, and knows nothing of requests.

pub(crate) mod local_address;
pub(crate) mod ring;
pub(crate) mod sending;
pub(crate) mod socket;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use loadline_base::{OpenFile, Token, Transmit};
use loadline_proto::{Context, ServerSession, Then};
use loadline_sys::write::FileBuffer;
use loadline_sys::{Accepted, Interest, file};

use local_address::{Arrived, LocalAddresses};
use socket::{Readiness, Socket};

/// What a thread lends to a transport for one call. `D`: what waits for its socket.
pub(crate) struct Io<'a, 't, D> {
    /// Of the same connection, which learns what was received and sent.
    pub(crate) session: &'a mut ServerSession,
    pub(crate) driver: &'a mut D,
    pub(crate) read_buffer: &'a mut [u8],
    pub(crate) files: &'a mut FileBuffer,
    /// Bytes that may still be written before others have their turn.
    pub(crate) bytes_left: &'a mut u64,
    pub(crate) cx: &'a mut Context<'t>,
}

/// Why a transport cannot go on now, though no event will come.
#[derive(Debug)]
pub(crate) enum Pause {
    /// Others first.
    Again,
    /// This range of a file has to be in the page cache before; then `prefetched`.
    Prefetch(Range),
}

/// A range of a file.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Range {
    /// Reads it into the page cache; waits for the disk.
    pub(crate) fn prefetch(&self, buffer: &mut [u8]) {
        file::read_ahead(&self.file.fd, self.offset, self.len, buffer);
    }
}

/// A socket, what is known of it, and output that it has not taken yet.
pub(crate) trait Transport<D>: Sized {
    /// The most that is written each time a connection is driven, in bytes.
    fn write_bytes_max(&self) -> u64;

    /// Before the session is asked for orders: goes on with output, reports what events said.
    fn resume(&mut self, io: &mut Io<'_, '_, D>) -> ControlFlow<Pause>;

    /// `Action::Wait`. `true`: something was reported to the session, which has new orders.
    fn wait(&mut self, read: bool, hang_up: bool, io: &mut Io<'_, '_, D>) -> bool;

    /// `Action::ReceivePending`.
    fn receive_pending(&mut self, certain: bool, io: &mut Io<'_, '_, D>) -> ControlFlow<Pause>;

    /// `Action::Send`.
    fn send(
        &mut self,
        transmit: Transmit,
        then: Then,
        io: &mut Io<'_, '_, D>,
    ) -> ControlFlow<Pause>;

    /// `Action::Finish`.
    fn finish(&mut self, io: &mut Io<'_, '_, D>);

    /// The address that the client has connected to.
    fn local_address(&mut self, addresses: &LocalAddresses, driver: &D) -> Option<SocketAddr>;

    /// The range of a `Pause` is in the page cache.
    fn prefetched(&mut self);

    /// Whether output waits until a range of a file is in the page cache.
    fn is_prefetching(&self) -> bool;

    /// Whether anything has come yet, or its end.
    fn has_begun(&self, driver: &mut D) -> bool;

    /// Whether something has come that was not reported yet, or may have.
    fn has_input(&self, driver: &mut D) -> bool;

    /// Whether the last answer has left, as far as is known, though that was not reported yet.
    fn is_resting(&self) -> bool {
        false
    }

    /// Closes the socket and gives memory back.
    fn close(self, driver: &mut D, cx: &mut Context<'_>);
}

/// Something that a wait brought.
pub(crate) enum DriverEvent<F> {
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
    fn new() -> io::Result<Self>;

    /// Wakes up when this (an eventfd) is written.
    fn watch_waker(&mut self, waker: BorrowedFd<'_>) -> io::Result<()>;

    /// Waits for an event; `next` returns it.
    fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<()>;

    /// The next thing that the last wait brought.
    fn next(&mut self) -> Option<DriverEvent<Self::Event<'_>>>;

    /// Events that are still to be reported.
    fn left(&self) -> usize;

    /// Whether the last wait may have left events for the next one.
    fn is_full(&self) -> bool {
        false
    }

    /// Connections with something to be read that the last wait brought, as long as nothing of it was reported.
    fn inputs(&self) -> usize {
        self.left()
    }

    /// Puts a mark behind what waits in the kernel from the next wait on, if the driver has marks.
    fn mark(&mut self) {}

    /// Whether the mark has come back since this was asked: what was before it has been brought.
    fn take_mark(&mut self) -> bool {
        false
    }

    /// Whether events that were not asked for stay for the next wait.
    const KEEPS_EVENTS: bool;

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
    /// Driving the connection would find something to do.
    pub(crate) is_ready: bool,
}

/// A socket that no loop waits for: between two of them.
#[derive(Debug)]
pub(crate) struct Detached {
    pub(crate) fd: OwnedFd,
    pub(crate) copies_files: bool,
    /// Something has come.
    pub(crate) has_received: bool,
    pub(crate) arrived: Arrived,
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

    /// Somebody else waits for it from now on, until the next `settle`.
    fn unsettle(&mut self, _driver: &mut D) {}

    /// It waits for its turn, and perhaps nobody waits for its socket: what comes until then may be
    /// reported by no event.
    fn queued(&mut self) {}

    /// For another loop. Only of an idle connection; `Err`: something of it is still in flight, which is
    /// stopped as far as possible: to be tried again in the next turn, or `stay`.
    fn detach(self, driver: &mut D) -> Result<Detached, Self>;

    /// It goes on here after `detach` in vain.
    fn stay(&mut self, _driver: &mut D) {}

    /// From another loop.
    fn attach(detached: Detached) -> Self;

    /// How long ago bytes last came, in milliseconds, read or not. `None`: the kernel does not say.
    fn received_ago_ms(&self, _driver: &D) -> Option<u32> {
        None
    }

    /// Reads what has come and throws it away, so that closing ends the connection rather than
    /// resetting it.
    fn discard_input(&self, read_buffer: &mut [u8]);

    /// Whether it was as good as idle when it was last settled, and only its last answer has left
    /// since.
    fn rests_on(&mut self) -> bool {
        false
    }

    /// Whether an event has said that the peer has closed its end, and all that it sent was received.
    fn is_at_end(&self) -> bool {
        false
    }

    /// For a worker (`--socket-io worker`), where that is possible.
    fn into_socket(self) -> Result<Socket, Self>;

    /// Back from a worker.
    fn from_socket(socket: Socket, missed: Readiness) -> Result<Self, Socket>;

    /// Reading waits for an event.
    fn read_by_event(&mut self);
}
