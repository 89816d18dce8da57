//! Slots of sockets: what is in flight on each, and when a slot may be used again.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use loadline_base::{OpenFile, Slab, Token, Transmit};

/// Where an operation stands that goes on until it is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Operation {
    /// Nothing armed.
    #[default]
    Idle,
    /// With the kernel.
    Armed,
    /// It is being cancelled.
    Stopping,
}

/// Where sending stands.
#[derive(Debug, Default)]
pub(super) enum Sending {
    /// Nothing is out.
    #[default]
    Idle,
    /// Ordered to go without a word, by the entry with this number; the kernel reads it when it takes
    /// that entry.
    Quiet(Transmit, u32),
    /// An operation waits for room.
    Waiting(Transmit),
}

/// A socket of a ring, by the name that `adopt` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId(pub(super) Token);

/// A socket of the ring.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// The name of it in completions.
    pub(super) owner: Token,
    /// `None` once it is closed.
    pub(super) fd: Option<OwnedFd>,
    pub(super) sending: Sending,
    pub(super) receiving: Operation,
    /// Bytes are welcome.
    pub(super) wanted: bool,
    /// Bytes have come.
    pub(super) has_spoken: bool,
    /// The end, or an error, was reported: nothing is received any more.
    pub(super) ended: bool,
    /// Its owner has let go of it: completions are not reported any more.
    pub(super) closing: bool,
    /// A poll for the peer's hang-up is armed.
    pub(super) watching_hang_up: bool,
    /// It is to be: one that ends is armed again.
    pub(super) wants_hang_up: bool,
    /// A poll for room to write is armed.
    pub(super) awaiting_room: bool,
    /// A file that is being read ahead.
    pub(super) reading: Option<Arc<OpenFile>>,
    /// Operations whose last completion has not come: at most one that receives, one that sends, one
    /// that reads ahead, and two polls.
    pub(super) in_flight: u8,
}

/// Bytes of memory that each adopted socket takes here.
pub const SOCKET_BYTES: usize = Slab::<Socket>::SLOT_BYTES + size_of::<Token>();

impl Socket {
    pub(super) fn raw(&self) -> Option<RawFd> {
        self.fd.as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// The slots.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    slots: Slab<Socket>,
    /// The token of the socket in each slot, by index: completions carry only the index, since a
    /// slot has no new socket before the last completion of the old one.
    tokens: Vec<Token>,
}

impl Sockets {
    pub(super) fn insert(&mut self, fd: OwnedFd, owner: Token) -> SocketId {
        let token = self.slots.insert(Socket {
            owner,
            fd: Some(fd),
            ..Socket::default()
        });
        let index = token.index as usize;
        if index == self.tokens.len() {
            self.tokens.push(token);
        } else {
            self.tokens[index] = token;
        }
        SocketId(token)
    }

    /// The socket, unless its owner has let go of it.
    pub(super) fn open(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.slots.get_mut(id.0).filter(|socket| !socket.closing)
    }

    /// The socket in a slot, whether or not it is closing.
    pub(super) fn at(&mut self, index: u32) -> Option<(SocketId, &mut Socket)> {
        let token = *self.tokens.get(index as usize)?;
        Some((SocketId(token), self.slots.get_mut(token)?))
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.slots.get(id.0)
    }

    /// Forgets a socket that was closed, once nothing of it is in flight.
    pub(super) fn release(&mut self, index: u32) {
        if let Some((id, socket)) = self.at(index)
            && socket.closing
            && socket.in_flight == 0
        {
            self.slots.remove(id.0);
        }
    }

    /// Forgets a socket of which nothing is in flight.
    pub(super) fn forget(&mut self, id: SocketId) {
        self.slots.remove(id.0);
    }

    /// Slots, with or without a socket.
    pub(super) fn slots_len(&self) -> u32 {
        self.tokens.len() as u32
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
