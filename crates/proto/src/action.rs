//! The orders of a session: what its owner has to do next.

use std::sync::Arc;

use loadline_base::{Buffer, OpenFile, Transmit};

use crate::{Computation, Exchange, Piece, StreamId};

/// What the owner of a session has to do next.
#[derive(Debug)]
#[must_use]
pub enum Action {
    /// The handler's quick step, on the owner's thread; give back with `ran`.
    Run(Box<Exchange>),
    /// The handler's blocking step, where blocking is allowed; give back with `completed`.
    Block(Box<Exchange>),
    /// Begin an app's task with this request (`Handler::start`). It speaks through its port: tell
    /// what it says by `answered`, `consumed` and `produced`.
    Start(Box<Exchange>),
    /// Content of the request for the task: no more than the window before `consumed` reopens it.
    Offer(StreamId, Piece),
    /// Room for so many more bytes of the task's answer; what it makes of that comes by `produced`.
    /// A task begins with room for a window.
    Pull(StreamId, usize),
    /// The client is gone, or time is up: the task is to be dropped, and nothing of it is to be
    /// reported any more.
    Cancel(StreamId),
    /// Deliver this; give back with `sent`. One at a time.
    Send {
        /// What is to be delivered.
        transmit: Transmit,
        /// What follows, unless something else happens before.
        then: Then,
    },
    /// Read part of a file into memory, without waiting for the disk; give back with `filled` or
    /// `not_cached`. For content that cannot go from the
    /// file to the socket because a layer such as TLS stands between them. One at a time.
    Fill(Box<Fill>),
    /// Work that takes a processor for longer than a loop may be held up: a step of a handshake, or
    /// requests that a worker parses and carries out; give back with `computed`. One at a time.
    Compute(Box<dyn Computation>),
    /// Receive what the socket holds already, without waiting; then `received`, `received_eof`, or
    /// `nothing_pending`. It comes before the last close and before a drain closes an idle
    /// connection: input that nobody has read would turn the close into a reset (RFC 9112 section
    /// 9.6), and a request that has arrived was accepted.
    ReceivePending {
        /// The socket itself is to be asked. Otherwise what is known of it is enough.
        certain: bool,
    },
    /// Half-close: no more output will come. (`shutdown(SHUT_WR)`.)
    Finish,
    /// Nothing more until something happens.
    Wait {
        /// Whether bytes may be received now.
        read: bool,
        /// Whether the peer's hang-up is to be reported, though nothing is received or sent.
        hang_up: bool,
    },
    /// Close the connection; then nothing follows but `ended`.
    Close,
}

/// What follows when the output on its way has left, as far as is known when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Other orders.
    More,
    /// Nothing before something else happens: `sent` may be late by some time.
    Rest,
    /// `Close`.
    Close,
}

/// Part of a file that is to be read into memory.
#[derive(Debug)]
pub struct Fill {
    /// The file.
    pub file: Arc<OpenFile>,
    /// Of the first byte.
    pub offset: u64,
    /// How many bytes are wanted.
    pub len: usize,
    /// To be filled with them; with fewer if the file ends before.
    pub buffer: Buffer,
    /// They were read into the page cache just now: what is not there any more may be waited for.
    pub is_cached: bool,
}
