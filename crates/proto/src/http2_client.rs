//! The client's end of one HTTP/2 connection (RFC 9113), as a pure state machine: bytes in, events and
//! bytes out.
//!
//! What it is not: it knows no socket and no time, and keeps no content. The caller numbers requests by
//! slots, of which there are as many as requests may be out at one time.
//!
//! ```text
//!   request ──► output ──► socket
//!   events  ◄── receive ◄── socket     Reply · Failed (one stream) · Settings · GoingAway · Fault (all)
//! ```
//!
//! Requests are prepared once as field blocks (`requests`), so that one costs a frame's head and a copy
//! of some bytes. Windows are as large as they can be: content is thrown away, and to make room for it
//! costs a frame for each GiB. Once the connection is in use, a request allocates nothing.

mod bounds;
mod frames;
mod input;
mod output;
mod requests;
mod response;
mod streams;

use crate::Limits;
use crate::client_session::Reply;
use crate::hpack::Decoder;
use crate::http2::frame::ErrorCode;

use bounds::{STREAM_ID_MAX, WINDOW_BYTES};
use input::{FrameInput, PartialBlock};
use output::ClientOutput;
use streams::ClientStreams;

pub use requests::{Http2Fields, RequestBlocks};

/// Streams that a server takes before it has said how many: RFC 9113 section 6.5.2 asks for no fewer.
pub const STREAMS_ASSUMED: u32 = 100;

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A response is complete; its slot is free.
    Reply {
        /// Of the request.
        slot: u32,
        /// The response.
        reply: Reply,
    },
    /// A request will have no complete response; its slot is free, and the others go on.
    Failed {
        /// Of the request.
        slot: u32,
        /// Why.
        fault: StreamFault,
    },
    /// The server's settings have come: there may be more room for requests, or less.
    Settings,
    /// The server takes no further request. Those that are out may still be answered.
    GoingAway,
    /// The server has violated the protocol: the connection is of no further use. The GOAWAY
    /// that says so is in the output.
    Fault(&'static str),
}

/// Why a request will have no complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The server has reset the stream; with which code (section 7).
    Reset(u32),
    /// The server goes away and has not processed the request.
    Unprocessed,
    /// The response has ended before its announced length.
    Short,
    /// It is longer than announced.
    Long,
    /// It is not HTTP; what is wrong.
    Malformed(&'static str),
}

/// Who looks at responses while they pass. `()` looks at nothing.
pub trait StreamObserver {
    /// The first bytes of a response have come.
    fn begun(&mut self, _slot: u32) {}
    /// A field of a response, of an interim one before it, or of its trailers, with the status of that
    /// response; 0: it is not known yet.
    fn field(&mut self, _slot: u32, _status: u16, _name: &[u8], _value: &[u8]) {}
    /// A piece of content.
    fn content(&mut self, _slot: u32, _piece: &[u8]) {}
}

impl StreamObserver for () {}

/// Fields of one response, decoded: 1 MiB, eight times what servers allow, so that a server that names a
/// large entry of the table a thousand times does not stop a load.
const LIST_BYTES_MAX: usize = 1 << 20;

/// The client's end of one connection.
#[derive(Debug)]
pub struct Http2Client {
    input: FrameInput,
    output: ClientOutput,
    streams: ClientStreams,
    decoder: Decoder,
    /// A field of a block that is being decoded.
    field: Vec<u8>,
    block: PartialBlock,
    /// Streams that the server takes at one time.
    streams_max: u32,
    /// What the server may still send, and what of it has not been given back.
    receive_window: u32,
    taken_bytes: u32,
    /// The last stream that the server processes, once it goes away.
    last_id: Option<u32>,
    /// The slot of the DATA frame that is coming in; `None`: it is of no stream that is open.
    receiving: Option<u32>,
    is_established: bool,
    /// Frames of a stream that the client has ended may still be on their way.
    has_cancelled: bool,
    is_over: bool,
}

impl Http2Client {
    /// A fresh connection for so many requests at one time, whose output begins with the preface.
    /// `assumed` is how many the server takes until it says so.
    #[must_use]
    pub fn new(slots: u32, assumed: u32) -> Self {
        Self {
            input: FrameInput::default(),
            output: ClientOutput::new(),
            streams: ClientStreams::new(slots),
            decoder: Decoder::within(LIST_BYTES_MAX),
            field: Vec::new(),
            block: PartialBlock::default(),
            streams_max: assumed,
            receive_window: WINDOW_BYTES,
            taken_bytes: 0,
            last_id: None,
            receiving: None,
            is_established: false,
            has_cancelled: false,
            is_over: false,
        }
    }

    /// Sends a request with this content. Its slot is free, and [`has_room`](Self::has_room) is true.
    #[inline]
    pub fn request(&mut self, slot: u32, blocks: &RequestBlocks, body: &[u8]) {
        debug_assert!(self.has_room() && self.streams.id(slot) == 0);
        let window = self.output.stream_window();
        let id = self.streams.open(slot, blocks.is_head, body.len(), window);
        self.output.request(id, blocks, !body.is_empty());
        if !body.is_empty() {
            self.output.content(slot, id, self.streams.get(slot), body);
        }
    }

    /// Gives up a request, if it is out.
    pub fn cancel(&mut self, slot: u32) {
        if self.streams.id(slot) != 0 {
            self.end_stream(slot, ErrorCode::Cancel);
        }
    }

    /// The client sends no further request.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.output.go_away(ErrorCode::NoError);
        }
    }

    /// Bytes came: takes from their front up to the next event; `None`: more have to come.
    #[inline]
    pub fn receive(
        &mut self,
        bytes: &mut &[u8],
        limits: &Limits,
        observer: &mut impl StreamObserver,
    ) -> Option<ClientEvent> {
        loop {
            if let Some(last_id) = self.last_id
                && let Some(slot) = self.streams.above(last_id)
            {
                self.close(slot);
                let fault = StreamFault::Unprocessed;
                return Some(ClientEvent::Failed { slot, fault });
            }
            if self.is_over {
                *bytes = &[];
                return None;
            }
            if self.output.has_too_many_answers() {
                return Some(self.fault(ErrorCode::EnhanceYourCalm.into()));
            }
            let next = match self.input.next(bytes) {
                Ok(None) => return None,
                Ok(Some(piece)) => self.piece(piece, limits, observer),
                Err(code) => Err(code.into()),
            };
            match next {
                Ok(None) => {}
                Ok(Some(event)) => return Some(event),
                Err(fault) => return Some(self.fault(fault)),
            }
        }
    }

    /// Goes on with content of requests that waited for room; `body_of` has it by slot.
    pub fn go_on<'b>(&mut self, body_of: impl Fn(u32) -> &'b [u8]) {
        self.output.go_on(&mut self.streams, body_of);
    }

    /// So many bytes of the output have left.
    #[inline]
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// What is to be sent.
    #[inline]
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.unsent()
    }

    /// Bytes that have left so far, and all that were to be sent so far: where the next begins.
    #[inline]
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.output.sent_bytes(), self.output.position())
    }

    /// Whether content of requests waits and could go on.
    #[inline]
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.output.may_go_on()
    }

    /// Whether another request may be sent now.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.streams.open_count() < self.streams_max && !self.is_spent()
    }

    /// Whether no further request will ever be sent.
    #[inline]
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.is_over || self.last_id.is_some() || self.streams.next_id() > STREAM_ID_MAX
    }

    /// Whether the server's settings have come: it speaks HTTP/2.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Requests that the server takes at one time, or is assumed to.
    #[must_use]
    pub fn streams_max(&self) -> u32 {
        self.streams_max
    }

    /// Requests that are out.
    #[inline]
    #[must_use]
    pub fn open_count(&self) -> u32 {
        self.streams.open_count()
    }

    /// Whether something of the response has come to a request that is out.
    #[must_use]
    pub fn has_begun(&mut self, slot: u32) -> bool {
        self.streams.id(slot) != 0 && self.streams.get(slot).has_begun
    }
}
