//! One connection of a proactor: its orders, given to the kernel.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use loadline_base::{Millis, Token, Transmit};
use loadline_proto::{
    Action, CloseReason, ConnectionRecord, Exchange, Handler, ServerSession, Status, Turn,
};
use loadline_sys::ring::{Ring, SocketId, Told};
use loadline_sys::write::FileBuffer;
use loadline_sys::{Accepted, socket};

use super::driver::{Fact, RingDriver};
use crate::kit::Kit;
use crate::parts::connection::{ACTIONS_MAX, Connection, Noted, Pause, WRITE_BYTES_MAX};
use crate::parts::event_loop::driver::{Heard, Link};
use crate::parts::local_address::Arrived;
use crate::parts::sending::{Sending, Went};
use crate::site::Site;

/// One connection.
#[derive(Debug)]
pub(crate) struct RingConnection {
    session: ServerSession,
    place: Place,
    /// Output with files on its way: what the ring cannot send. Also a batch that has left, of which
    /// the session is not told yet.
    files: Option<Box<Sending>>,
    known: Known,
    arrived: Arrived,
}

/// Where the socket is.
#[derive(Debug)]
enum Place {
    /// Not with the ring yet.
    Here(OwnedFd),
    /// With the ring.
    Ring(SocketId),
    /// Nowhere: only for a moment.
    Nowhere,
}

/// Receives that are heard for one batch that has left already, before the session is told of that:
/// some 64 KiB, as a reactor reads at once.
const HEARD_LATE_MAX: u8 = 16;

/// What is known of the socket.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The session welcomes bytes.
    wanted: bool,
    /// Bytes came although it does not: the kernel is to stop.
    to_be_paused: bool,
    /// The end of input has been told.
    ended: bool,
    /// Output is shut down, so that a hang-up is the peer's regular end.
    finished: bool,
    /// Something has come.
    has_spoken: bool,
    /// There is room for files.
    writable: bool,
    /// Files are copied to it.
    copies_files: bool,
    /// Its last answer has gone, as far as is known, and nothing else is to be done.
    resting: bool,
    /// That is certain now, and nothing else has happened.
    idles_on: bool,
    /// Receives since the last batch left.
    heard_late: u8,
}

impl RingConnection {
    fn id(&self) -> Option<SocketId> {
        match self.place {
            Place::Ring(id) => Some(id),
            Place::Here(_) | Place::Nowhere => None,
        }
    }

    fn socket<'r>(&self, ring: &'r Ring) -> Option<BorrowedFd<'r>> {
        self.id().and_then(|id| ring.socket(id))
    }

    /// Sends a batch: by the ring, or from here if it holds files, or is the last: then nothing is left
    /// to wait for, and the connection closes in the same turn.
    fn send(
        &mut self,
        transmit: Transmit,
        bytes_left: &mut u64,
        ring: &mut Ring,
        files: &mut FileBuffer,
        turn: &mut Turn<'_>,
    ) -> Option<Pause> {
        if transmit.has_file() || self.session.ends_once_sent() {
            self.hold(transmit);
            return self.send_files(bytes_left, ring, files, turn);
        }
        let Some(id) = self.id() else {
            self.session.peer_gone(turn);
            return None;
        };
        let told = match self.session.rests_once_sent() {
            true => Told::WithTheNext,
            false => Told::AtOnce,
        };
        self.known.resting = ring.send(id, transmit, told);
        None
    }

    /// Keeps a batch until `send_files`.
    fn hold(&mut self, transmit: Transmit) {
        self.files = Some(Box::new(Sending::new(transmit)));
        self.known.writable = true;
        self.known.heard_late = 0;
    }

    fn send_files(
        &mut self,
        bytes_left: &mut u64,
        ring: &mut Ring,
        files: &mut FileBuffer,
        turn: &mut Turn<'_>,
    ) -> Option<Pause> {
        let id = self.id()?;
        let (Some(sending), Some(socket)) = (&mut self.files, ring.socket(id)) else {
            return None;
        };
        let files = self.known.copies_files.then_some(files);
        match sending.go_on(socket, files, bytes_left, &mut self.session, turn) {
            Went::Out if self.is_to_hear_more(id, ring) => {
                self.known.wanted = true;
                ring.receive(id);
                Some(Pause::Again) // until it was told
            }
            Went::Out => {
                if let Some(sending) = self.files.take() {
                    self.session.sent(sending.transmit, turn);
                }
                None
            }
            Went::Full => {
                self.known.writable = false;
                ring.await_room(id);
                None
            }
            Went::Cold(range) if ring.read_ahead(id, &range.file, range.offset, range.len) => None,
            Went::Cold(range) => Some(Pause::Warm(range)),
            Went::Budget => Some(Pause::Again),
            Went::Nowhere => None,
        }
    }

    /// Whether the session may close once it is told that its output has left, and what has come by then
    /// is to be told before: a drain answers it, and otherwise the close lingers.
    fn listens_before_the_end(&self) -> bool {
        self.session.is_ending() && !self.session.ends_once_sent() && !self.known.ended
    }

    fn is_to_hear_more(&self, id: SocketId, ring: &mut Ring) -> bool {
        self.listens_before_the_end()
            && self.known.heard_late < HEARD_LATE_MAX
            && ring.has_input(id)
    }

    /// Asks for bytes, or sees to it that not many more come.
    fn ask(&mut self, read: bool, ring: &mut Ring) {
        self.known.wanted = read;
        let Some(id) = self.id() else { return };
        if read {
            self.known.to_be_paused = false;
            if !self.known.ended {
                ring.receive(id);
            }
        } else if std::mem::take(&mut self.known.to_be_paused) {
            ring.pause(id);
        } else if self.known.ended && self.session.has_task() {
            // Nothing is received that would fail, and perhaps nothing sent for long.
            ring.watch_hang_up(id);
        }
    }
}

impl Link<RingDriver> for RingConnection {
    fn new<H: Handler>(accepted: Accepted, site: &Site<H>, turn: &mut Turn<'_>) -> Self {
        Self {
            session: ServerSession::new(&site.session, accepted.peer, turn),
            place: Place::Here(accepted.socket),
            files: None,
            known: Known {
                copies_files: site.options.file_io.copies_for(accepted.peer),
                ..Known::default()
            },
            arrived: Arrived::default(),
        }
    }

    fn seat(&mut self, token: Token, driver: &mut RingDriver) {
        if let Place::Here(socket) = std::mem::replace(&mut self.place, Place::Nowhere) {
            self.place = Place::Ring(driver.ring.adopt(socket, token));
        }
    }

    #[inline]
    fn told(&mut self, fact: Fact<'_>, turn: &mut Turn<'_>) -> Heard {
        let mut is_input = false;
        match fact {
            Fact::Received(bytes) => {
                is_input = true;
                self.known.idles_on = false;
                self.known.has_spoken = true;
                self.known.to_be_paused = !self.known.wanted;
                self.known.heard_late = self.known.heard_late.saturating_add(1);
                self.session.received(bytes, turn);
            }
            Fact::Ended { regular } => {
                is_input = true;
                self.known.ended = true;
                match regular || self.known.finished {
                    true => self.session.received_eof(turn),
                    false => self.session.peer_gone(turn),
                }
            }
            Fact::Progress(bytes) => {
                self.known.resting = false;
                self.session.progressed(bytes, turn);
            }
            Fact::Sent(transmit) if self.listens_before_the_end() => {
                self.known.resting = false;
                self.hold(transmit);
            }
            Fact::Sent(transmit) => {
                self.known.idles_on = std::mem::take(&mut self.known.resting);
                self.session.sent(transmit, turn);
            }
            Fact::SendFailed(transmit) => {
                self.known.resting = false;
                turn.pool.give_segments(transmit.into_segments());
                self.session.peer_gone(turn);
            }
            Fact::Writable => self.known.writable = true,
            Fact::ReadAhead(bytes) => {
                if let Some(sending) = &mut self.files {
                    sending.read_ahead(bytes);
                }
            }
            Fact::HungUp if self.known.finished => {}
            Fact::HungUp => self.session.peer_gone(turn),
        }
        Heard {
            is_input,
            is_ready: true,
        }
    }

    #[inline]
    fn visit<H: Handler>(
        &mut self,
        site: &Site<H>,
        kit: &mut Kit<H>,
        driver: &mut RingDriver,
    ) -> Pause {
        let ring = &mut driver.ring;
        let mut bytes_left = WRITE_BYTES_MAX;
        let lent = kit.lend();
        let (local, files, mut turn) = (lent.local, lent.files, lent.turn);
        if self.files.is_some()
            && self.known.writable
            && let Some(pause) = self.send_files(&mut bytes_left, ring, files, &mut turn)
        {
            return pause;
        }
        for _ in 0..ACTIONS_MAX {
            match self.session.next_action(&mut turn) {
                Action::Run(mut exchange) => {
                    let outcome = site.handle(local, &mut exchange, &mut turn);
                    self.session.ran(exchange, outcome, &mut turn);
                }
                Action::Block(exchange) => {
                    self.known.wanted = false;
                    return Pause::Block(exchange);
                }
                Action::Start(mut exchange) => {
                    let socket = self.id().and_then(|id| ring.socket(id));
                    exchange.local = socket
                        .and_then(|socket| site.local_addresses.of(&mut self.arrived, socket));
                    return Pause::Start(exchange);
                }
                Action::Offer(_, piece) => return Pause::Offer(piece),
                Action::Pull(_, room) => return Pause::Pull(room),
                Action::Cancel(_) => return Pause::Cancel,
                Action::Send(transmit) => {
                    if let Some(pause) =
                        self.send(transmit, &mut bytes_left, ring, files, &mut turn)
                    {
                        return pause;
                    }
                }
                Action::Finish => {
                    self.known.finished = true;
                    let socket = self.socket(ring);
                    if socket.is_none_or(|socket| socket::finish(socket).is_err()) {
                        self.session.peer_gone(&mut turn);
                    }
                }
                Action::Wait { read } => {
                    self.ask(read, ring);
                    return Pause::Wait;
                }
                Action::Close => return Pause::Close,
            }
        }
        Pause::Again
    }

    fn settle(&mut self, _token: Token, driver: &mut RingDriver) -> io::Result<()> {
        if !self.known.has_spoken && !self.known.ended {
            self.ask(true, &mut driver.ring);
        }
        Ok(())
    }

    fn completed<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        site: &Site<H>,
        kit: &mut Kit<H>,
        driver: &mut RingDriver,
    ) {
        let mut turn = kit.turn();
        // What has come behind the request was accepted, so it is heard before: the loop will, and
        // tells of the drain then.
        let mut is_more_to_hear = || {
            !self.known.ended
                && !self.session.has_carry()
                && self.id().is_some_and(|id| driver.ring.has_input(id))
        };
        if site.shutdown.is_draining() && !is_more_to_hear() {
            self.session.draining(&mut turn);
        }
        self.session.completed(exchange, &mut turn);
    }

    fn session(&mut self) -> &mut ServerSession {
        &mut self.session
    }

    fn warmed(&mut self) {
        if let Some(sending) = &mut self.files {
            sending.warmed();
        }
    }

    fn expired(&mut self, turn: &mut Turn<'_>) {
        self.session.expired(turn);
    }

    /// One that looks idle, but to which something has come, is told when it has heard that.
    fn drain<H: Handler>(
        &mut self,
        kit: &mut Kit<H>,
        driver: &mut RingDriver,
        patient: bool,
    ) -> bool {
        if patient && !self.known.has_spoken && !self.known.ended {
            return false;
        }
        if self.session.is_idle() && !self.is_idle_for_certain(driver) {
            return false;
        }
        self.session.draining(&mut kit.turn());
        true
    }

    fn refuse(&mut self, turn: &mut Turn<'_>) {
        self.session.refuse(Status::SERVICE_UNAVAILABLE, turn);
    }

    fn abort(&mut self, reason: CloseReason) {
        self.session.abort(reason);
    }

    /// The ring has read it already.
    fn read_in_vain(&self, _scratch: &mut [u8]) {}

    fn end(self, turn: &mut Turn<'_>, driver: &mut RingDriver) -> Option<Box<ConnectionRecord>> {
        let id = self.id();
        if let Some(sending) = self.files {
            turn.pool.give_segments(sending.transmit.into_segments());
        }
        let record = self.session.ended(turn);
        if let Some(id) = id {
            driver.ring.close(id);
        }
        record
    }

    fn deadline(&self) -> Option<Millis> {
        self.session.deadline()
    }

    fn is_idle(&self) -> bool {
        self.session.is_idle() || self.known.resting
    }

    /// Its last answer may not have been submitted yet, and find no room; a newcomer's first request is
    /// there before it is told.
    fn is_idle_for_certain(&self, driver: &mut RingDriver) -> bool {
        let mut has_input = || self.id().is_some_and(|id| driver.ring.has_input(id));
        self.session.is_idle() && (self.known.ended || !has_input())
    }

    #[inline]
    fn idles_on(&mut self) -> bool {
        std::mem::take(&mut self.known.idles_on)
    }

    /// A worker could not use the ring.
    fn into_served(self) -> Result<Connection, Self> {
        Err(self)
    }

    fn from_served(_connection: Connection, _missed: Noted) -> Option<Self> {
        None
    }

    fn read_by_event(&mut self) {}
}
