//! The client's end of one HTTP/1 connection, as a pure state machine: bytes in, replies out.
//!
//! It mirrors [`crate::ServerSession`] and is as strict (RFC 9112): an answer that two readers could
//! end at different places is a fault. One request is out at a time. It keeps no byte of an answer
//! that came whole; what it does with content is its observer's business.

use crate::http1::ChunkedDecoder;
use crate::http1::reply::{ReplyFraming, ReplyHead};
use crate::{Limits, Method};

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status, 200 to 599 (interim answers, 1xx, are passed over; 101 is a fault).
    pub status: u16,
    /// Bytes of content, decoded from chunks.
    pub content_bytes: u64,
    /// Whether the connection may carry another request (RFC 9112 section 9.3); not with bytes
    /// behind the answer, whose meaning is unknown.
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

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No request is out.
    #[default]
    Idle,
    /// A request is out; of its answer nothing is kept.
    Waiting,
    /// Part of the head has come, and is kept.
    Head,
    /// Content of which `left` bytes are to come.
    Length,
    /// Content in chunks.
    Chunked,
    /// Content that ends with the connection.
    UntilClose,
    /// There was a fault, or the connection is closed.
    Over,
}

/// What can be expected of a reply, by the request's method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ExpectedReply {
    #[default]
    Content,
    /// HEAD: no content.
    Head,
    /// CONNECT: whatever it is, it is not an answer.
    Tunnel,
}

/// What only some answers need; kept for the next one that does.
#[derive(Debug, Default)]
struct Partial {
    /// A head that came in pieces.
    bytes: Vec<u8>,
    head: ReplyHead,
    chunks: ChunkedDecoder,
}

impl Partial {
    /// A head that has grown beyond this is not kept for the next one.
    const KEPT_BYTES_MAX: usize = 2 << 10;

    fn begin_head(&mut self, bytes: &[u8], head: ReplyHead) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = head;
    }

    /// Takes back the memory of a head, unless the next one has begun in another.
    fn give_back(&mut self, mut bytes: Vec<u8>) {
        if self.bytes.capacity() == 0 && bytes.capacity() <= Self::KEPT_BYTES_MAX {
            bytes.clear();
            self.bytes = bytes;
        }
    }
}

/// The client's end of one connection.
#[derive(Debug, Default)]
pub struct ClientSession {
    content_bytes: u64,
    left: u64,
    partial: Option<Box<Partial>>,
    status: u16,
    interim_count: u16,
    state: State,
    expected: ExpectedReply,
    has_begun: bool,
    persists: bool,
}

impl ClientSession {
    /// A fresh connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request with this method is on its way: the next answer is to it. Only when none is out;
    /// after a fault, nothing changes.
    #[inline]
    pub fn requested(&mut self, method: Method) {
        debug_assert!(matches!(self.state, State::Idle | State::Over));
        if self.state != State::Idle {
            return;
        }
        self.expected = match method {
            Method::Head => ExpectedReply::Head,
            Method::Connect => ExpectedReply::Tunnel,
            _ => ExpectedReply::Content,
        };
        self.state = State::Waiting;
        self.has_begun = false;
        self.interim_count = 0;
        self.content_bytes = 0;
    }

    /// Bytes came.
    #[inline]
    pub fn received(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        match self.state {
            State::Waiting => self.fresh_head(bytes, limits, observer),
            State::Head => self.more_head(bytes, limits, observer),
            State::Length | State::Chunked | State::UntilClose => {
                self.content(bytes, limits, observer)
            }
            State::Idle if bytes.is_empty() => Received::More,
            State::Idle | State::Over => self.fault(ReplyFault::Unsolicited),
        }
    }

    /// So many bytes of content were thrown away unread, by the kernel, say. Only while
    /// `content_left` knows that there are any, or in content that ends with the connection.
    pub fn skipped(&mut self, bytes: u64) -> Received {
        match self.state {
            State::Length => {
                let taken = bytes.min(self.left);
                self.content_bytes += taken;
                self.left -= taken;
                match self.left {
                    0 => self.reply(bytes - taken),
                    _ => Received::More,
                }
            }
            State::UntilClose => {
                self.content_bytes += bytes;
                Received::More
            }
            _ if bytes == 0 => Received::More,
            State::Idle | State::Over => self.fault(ReplyFault::Unsolicited),
            _ => self.malformed("bytes were thrown away that are not content"),
        }
    }

    /// The peer has closed its side: the end of an answer that is delimited by it, or a fault.
    pub fn received_eof(&mut self) -> Received {
        match self.state {
            State::UntilClose => {
                let reply = self.reply(0);
                self.state = State::Over;
                reply
            }
            State::Length | State::Chunked => self.fault(ReplyFault::CutContent {
                content_bytes: self.content_bytes,
            }),
            State::Waiting | State::Head if self.has_begun => self.fault(ReplyFault::CutHead),
            _ => self.fault(ReplyFault::ClosedEarly),
        }
    }

    /// The peer's bytes have ended, and anybody could have made them end (TLS without `close_notify`): a
    /// fault, also where the end would have been that of an answer.
    pub fn received_cut(&mut self) -> Received {
        match self.state {
            State::UntilClose => self.fault(ReplyFault::CutContent {
                content_bytes: self.content_bytes,
            }),
            _ => self.received_eof(),
        }
    }

    /// Bytes of content that are known to come, at least one; `None` while none are, or their
    /// number is not known.
    #[inline]
    #[must_use]
    pub fn content_left(&self) -> Option<u64> {
        (self.state == State::Length).then_some(self.left)
    }

    /// A head of which nothing has come yet: read where it lies, kept only if it is cut.
    #[inline]
    fn fresh_head(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        self.has_begun |= !bytes.is_empty();
        let mut rest = bytes;
        loop {
            let mut head = ReplyHead::default();
            let len = match head.read(rest, limits) {
                Ok(Some(len)) => len,
                Ok(None) => return self.keep_head(rest, head),
                Err(text) => return self.malformed(text),
            };
            let (text, behind) = rest.split_at(len);
            rest = behind;
            if head.status >= 200 {
                return self.begin_content(head, text, rest, limits, observer);
            }
            if let Err(text) = self.interim(head.status, limits) {
                return self.malformed(text);
            }
        }
    }

    #[cold]
    fn keep_head(&mut self, rest: &[u8], head: ReplyHead) -> Received {
        if rest.is_empty() {
            self.state = State::Waiting;
            return Received::More;
        }
        self.partial().begin_head(rest, head);
        self.state = State::Head;
        Received::More
    }

    #[cold]
    fn more_head(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        let partial = self.partial();
        let kept = partial.bytes.len();
        // Never more than the largest head: what lies behind it is read where it is.
        let taken = bytes.len().min(limits.head_bytes_max.saturating_sub(kept));
        partial.bytes.extend_from_slice(&bytes[..taken]);
        let len = match partial.head.read_on(&partial.bytes, kept, limits) {
            Ok(Some(len)) => len,
            Ok(None) => return Received::More,
            Err(text) => return self.malformed(text),
        };
        let head = partial.head;
        let text = std::mem::take(&mut partial.bytes);
        // The end of the head is new: it was not found in what was kept.
        let behind = &bytes[len - kept..];
        let received = if head.status >= 200 {
            self.begin_content(head, &text[..len], behind, limits, observer)
        } else if let Err(text) = self.interim(head.status, limits) {
            self.malformed(text)
        } else {
            self.state = State::Waiting;
            self.fresh_head(behind, limits, observer)
        };
        if let Some(partial) = &mut self.partial {
            partial.give_back(text);
        }
        received
    }

    /// Passes over an interim answer (RFC 9110 section 15.2).
    #[cold]
    fn interim(&mut self, status: u16, limits: &Limits) -> Result<(), &'static str> {
        self.interim_count += 1;
        if status == 101 {
            return Err("a change of protocol without a request");
        }
        if self.interim_count > limits.interim_answers_max {
            return Err("more interim responses than allowed");
        }
        Ok(())
    }

    #[inline]
    fn begin_content(
        &mut self,
        head: ReplyHead,
        text: &[u8],
        behind: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        self.status = head.status;
        self.persists = head.persists();
        if self.expected == ExpectedReply::Tunnel {
            return self.malformed("CONNECT is not supported");
        }
        let framing = match head.framing(self.expected == ExpectedReply::Head) {
            Ok(framing) => framing,
            Err(text) => return self.malformed(text),
        };
        observer.head(text);
        match framing {
            ReplyFraming::Empty => return self.reply(behind.len() as u64),
            ReplyFraming::Length(length) => {
                self.left = length;
                self.state = State::Length;
            }
            ReplyFraming::Chunked => {
                self.partial().chunks = ChunkedDecoder::default();
                self.state = State::Chunked;
            }
            ReplyFraming::UntilClose => {
                self.persists = false;
                self.state = State::UntilClose;
            }
        }
        self.content(behind, limits, observer)
    }

    /// Takes content from `bytes`, and the end of the answer.
    #[inline]
    fn content(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        if bytes.is_empty() {
            return Received::More;
        }
        match self.state {
            State::Chunked => self.chunks(bytes, limits, observer),
            State::Length => {
                let taken =
                    usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
                observer.content(&bytes[..taken]);
                self.skipped(bytes.len() as u64)
            }
            _ => {
                observer.content(bytes);
                self.skipped(bytes.len() as u64)
            }
        }
    }

    fn chunks(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        observer: &mut impl ReplyObserver,
    ) -> Received {
        let mut content_bytes = 0;
        let chunks = &mut self.partial().chunks;
        let decoded = chunks.decode(bytes, limits, |piece| {
            content_bytes += piece.len() as u64;
            observer.content(piece);
        });
        let is_done = chunks.is_done();
        self.content_bytes += content_bytes;
        match decoded {
            Err(fault) => self.malformed(fault.text),
            Ok(used) if is_done => self.reply((bytes.len() - used) as u64),
            Ok(_) => Received::More,
        }
    }

    /// The answer is complete.
    #[inline]
    fn reply(&mut self, excess_bytes: u64) -> Received {
        self.state = State::Idle;
        self.has_begun = false;
        Received::Reply(Reply {
            status: self.status,
            content_bytes: self.content_bytes,
            keep_alive: self.persists && excess_bytes == 0,
            excess_bytes,
        })
    }

    fn partial(&mut self) -> &mut Partial {
        self.partial.get_or_insert_default()
    }

    #[cold]
    fn malformed(&mut self, text: &'static str) -> Received {
        self.fault(ReplyFault::Malformed(text))
    }

    #[cold]
    fn fault(&mut self, fault: ReplyFault) -> Received {
        self.state = State::Over;
        self.partial = None;
        Received::Fault(fault)
    }
}
