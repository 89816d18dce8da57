//! How bytes pass between a socket and its session: by readiness (`socket.rs`, for epoll loops and
//! blocking threads) or by completion (`ring.rs`, for io_uring).
//!
//! A transport reports to the session what was received and sent, and knows nothing of requests.

pub(crate) mod ring;
pub(crate) mod sending;
pub(crate) mod socket;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use loadline_base::{OpenFile, Transmit};
use loadline_proto::{Context, ServerSession, Then};
use loadline_sys::file;
use loadline_sys::write::FileBuffer;

use crate::parts::local_address::LocalAddresses;

/// What a thread lends to a transport for one call. `D`: what waits for its socket.
pub(crate) struct Io<'a, 't, D> {
    pub(crate) driver: &'a mut D,
    pub(crate) read_buffer: &'a mut [u8],
    pub(crate) files: &'a mut FileBuffer,
    /// Bytes that may still be written in this visit.
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
    /// The most that is written in one visit, in bytes.
    fn write_bytes_max(&self) -> u64;

    /// Before the session is asked for orders: goes on with output, reports what events said.
    fn resume(&mut self, session: &mut ServerSession, io: &mut Io<'_, '_, D>)
    -> ControlFlow<Pause>;

    /// `Action::Wait`. `true`: something was reported to the session, which has new orders.
    fn wait(
        &mut self,
        read: bool,
        hang_up: bool,
        session: &mut ServerSession,
        io: &mut Io<'_, '_, D>,
    ) -> bool;

    /// `Action::ReceivePending`.
    fn receive_pending(
        &mut self,
        certain: bool,
        session: &mut ServerSession,
        io: &mut Io<'_, '_, D>,
    ) -> ControlFlow<Pause>;

    /// `Action::Send`.
    fn send(
        &mut self,
        transmit: Transmit,
        then: Then,
        session: &mut ServerSession,
        io: &mut Io<'_, '_, D>,
    ) -> ControlFlow<Pause>;

    /// `Action::Finish`.
    fn finish(&mut self, session: &mut ServerSession, io: &mut Io<'_, '_, D>);

    /// The address that the client has connected to.
    fn local_address(&mut self, addresses: &LocalAddresses, driver: &D) -> Option<SocketAddr>;

    /// The range of a `Pause` is in the page cache.
    fn prefetched(&mut self);

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
