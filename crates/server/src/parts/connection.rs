//! One connection on a non-blocking socket: what the session orders, carried out without waiting.
//!
//! Whoever holds a connection may visit it: a loop, or a worker that was handed the whole of it.
//! A visit carries out orders until there is nothing to do before an event, or until the
//! connection has had its share, and says what has to happen next. What a visit never does is wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use loadline_base::{Millis, OpenFile, Transmit};
use loadline_proto::{
    Action, CloseReason, ConnectionRecord, Exchange, Handler, Piece, ServerSession, Status, Turn,
};
use loadline_sys::write::{self, FileBuffer, Files, Progress, Written};
use loadline_sys::{Accepted, Event};
use loadline_sys::{file, socket};

use crate::kit::Kit;
use crate::parts::local_address::Arrived;
use crate::parts::sending::{Sending, Went};
use crate::site::Site;

/// Orders in one visit. A pipelining client has some 16 requests answered, then others have their
/// turn: below 100 us with small files.
pub(crate) const ACTIONS_MAX: u32 = 48;

/// Bytes written in one visit: 1 MiB costs a loop about 200 us (a file of that length under wrk,
/// AMD EPYC), which is how long a fast reader may hold up the others.
pub(crate) const WRITE_BYTES_MAX: u64 = 1 << 20;

/// Blocking steps in a row for one connection, by the thread that serves it: one for each client
/// that waits for its answer, and no more than one more for a client that pipelines.
pub(crate) const BLOCKS_MAX: u32 = 2;

/// A range of a file that has to be in memory before sending goes on.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Range {
    /// Waits for the disk.
    pub(crate) fn read(&self, scratch: &mut [u8]) {
        file::read_ahead(&self.file.fd, self.offset, self.len, scratch);
    }
}

/// Why a visit ended.
#[derive(Debug)]
pub(crate) enum Pause {
    /// Nothing more before an event or the deadline.
    Wait,
    /// The share is used up; no event will come, so visit again next round.
    Again,
    /// Run the handler's blocking step; then `completed`.
    Block(Box<Exchange>),
    /// Read this range; then `warmed`.
    Warm(Range),
    /// Begin an app's task; then visit again.
    Start(Box<Exchange>),
    /// Content for the task; then visit again.
    Offer(Piece),
    /// Room for the task's answer; then visit again.
    Pull(usize),
    /// Drop the task; then visit again.
    Cancel,
    /// Close it: `end`.
    Close,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    session: ServerSession,
    socket: OwnedFd,
    ready: Ready,
    sending: Option<Box<Sending>>,
    arrived: Arrived,
}

/// What a thread lends to the connection that it visits.
struct Buffers<'b> {
    scratch: &'b mut [u8],
    files: &'b mut FileBuffer,
}

impl Buffers<'_> {
    /// What files are copied through, if they are.
    fn files_for(&mut self, ready: Ready) -> Option<&mut FileBuffer> {
        ready.copies_files.then_some(&mut *self.files)
    }
}

/// What events said of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    readable: bool,
    writable: bool,
    hung_up: bool,
    gone: bool,
}

impl Noted {
    /// Adds what one more event says.
    #[inline]
    pub(crate) fn add(&mut self, event: Event) {
        self.readable |= event.is_readable();
        self.writable |= event.is_writable();
        self.hung_up |= event.is_half_closed();
        self.gone |= event.is_gone();
    }

    /// Whether an event said anything at all.
    pub(crate) fn is_anything(self) -> bool {
        self.readable || self.writable || self.hung_up || self.gone
    }
}

impl From<Event> for Noted {
    #[inline]
    fn from(event: Event) -> Self {
        let mut noted = Self::default();
        noted.add(event);
        noted
    }
}

/// What is known of the socket.
#[derive(Clone, Copy, Debug)]
struct Ready {
    /// There may be something to read.
    readable: bool,
    /// There may be room to write.
    writable: bool,
    /// A hang-up was seen: a short read does not mean that nothing is left.
    hung_up: bool,
    /// The end of input has been told.
    ended: bool,
    /// Output is shut down, so that a hang-up is the peer's regular end.
    finished: bool,
    /// Gone in both directions.
    gone: bool,
    /// Nothing has come yet.
    fresh: bool,
    /// Events of the socket are told to a poller.
    registered: bool,
    /// Files are copied to it.
    copies_files: bool,
}

impl Connection {
    /// A connection that was just accepted. It may be readable already; nothing is known.
    pub(crate) fn new<H: Handler>(accepted: Accepted, site: &Site<H>, turn: &mut Turn<'_>) -> Self {
        Self {
            session: ServerSession::new(&site.session, accepted.peer, turn),
            socket: accepted.socket,
            ready: Ready {
                readable: true,
                writable: true,
                hung_up: false,
                ended: false,
                finished: false,
                gone: false,
                fresh: true,
                registered: false,
                copies_files: site.options.file_io.copies_for(accepted.peer),
            },
            sending: None,
            arrived: Arrived::default(),
        }
    }

    /// Whoever will watch the socket is told what there is to read: nothing to be tried before.
    pub(crate) fn read_by_event(&mut self) {
        self.ready.readable = false;
    }

    /// Notes what events said. What it changes shows at the next visit.
    #[inline]
    pub(crate) fn note(&mut self, noted: Noted) {
        let ready = &mut self.ready;
        ready.readable |= noted.readable;
        ready.writable |= noted.writable;
        ready.hung_up |= noted.hung_up;
        ready.gone |= noted.gone;
    }

    /// Carries out orders until there is a reason to pause.
    #[inline]
    pub(crate) fn visit<H: Handler>(&mut self, site: &Site<H>, kit: &mut Kit<H>) -> Pause {
        let mut bytes_left = WRITE_BYTES_MAX;
        let lent = kit.lend();
        let (local, mut turn) = (lent.local, lent.turn);
        let buffers = &mut Buffers {
            scratch: lent.scratch,
            files: lent.files,
        };
        if self.ready.gone && !self.ready.finished {
            self.session.peer_gone(&mut turn);
        } else if self.sending.is_some()
            && self.ready.writable
            && let Some(pause) = self.resume(&mut bytes_left, buffers, &mut turn)
        {
            return pause;
        }
        for _ in 0..ACTIONS_MAX {
            match self.session.next_action(&mut turn) {
                Action::Run(mut exchange) => {
                    let outcome = site.handle(local, &mut exchange, &mut turn);
                    self.session.ran(exchange, outcome, &mut turn);
                }
                Action::Block(exchange) => return Pause::Block(exchange),
                Action::Start(mut exchange) => {
                    exchange.local = site
                        .local_addresses
                        .of(&mut self.arrived, self.socket.as_fd());
                    return Pause::Start(exchange);
                }
                Action::Offer(_, piece) => return Pause::Offer(piece),
                Action::Pull(_, room) => return Pause::Pull(room),
                Action::Cancel(_) => return Pause::Cancel,
                Action::Send(transmit) => {
                    if let Some(pause) = self.send(transmit, &mut bytes_left, buffers, &mut turn) {
                        return pause;
                    }
                }
                Action::Finish => {
                    self.ready.finished = true;
                    if socket::finish(self.socket.as_fd()).is_err() {
                        self.session.peer_gone(&mut turn);
                    }
                }
                Action::Wait { read: true } if self.ready.readable && !self.ready.ended => {
                    self.receive(buffers.scratch, &mut turn);
                }
                Action::Wait { .. } => return Pause::Wait,
                Action::Close => return Pause::Close,
            }
        }
        Pause::Again
    }

    /// The blocking step is done, or was refused. A drain that began meanwhile shows in its answer;
    /// what has arrived behind the request was accepted, so it is read before, unless
    /// there is enough to answer.
    pub(crate) fn completed<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        site: &Site<H>,
        kit: &mut Kit<H>,
    ) {
        let lent = kit.lend();
        let mut turn = lent.turn;
        if site.shutdown.is_draining() {
            if !self.ready.ended && !self.session.has_carry() {
                self.receive(lent.scratch, &mut turn);
            }
            self.session.draining(&mut turn);
        }
        self.session.completed(exchange, &mut turn);
    }

    /// For what an app's task says.
    pub(crate) fn session(&mut self) -> &mut ServerSession {
        &mut self.session
    }

    /// The range that a pause asked for is in memory.
    pub(crate) fn warmed(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.warmed();
        }
    }

    /// The deadline may have passed.
    pub(crate) fn expired(&mut self, turn: &mut Turn<'_>) {
        self.session.expired(turn);
    }

    /// The server is going down: says so to the session, after reading once more if it is idle. A
    /// newcomer of whom nothing has come may be given a moment: `patient`. Returns whether the
    /// session was told.
    pub(crate) fn drain<H: Handler>(&mut self, kit: &mut Kit<H>, patient: bool) -> bool {
        let lent = kit.lend();
        let mut turn = lent.turn;
        if self.session.is_idle() && !self.ready.ended {
            self.receive(lent.scratch, &mut turn);
        }
        if patient && self.ready.fresh && !self.ready.ended && !self.ready.gone {
            return false;
        }
        self.session.draining(&mut turn);
        true
    }

    /// To be answered with 503 and closed.
    pub(crate) fn refuse(&mut self, turn: &mut Turn<'_>) {
        self.session.refuse(Status::SERVICE_UNAVAILABLE, turn);
    }

    /// To be closed without an answer.
    pub(crate) fn abort(&mut self, reason: CloseReason) {
        self.session.abort(reason);
    }

    /// Reads what has come and throws it away, so that closing ends the connection rather than
    /// resetting it.
    pub(crate) fn read_in_vain(&self, scratch: &mut [u8]) {
        // Whatever it comes to, the connection is closed next.
        let _ = socket::receive(self.socket.as_fd(), scratch);
    }

    /// Gives memory back and closes the socket, which comes last: who sees the end finds it counted.
    /// Returns what the journal of connections wants to know, if there is one.
    pub(crate) fn end(self, turn: &mut Turn<'_>) -> Option<Box<ConnectionRecord>> {
        if let Some(sending) = self.sending {
            turn.pool.give_segments(sending.transmit.into_segments());
        }
        let record = self.session.ended(turn);
        drop(self.socket);
        record
    }

    pub(crate) fn deadline(&self) -> Option<Millis> {
        self.session.deadline()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    /// Whether a poller watches the socket.
    pub(crate) fn is_registered(&self) -> bool {
        self.ready.registered
    }

    /// A poller watches the socket from now on.
    pub(crate) fn register(&mut self) {
        self.ready.registered = true;
    }

    /// Whether a visit would find something to do.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.readable || self.ready.gone || (self.ready.writable && self.sending.is_some())
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// One system call for a request that fits into the buffer.
    #[inline]
    fn receive(&mut self, scratch: &mut [u8], turn: &mut Turn<'_>) {
        match socket::receive(self.socket.as_fd(), scratch) {
            Ok(Some(0)) => {
                self.ready.ended = true;
                self.ready.readable = false;
                self.session.received_eof(turn);
            }
            Ok(Some(count)) => {
                // What comes after a short read is a new edge; the end that a hang-up announced
                // is not.
                if count < scratch.len() && !self.ready.hung_up {
                    self.ready.readable = false;
                }
                self.ready.fresh = false;
                self.session.received(&mut scratch[..count], turn);
            }
            Ok(None) => self.ready.readable = false,
            Err(_) => {
                self.ready.readable = false;
                self.session.peer_gone(turn);
            }
        }
    }

    /// Sends a new batch: one system call if the socket has room for all of it.
    #[inline]
    fn send(
        &mut self,
        mut transmit: Transmit,
        bytes_left: &mut u64,
        buffers: &mut Buffers<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<Pause> {
        match write::write(
            self.socket.as_fd(),
            &mut transmit,
            *bytes_left,
            Files::Probe,
            buffers.files_for(self.ready),
        ) {
            Ok(Written {
                progress: Progress::Done,
                bytes,
            }) => {
                *bytes_left = bytes_left.saturating_sub(bytes);
                self.sent(transmit, buffers, turn);
                None
            }
            result => {
                let mut sending = Sending::new(transmit);
                let went = sending.after(result, bytes_left, &mut self.session, turn);
                self.sending = Some(Box::new(sending));
                self.follow(went, buffers, turn)
            }
        }
    }

    /// All of a batch is in the socket. Before the session closes for want of more, it learns what
    /// has come meanwhile.
    #[inline]
    fn sent(&mut self, transmit: Transmit, buffers: &mut Buffers<'_>, turn: &mut Turn<'_>) {
        if self.session.is_ending() && self.ready.readable && !self.ready.ended {
            self.receive(buffers.scratch, turn);
        }
        self.session.sent(transmit, turn);
    }

    /// Goes on with output that the socket did not take at once.
    fn resume(
        &mut self,
        bytes_left: &mut u64,
        buffers: &mut Buffers<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<Pause> {
        let sending = self.sending.as_mut()?;
        let socket = self.socket.as_fd();
        let went = sending.go_on(
            socket,
            buffers.files_for(self.ready),
            bytes_left,
            &mut self.session,
            turn,
        );
        self.follow(went, buffers, turn)
    }

    fn follow(
        &mut self,
        went: Went,
        buffers: &mut Buffers<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<Pause> {
        match went {
            Went::Out => {
                if let Some(sending) = self.sending.take() {
                    self.sent(sending.transmit, buffers, turn);
                }
                None
            }
            Went::Full => {
                self.ready.writable = false;
                None
            }
            Went::Budget => Some(Pause::Again),
            Went::Cold(range) => Some(Pause::Warm(range)),
            Went::Nowhere => None,
        }
    }
}

/// A connection on its way to the loop that will serve it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) accepted: Accepted,
    pub(crate) welcome: Welcome,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// There is room.
    Serve,
    /// There will be once the oldest idle connection is closed.
    MakeRoom,
    /// There is none: 503.
    Refuse,
}

const _: () = assert!(size_of::<Connection>() <= 112);
