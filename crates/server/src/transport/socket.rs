//! A non-blocking socket by readiness: flags say what may be tried, system calls try it.
//!
//! An epoll loop sets the flags by edge-triggered events, a blocking thread by `poll`.

pub(crate) mod epoll;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use loadline_base::Transmit;
use loadline_proto::{Context, Then};
use loadline_sys::write::{self, FileBuffer, Files, WriteProgress, Written};
use loadline_sys::{Event, socket};

use super::local_address::{Arrived, LocalAddresses};
use super::sending::{SendOutcome, Sending};
use super::{Detached, Io, Pause, Transport};

/// Bytes written each time a loop drives a connection: 1 MiB costs about 200 us (a file of that
/// length under wrk, AMD EPYC), which is how long a fast reader may hold up the others.
const LOOP_WRITE_BYTES: u64 = 1 << 20;

/// Bytes that a blocking thread writes between two looks at the clock and the shutdown: 4 MiB take
/// some milliseconds.
const THREAD_WRITE_BYTES: u64 = 4 << 20;

/// A socket and what is known of it.
#[derive(Debug)]
pub(crate) struct Socket<F = OwnedFd> {
    fd: F,
    /// What may be tried. Once a hang-up was seen, a short read does not mean that nothing is left.
    ready: Readiness,
    known: Known,
    arrived: Arrived,
    sending: Option<Box<Sending>>,
}

/// What events said of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has closed its end, or all of it.
    pub(crate) hung_up: bool,
    /// Gone in both directions.
    pub(crate) gone: bool,
}

impl Readiness {
    /// Adds what one more event says.
    #[inline]
    pub(crate) fn add(&mut self, more: Self) {
        self.readable |= more.readable;
        self.writable |= more.writable;
        self.hung_up |= more.hung_up;
        self.gone |= more.gone;
    }

    /// Whether an event said anything at all.
    pub(crate) fn is_anything(self) -> bool {
        self.readable || self.writable || self.hung_up || self.gone
    }
}

impl From<Event> for Readiness {
    #[inline]
    fn from(event: Event) -> Self {
        Self {
            readable: event.is_readable(),
            writable: event.is_writable(),
            hung_up: event.is_half_closed(),
            gone: event.is_gone(),
        }
    }
}

/// What else is known of the socket.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The end of input was reported.
    ended: bool,
    /// Output is shut down, so that a hang-up is the peer's regular end.
    finished: bool,
    /// Nothing has come yet.
    fresh: bool,
    /// A poller watches the socket.
    registered: bool,
    /// Files are copied to it.
    copies_files: bool,
    owner: Owner,
}

/// Who waits for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A loop, by epoll.
    Loop,
    /// A blocking thread, by `poll`; `reads`: the session waits for input.
    Thread { reads: bool },
}

impl Socket {
    /// The first read needs no event.
    pub(crate) fn from_detached(detached: Detached) -> Self {
        let mut socket = Self::of_loop(detached.fd, detached.copies_files);
        socket.known.fresh = !detached.has_received;
        socket.arrived = detached.arrived;
        socket
    }
}

impl<F: AsFd> Socket<F> {
    /// Of a loop. The first read needs no event.
    pub(crate) fn of_loop(fd: F, copies_files: bool) -> Self {
        Self {
            fd,
            ready: Readiness {
                readable: true,
                writable: true,
                ..Readiness::default()
            },
            known: Known {
                ended: false,
                finished: false,
                fresh: true,
                registered: false,
                copies_files,
                owner: Owner::Loop,
            },
            arrived: Arrived::default(),
            sending: None,
        }
    }

    /// Of a blocking thread, which waits before it reads. Files go by `sendfile`: a buffer for each
    /// of many threads would be too much.
    pub(crate) fn of_thread(fd: F) -> Self {
        let mut socket = Self::of_loop(fd, false);
        socket.ready.readable = false;
        socket.known.owner = Owner::Thread { reads: false };
        socket
    }

    /// Adds what events said. What they change shows when the connection is driven next.
    #[inline]
    pub(crate) fn note(&mut self, readiness: Readiness) {
        self.ready.add(readiness);
    }

    /// From a loop to a blocking thread, which waits for it until `move_to_loop`.
    pub(crate) fn move_to_thread(&mut self) {
        self.known.owner = Owner::Thread { reads: false };
    }

    /// Back, with what was begun there.
    pub(crate) fn move_to_loop(&mut self) {
        self.known.owner = Owner::Loop;
        if let Some(sending) = &mut self.sending {
            sending.probe();
        }
    }

    /// Whether the session has waited for input.
    pub(crate) fn awaits_input(&self) -> bool {
        self.known.owner == Owner::Thread { reads: true }
    }

    /// Whether output waits for room.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether driving the connection would find something to do.
    fn is_ready(&self) -> bool {
        self.ready.readable || self.ready.gone || (self.ready.writable && self.sending.is_some())
    }

    /// One system call for a request that fits into the buffer. `false`: there was nothing.
    #[inline]
    fn receive<D>(&mut self, io: &mut Io<'_, '_, D>) -> bool {
        match socket::receive(self.fd.as_fd(), io.read_buffer) {
            Ok(Some(0)) => {
                self.known.ended = true;
                self.ready.readable = false;
                io.session.received_eof(io.cx);
            }
            Ok(Some(count)) => {
                // What comes after a short read is a new edge; the end that a hang-up announced
                // is not.
                if count < io.read_buffer.len() && !self.ready.hung_up {
                    self.ready.readable = false;
                }
                self.known.fresh = false;
                io.session.received(&mut io.read_buffer[..count], io.cx);
            }
            Ok(None) => {
                self.ready.readable = false;
                return false;
            }
            Err(_) => {
                self.ready.readable = false;
                io.session.peer_gone(io.cx);
            }
        }
        true
    }

    /// Whether its thread may wait for the disk.
    fn may_block(&self) -> bool {
        self.known.owner != Owner::Loop
    }

    fn files<'f>(&self, files: &'f mut FileBuffer) -> Option<&'f mut FileBuffer> {
        self.known.copies_files.then_some(files)
    }

    fn sent_so_far<D>(
        &mut self,
        outcome: SendOutcome,
        io: &mut Io<'_, '_, D>,
    ) -> ControlFlow<Pause> {
        match outcome {
            SendOutcome::Whole => {
                if let Some(sending) = self.sending.take() {
                    io.session.sent(sending.transmit, io.cx);
                }
            }
            SendOutcome::Full => {
                self.ready.writable = false;
                // A thread polls for room alone now: what comes meanwhile is not known.
                self.ready.readable |= self.may_block();
            }
            SendOutcome::Budget => return ControlFlow::Break(Pause::Again),
            SendOutcome::NotCached(range) => return ControlFlow::Break(Pause::Prefetch(range)),
            SendOutcome::Nothing => {}
        }
        ControlFlow::Continue(())
    }
}

impl<D, F: AsFd> Transport<D> for Socket<F> {
    #[inline]
    fn write_bytes_max(&self) -> u64 {
        match self.may_block() {
            true => THREAD_WRITE_BYTES,
            false => LOOP_WRITE_BYTES,
        }
    }

    #[inline]
    fn resume(&mut self, io: &mut Io<'_, '_, D>) -> ControlFlow<Pause> {
        if self.ready.gone && !self.known.finished {
            io.session.peer_gone(io.cx);
        } else if self.ready.writable
            && let Some(sending) = &mut self.sending
        {
            let files = self.known.copies_files.then_some(&mut *io.files);
            let socket = self.fd.as_fd();
            let outcome = sending.go_on(socket, files, io.bytes_left, io.session, io.cx);
            return self.sent_so_far(outcome, io);
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn wait(&mut self, read: bool, _hang_up: bool, io: &mut Io<'_, '_, D>) -> bool {
        if let Owner::Thread { reads } = &mut self.known.owner {
            *reads = read;
        }
        let may_read = read && self.ready.readable && !self.known.ended;
        if may_read {
            self.receive(io);
        } else if self.ready.hung_up && !self.known.ended {
            io.session.half_closed();
        }
        may_read
    }

    fn receive_pending(&mut self, certain: bool, io: &mut Io<'_, '_, D>) -> ControlFlow<Pause> {
        let may_have = (certain || self.ready.readable) && !self.known.ended;
        if !may_have || !self.receive(io) {
            io.session.nothing_pending(io.cx);
        }
        ControlFlow::Continue(())
    }

    /// One system call if the socket has room for all of it.
    #[inline]
    fn send(
        &mut self,
        mut transmit: Transmit,
        _then: Then,
        io: &mut Io<'_, '_, D>,
    ) -> ControlFlow<Pause> {
        let probe = match self.may_block() {
            true => Files::Trust,
            false => Files::Probe,
        };
        let files = self.files(io.files);
        match write::write(self.fd.as_fd(), &mut transmit, *io.bytes_left, probe, files) {
            Ok(Written {
                progress: WriteProgress::Done,
                bytes,
            }) => {
                *io.bytes_left = io.bytes_left.saturating_sub(bytes);
                io.session.sent(transmit, io.cx);
                ControlFlow::Continue(())
            }
            result => {
                let mut sending = Sending::new(transmit, probe);
                let outcome = sending.after(result, io.bytes_left, io.session, io.cx);
                self.sending = Some(Box::new(sending));
                self.sent_so_far(outcome, io)
            }
        }
    }

    fn finish(&mut self, io: &mut Io<'_, '_, D>) {
        self.known.finished = true;
        if socket::finish(self.fd.as_fd()).is_err() {
            io.session.peer_gone(io.cx);
        }
    }

    fn local_address(&mut self, addresses: &LocalAddresses, _driver: &D) -> Option<SocketAddr> {
        addresses.of(&mut self.arrived, self.fd.as_fd())
    }

    fn prefetched(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.prefetched();
        }
    }

    fn is_prefetching(&self) -> bool {
        (self.sending.as_ref()).is_some_and(|sending| sending.is_prefetching())
    }

    fn has_begun(&self, _driver: &mut D) -> bool {
        let known = !self.known.fresh || self.known.ended || self.ready.gone;
        known || socket::has_input(self.fd.as_fd())
    }

    /// A request may be an event that was not reported yet.
    fn has_input(&self, _driver: &mut D) -> bool {
        socket::has_input(self.fd.as_fd())
    }

    fn close(self, _driver: &mut D, cx: &mut Context<'_>) {
        if let Some(sending) = self.sending {
            cx.pool.give_segments(sending.transmit.into_segments());
        }
        drop(self.fd);
    }
}

const _: () = assert!(size_of::<Socket>() <= 24);
