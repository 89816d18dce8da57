//! The client's end of one HTTP/1 connection, as a pure state machine: bytes in, replies out.
//!
//! It mirrors [`crate::ServerSession`] and is as strict (RFC 9112): an answer that two readers could
//! end at different places is a fault. One request is out at a time. It keeps no byte of an answer
//! that came whole; what it does with content is its observer's business.

use crate::{Limits, Method};

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status, 200 to 599 (interim answers, 1xx, are passed over; 101 is a fault).
    pub status: u16,
    /// Bytes of content, decoded from chunks.
    pub content_bytes: u64,
    /// Whether the connection may carry another request (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// Bytes that came behind the answer without having been asked for.
    pub excess_bytes: u64,
}

/// Why there will be no complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// Closed before the first byte of an answer.
    ClosedEarly,
    /// Closed within the head.
    CutHead,
    /// Closed before the announced end of the content.
    CutContent {
        /// Bytes of content that had come.
        content_bytes: u64,
    },
    /// Not the HTTP that a client may accept; what is wrong.
    Malformed(&'static str),
    /// Bytes while no request was out.
    Unsolicited,
}

/// What some received bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// The answer goes on.
    More,
    /// The answer is complete.
    Reply(Reply),
    /// There will be none; the connection is of no further use.
    Fault(ReplyFault),
}

/// Who looks at an answer while it passes. `()` looks at nothing, and costs nothing.
pub trait ReplyObserver {
    /// The head of the final answer, from the status line to the empty line.
    fn head(&mut self, _head: &[u8]) {}
    /// A piece of content, decoded.
    fn content(&mut self, _piece: &[u8]) {}
}

impl ReplyObserver for () {}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub struct ClientSession {}

impl ClientSession {
    /// A fresh connection.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }

    /// A request with this method is on its way: the next answer is to it.
    pub fn requested(&mut self, _method: Method) {}

    /// Bytes came.
    pub fn received(
        &mut self,
        _bytes: &[u8],
        _limits: &Limits,
        _observer: &mut impl ReplyObserver,
    ) -> Received {
        Received::More
    }

    /// The peer has closed its side: the end of an answer that is delimited by it, or a fault.
    pub fn received_eof(&mut self) -> Received {
        Received::Fault(ReplyFault::ClosedEarly)
    }

    /// Whether the first byte of the answer has come.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        false
    }
}
