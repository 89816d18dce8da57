//! A socket by completion: io_uring receives and sends, and reports what was done.
//!
//! Received bytes are pushed: the session reads them in the buffer that the kernel has filled.

pub(crate) mod driver;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use loadline_base::{Token, Transmit};
use loadline_proto::{Context, ServerSession, Then};
use loadline_sys::ring::{Ring, SentReport, SocketId};
use loadline_sys::socket;
use loadline_sys::write::Files;

use super::sending::{SendOutcome, Sending};
use super::socket::{Readiness, Socket};
use super::{Io, Pause, Transport};
use crate::transport::local_address::{Arrived, LocalAddresses};
use crate::transport::ring::driver::{RingDriver, RingEvent};
use crate::transport::{Detached, LoopTransport, Reported};

/// Bytes of files written each time a connection is driven: as of a loop on epoll.
const WRITE_BYTES: u64 = 1 << 20;

/// A socket and what is known of it.
#[derive(Debug)]
pub(crate) struct RingSocket {
    descriptor: Descriptor,
    /// Output with files on its way: what the ring cannot send.
    files: Option<Box<Sending>>,
    known: Known,
    arrived: Arrived,
}

/// Where the descriptor is.
#[derive(Debug)]
enum Descriptor {
    /// Here: the ring has not got it yet.
    Unadopted(OwnedFd),
    InRing(SocketId),
    /// Only for a moment.
    Taken,
}

/// What is known of the socket.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The session welcomes bytes.
    wanted: bool,
    /// Bytes came although it does not: the kernel is to stop.
    to_be_paused: bool,
    /// The end of input was reported.
    ended: bool,
    /// Output is shut down, so that a hang-up is the peer's regular end.
    finished: bool,
    /// Something has come.
    has_received: bool,
    /// There is room for files.
    writable: bool,
    /// Files are copied to it.
    copies_files: bool,
    /// The last answer has left, as far as is known, and nothing else is to be done.
    resting: bool,
    /// That is certain now, and nothing else has happened.
    rests_on: bool,
    /// To another loop: nothing is received any more.
    leaving: bool,
}

impl RingSocket {
    fn id(&self) -> Option<SocketId> {
        match self.descriptor {
            Descriptor::InRing(id) => Some(id),
            Descriptor::Unadopted(_) | Descriptor::Taken => None,
        }
    }

    fn send_files(&mut self, io: &mut Io<'_, '_, RingDriver>) -> ControlFlow<Pause> {
        let ring = &mut io.driver.ring;
        let Some(id) = self.id() else {
            return ControlFlow::Continue(());
        };
        let (Some(sending), Some(socket)) = (&mut self.files, ring.socket(id)) else {
            return ControlFlow::Continue(());
        };
        let files = self.known.copies_files.then_some(&mut *io.files);
        match sending.go_on(socket, files, io.bytes_left, io.session, io.cx) {
            SendOutcome::Whole => {
                if let Some(sending) = self.files.take() {
                    io.session.sent(sending.transmit, io.cx);
                }
            }
            SendOutcome::Full => {
                self.known.writable = false;
                ring.await_room(id);
            }
            SendOutcome::NotCached(range)
                if ring.read_ahead(id, &range.file, range.offset, range.len) => {}
            SendOutcome::NotCached(range) => return ControlFlow::Break(Pause::Prefetch(range)),
            SendOutcome::Budget => return ControlFlow::Break(Pause::Again),
            SendOutcome::Nothing => {}
        }
        ControlFlow::Continue(())
    }

    /// Asks for bytes, or sees to it that not many more come.
    fn ask(&mut self, read: bool, hang_up: bool, ring: &mut Ring) {
        self.known.wanted = read;
        let Some(id) = self.id() else { return };
        if read {
            self.known.to_be_paused = false;
            if !self.known.ended && !self.known.leaving {
                ring.receive(id);
            }
        } else if std::mem::take(&mut self.known.to_be_paused) {
            ring.pause(id);
        } else if hang_up && self.known.ended {
            // Nothing is received that would fail, and perhaps nothing sent for long.
            ring.watch_hang_up(id);
        }
    }
}

impl Transport<RingDriver> for RingSocket {
    fn write_bytes_max(&self) -> u64 {
        WRITE_BYTES
    }

    #[inline]
    fn resume(&mut self, io: &mut Io<'_, '_, RingDriver>) -> ControlFlow<Pause> {
        match self.files.is_some() && self.known.writable {
            true => self.send_files(io),
            false => ControlFlow::Continue(()),
        }
    }

    #[inline]
    fn wait(&mut self, read: bool, hang_up: bool, io: &mut Io<'_, '_, RingDriver>) -> bool {
        self.ask(read, hang_up, &mut io.driver.ring);
        false
    }

    /// What the ring has received comes by events: until then the session waits.
    fn receive_pending(
        &mut self,
        certain: bool,
        io: &mut Io<'_, '_, RingDriver>,
    ) -> ControlFlow<Pause> {
        let ring = &mut io.driver.ring;
        match self.id() {
            Some(id) if certain && !self.known.ended && ring.has_input(id) => {
                self.known.wanted = true;
                ring.receive(id);
                ControlFlow::Break(Pause::Again)
            }
            _ => {
                io.session.nothing_pending(io.cx);
                ControlFlow::Continue(())
            }
        }
    }

    /// By the ring; from here if it holds files, or if the connection closes behind it: then nothing
    /// is left to wait for.
    fn send(
        &mut self,
        transmit: Transmit,
        then: Then,
        io: &mut Io<'_, '_, RingDriver>,
    ) -> ControlFlow<Pause> {
        if transmit.has_file() || then == Then::Close {
            self.files = Some(Box::new(Sending::new(transmit, Files::Probe)));
            self.known.writable = true;
            return self.send_files(io);
        }
        let Some(id) = self.id() else {
            io.session.peer_gone(io.cx);
            return ControlFlow::Continue(());
        };
        let report = match then {
            Then::Rest => SentReport::WithTheNext,
            Then::More | Then::Close => SentReport::AtOnce,
        };
        self.known.resting = io.driver.ring.send(id, transmit, report);
        ControlFlow::Continue(())
    }

    fn finish(&mut self, io: &mut Io<'_, '_, RingDriver>) {
        self.known.finished = true;
        let socket = self.id().and_then(|id| io.driver.ring.socket(id));
        if socket.is_none_or(|socket| socket::finish(socket).is_err()) {
            io.session.peer_gone(io.cx);
        }
    }

    fn local_address(
        &mut self,
        addresses: &LocalAddresses,
        driver: &RingDriver,
    ) -> Option<SocketAddr> {
        let socket = self.id().and_then(|id| driver.ring.socket(id))?;
        addresses.of(&mut self.arrived, socket)
    }

    fn prefetched(&mut self) {
        if let Some(sending) = &mut self.files {
            sending.prefetched();
        }
    }

    fn is_prefetching(&self) -> bool {
        (self.files.as_ref()).is_some_and(|sending| sending.is_prefetching())
    }

    fn has_begun(&self, _driver: &mut RingDriver) -> bool {
        self.known.has_received || self.known.ended
    }

    /// Also where an answer may not have been submitted yet.
    fn has_input(&self, driver: &mut RingDriver) -> bool {
        !self.known.ended && self.id().is_some_and(|id| driver.ring.has_input(id))
    }

    fn is_resting(&self) -> bool {
        self.known.resting
    }

    fn close(self, driver: &mut RingDriver, cx: &mut Context<'_>) {
        if let Some(sending) = self.files {
            cx.pool.give_segments(sending.transmit.into_segments());
        }
        if let Descriptor::InRing(id) = self.descriptor {
            driver.ring.close(id);
        }
    }
}

impl LoopTransport<RingDriver> for RingSocket {
    fn new(fd: OwnedFd, copies_files: bool) -> Self {
        Self {
            descriptor: Descriptor::Unadopted(fd),
            files: None,
            known: Known {
                copies_files,
                ..Known::default()
            },
            arrived: Arrived::default(),
        }
    }

    fn adopt(&mut self, token: Token, driver: &mut RingDriver) {
        if let Descriptor::Unadopted(fd) =
            std::mem::replace(&mut self.descriptor, Descriptor::Taken)
        {
            self.descriptor = Descriptor::InRing(driver.ring.adopt(fd, token));
        }
    }

    fn received_ago_ms(&self, driver: &RingDriver) -> Option<u32> {
        socket::received_ago_ms(driver.ring.socket(self.id()?)?)
    }

    #[inline]
    fn on_event(
        &mut self,
        event: RingEvent<'_>,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> Reported {
        let mut is_input = false;
        match event {
            RingEvent::Received(bytes) => {
                is_input = true;
                self.known.rests_on = false;
                self.known.has_received = true;
                self.known.to_be_paused = !self.known.wanted;
                session.received(bytes, cx);
            }
            RingEvent::Ended { regular } => {
                is_input = true;
                self.known.ended = true;
                match regular || self.known.finished {
                    true => session.received_eof(cx),
                    false => session.peer_gone(cx),
                }
            }
            RingEvent::Progress(bytes) => {
                self.known.resting = false;
                session.progressed(bytes, cx);
            }
            RingEvent::Sent(transmit) => {
                self.known.rests_on = std::mem::take(&mut self.known.resting);
                session.sent(transmit, cx);
            }
            RingEvent::SendFailed(transmit) => {
                self.known.resting = false;
                cx.pool.give_segments(transmit.into_segments());
                session.peer_gone(cx);
            }
            RingEvent::Writable => self.known.writable = true,
            RingEvent::ReadAhead(bytes) => {
                if let Some(sending) = &mut self.files {
                    sending.read_ahead(bytes);
                }
                session.cached(cx);
            }
            RingEvent::HungUp if self.known.finished => {}
            RingEvent::HungUp => session.peer_gone(cx),
        }
        Reported {
            is_input,
            is_ready: true,
        }
    }

    fn settle(&mut self, _token: Token, driver: &mut RingDriver) -> io::Result<()> {
        if !self.known.has_received && !self.known.ended {
            self.ask(true, false, &mut driver.ring);
        }
        Ok(())
    }

    /// The receive that is armed has to end first: its last completion may bring bytes.
    fn detach(mut self, driver: &mut RingDriver) -> Result<Detached, Self> {
        let Descriptor::InRing(id) = self.descriptor else {
            return Err(self);
        };
        if self.files.is_some() || self.known.ended || self.known.finished {
            return Err(self);
        }
        if !std::mem::replace(&mut self.known.leaving, true) {
            driver.ring.stop(id);
        }
        match driver.ring.give_up(id) {
            Some(fd) => Ok(Detached {
                fd,
                copies_files: self.known.copies_files,
                has_received: self.known.has_received,
                arrived: self.arrived,
            }),
            None => Err(self),
        }
    }

    /// It was idle, and a receive was armed. One is again, also if the session wants no bytes by now: it
    /// shows that the client has gone.
    fn stay(&mut self, driver: &mut RingDriver) {
        let was_leaving = std::mem::take(&mut self.known.leaving);
        if let Some(id) = self.id().filter(|_| was_leaving && !self.known.ended) {
            driver.ring.receive(id);
        }
    }

    fn attach(detached: Detached) -> Self {
        let mut socket = Self::new(detached.fd, detached.copies_files);
        socket.known.has_received = detached.has_received;
        socket.arrived = detached.arrived;
        socket
    }

    /// The ring has received it already.
    fn discard_input(&self, _read_buffer: &mut [u8]) {}

    #[inline]
    fn rests_on(&mut self) -> bool {
        std::mem::take(&mut self.known.rests_on)
    }

    /// A worker could not use the ring.
    fn into_socket(self) -> Result<Socket, Self> {
        Err(self)
    }

    fn from_socket(socket: Socket, _missed: Readiness) -> Result<Self, Socket> {
        Err(socket)
    }

    fn read_by_event(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::transport::{Driver, DriverEvent};

    /// A request came while its connection was about to go to another loop: nobody noticed any more that
    /// the client left while that request was carried out.
    #[test]
    fn a_connection_that_stays_after_all_notices_that_its_client_has_gone() {
        if let Err(error) = loadline_sys::ring::available() {
            let _ = writeln!(io::stderr(), "\nskipped: {error}");
            return;
        }
        let mut driver = RingDriver::new().unwrap();
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut socket = RingSocket::new(server.into(), false);
        let token = Token {
            index: 0,
            generation: 0,
        };
        socket.adopt(token, &mut driver);
        socket.ask(true, false, &mut driver.ring);
        driver.wait(Some(0)).unwrap();
        let Err(mut socket) = socket.detach(&mut driver) else {
            panic!("its receive is in flight");
        };
        socket.ask(false, false, &mut driver.ring);
        socket.stay(&mut driver);
        drop(client);
        for _ in 0..100 {
            driver.wait(Some(100)).unwrap();
            while let Some(event) = driver.next() {
                if matches!(event, DriverEvent::To(_, RingEvent::Ended { .. })) {
                    return;
                }
            }
        }
        panic!("nothing says so");
    }
}
