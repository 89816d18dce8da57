//! What a client sends: requests, and what the protocol asks of it.

use std::collections::VecDeque;

use crate::hpack::{Encoder, TABLE_BYTES};
use crate::http2::frame::{
    ErrorCode, FrameHead, Kind, PAYLOAD_BYTES_MAX, PREFACE, Setting, WINDOW_BYTES as FIRST_WINDOW,
    WINDOW_BYTES_MAX, flags, number,
};

use super::bounds::{ANSWERS_MAX, OUT_BYTES_MAX, WINDOW_BYTES};
use super::requests::RequestBlocks;
use super::streams::{ClientStream, ClientStreams};

/// How the dynamic table of the requests stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableState {
    /// Empty: the next request fills it.
    Empty,
    /// Filled by a request.
    Filled,
    /// The server has no room for it.
    Unused,
}

/// Frames on their way, and what the server allows.
#[derive(Debug)]
pub(super) struct ClientOutput {
    bytes: Vec<u8>,
    /// Of them, those that have left.
    sent: usize,
    /// Those that have left before the first one.
    passed: u64,
    /// Where those end that the server has caused and that have not left, the oldest first.
    answers: VecDeque<u64>,
    table: TableState,
    /// The largest table that the server takes, and whether that has to be said.
    table_bytes: usize,
    is_resized: bool,
    /// Of new streams.
    stream_window: u32,
    /// Of the connection.
    window: i64,
    frame_bytes: usize,
    /// Slots with content that waits for room, and the numbers of their streams.
    waiting: VecDeque<(u32, u32)>,
}

impl ClientOutput {
    /// The preface, and the client's settings (RFC 9113 section 3.4).
    pub(super) fn new() -> Self {
        let mut bytes = PREFACE.to_vec();
        let settings = [
            (Setting::ENABLE_PUSH, 0),
            (Setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
        ];
        let head = FrameHead {
            len: settings.len() * Setting::BYTES,
            kind: Kind::Settings,
            flags: 0,
            stream: 0,
        };
        head.write(&mut bytes);
        for (id, value) in settings {
            Setting { id, value }.write(&mut bytes);
        }
        let mut output = Self {
            bytes,
            sent: 0,
            passed: 0,
            answers: VecDeque::new(),
            table: TableState::Empty,
            table_bytes: TABLE_BYTES,
            is_resized: false,
            stream_window: FIRST_WINDOW,
            window: i64::from(FIRST_WINDOW),
            frame_bytes: PAYLOAD_BYTES_MAX,
            waiting: VecDeque::new(),
        };
        output.window_update(0, WINDOW_BYTES - FIRST_WINDOW);
        output
    }

    /// What waits for the socket.
    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So many bytes of it have left.
    #[inline]
    pub(super) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.passed += self.sent as u64;
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > OUT_BYTES_MAX {
            self.passed += self.sent as u64;
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        let sent_bytes = self.sent_bytes();
        while self.answers.front().is_some_and(|end| *end <= sent_bytes) {
            self.answers.pop_front();
        }
    }

    /// Bytes that have left, of the whole connection.
    #[inline]
    pub(super) fn sent_bytes(&self) -> u64 {
        self.passed + self.sent as u64
    }

    /// Where the next byte will stand.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.passed + self.bytes.len() as u64
    }

    /// The window of a new stream.
    pub(super) fn stream_window(&self) -> u32 {
        self.stream_window
    }

    /// The head of a request.
    #[inline]
    pub(super) fn request(&mut self, id: u32, blocks: &RequestBlocks, has_body: bool) {
        let of_stream = if has_body { 0 } else { flags::END_STREAM };
        let block = match self.table {
            TableState::Filled if !self.is_resized => &blocks.later,
            TableState::Unused if !self.is_resized => &blocks.literal,
            _ => {
                let block = self.whole_block(blocks);
                return self.pieces(id, &block, of_stream);
            }
        };
        if block.len() > self.frame_bytes {
            return self.pieces(id, block, of_stream);
        }
        let head = FrameHead {
            len: block.len(),
            kind: Kind::Headers,
            flags: of_stream | flags::END_HEADERS,
            stream: id,
        };
        self.bytes.extend_from_slice(&head.bytes());
        self.bytes.extend_from_slice(block);
    }

    /// A block that may fill the table, or say another size of it.
    #[cold]
    fn whole_block(&mut self, blocks: &RequestBlocks) -> Vec<u8> {
        let mut block = Vec::new();
        if blocks.table_bytes > self.table_bytes {
            // What it has in it is of no use any more: nothing of it is named again.
            self.table = TableState::Unused;
        }
        if std::mem::take(&mut self.is_resized) {
            let mut encoder = Encoder::default();
            encoder.resize(self.table_bytes);
            encoder.begin(&mut block);
        }
        block.extend_from_slice(match self.table {
            TableState::Empty => &blocks.first,
            TableState::Filled => &blocks.later,
            TableState::Unused => &blocks.literal,
        });
        if self.table == TableState::Empty {
            self.table = TableState::Filled;
        }
        block
    }

    /// A block in frames as large as the server takes them (section 6.10).
    fn pieces(&mut self, id: u32, block: &[u8], of_stream: u8) {
        let count = block.len().div_ceil(self.frame_bytes);
        for (at, piece) in block.chunks(self.frame_bytes).enumerate() {
            let of_first = if at == 0 { of_stream } else { 0 };
            let of_last = if at + 1 == count {
                flags::END_HEADERS
            } else {
                0
            };
            let head = FrameHead {
                len: piece.len(),
                kind: if at == 0 {
                    Kind::Headers
                } else {
                    Kind::Continuation
                },
                flags: of_first | of_last,
                stream: id,
            };
            head.write(&mut self.bytes);
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Adds content of a request, as far as there is room for it; the rest waits.
    pub(super) fn content(&mut self, slot: u32, id: u32, stream: &mut ClientStream, body: &[u8]) {
        while stream.has_body() {
            let room = OUT_BYTES_MAX.saturating_sub(self.bytes.len() - self.sent);
            let window = self.window.min(stream.send_window).max(0);
            let most = usize::try_from(window).unwrap_or(usize::MAX);
            let most = most.min(room).min(self.frame_bytes);
            let rest = body
                .get(stream.body_sent..stream.body_len)
                .unwrap_or_default();
            let piece = &rest[..rest.len().min(most)];
            if piece.is_empty() {
                self.waiting.push_back((slot, id));
                return;
            }
            let is_last = piece.len() == rest.len();
            let head = FrameHead {
                len: piece.len(),
                kind: Kind::Data,
                flags: if is_last { flags::END_STREAM } else { 0 },
                stream: id,
            };
            head.write(&mut self.bytes);
            self.bytes.extend_from_slice(piece);
            stream.body_sent += piece.len();
            stream.send_window -= piece.len() as i64;
            self.window -= piece.len() as i64;
        }
    }

    /// Whether content waits, and the connection has room for some.
    #[inline]
    pub(super) fn may_go_on(&self) -> bool {
        !self.waiting.is_empty() && self.window > 0 && self.bytes.len() - self.sent < OUT_BYTES_MAX
    }

    /// Goes on with content that waited, one stream after the other.
    pub(super) fn go_on<'b>(
        &mut self,
        streams: &mut ClientStreams,
        body_of: impl Fn(u32) -> &'b [u8],
    ) {
        for _ in 0..self.waiting.len() {
            let Some((slot, id)) = self.waiting.pop_front() else {
                return;
            };
            if streams.id(slot) == id {
                self.content(slot, id, streams.get(slot), body_of(slot));
            }
        }
    }

    /// Takes the server's settings; returns by how much the windows of streams change.
    ///
    /// # Errors
    /// The connection error that one of them is.
    pub(super) fn settings(&mut self, payload: &[u8]) -> Result<i64, ErrorCode> {
        let before = i64::from(self.stream_window);
        for setting in Setting::parse_all(payload) {
            setting.check()?;
            let value = setting.value as usize;
            match setting.id {
                Setting::HEADER_TABLE_SIZE if value < self.table_bytes => {
                    (self.table_bytes, self.is_resized) = (value, true);
                }
                Setting::INITIAL_WINDOW_SIZE => self.stream_window = setting.value,
                Setting::MAX_FRAME_SIZE => self.frame_bytes = value,
                // A server must not say that it takes pushed responses (RFC 9113 section 6.5.2).
                Setting::ENABLE_PUSH if value != 0 => return Err(ErrorCode::Protocol),
                _ => {}
            }
        }
        self.answer(Kind::Settings, flags::ACK, &[]);
        Ok(i64::from(self.stream_window) - before)
    }

    /// The server takes more content, of the whole connection.
    ///
    /// # Errors
    /// More than a window can have, or nothing.
    pub(super) fn widened(&mut self, payload: &[u8]) -> Result<(), ErrorCode> {
        self.window += i64::from(increment(payload).ok_or(ErrorCode::Protocol)?);
        match self.window <= i64::from(WINDOW_BYTES_MAX) {
            true => Ok(()),
            false => Err(ErrorCode::FlowControl),
        }
    }

    /// An answer that the server asks for.
    pub(super) fn answer(&mut self, kind: Kind, of: u8, payload: &[u8]) {
        self.control(kind, of, 0, payload);
        self.count_answer();
    }

    /// The server has caused what was added last.
    pub(super) fn count_answer(&mut self) {
        self.answers.push_back(self.position());
    }

    /// Whether the server causes more than it takes.
    #[inline]
    pub(super) fn has_too_many_answers(&self) -> bool {
        self.answers.len() > ANSWERS_MAX
    }

    /// The client makes room for more content.
    pub(super) fn window_update(&mut self, id: u32, by: u32) {
        self.control(Kind::WindowUpdate, 0, id, &by.to_be_bytes());
    }

    /// The client ends a stream.
    pub(super) fn reset(&mut self, id: u32, code: ErrorCode) {
        self.control(Kind::RstStream, 0, id, &(code as u32).to_be_bytes());
    }

    /// The client ends the connection. It has accepted no stream of the server's.
    pub(super) fn go_away(&mut self, code: ErrorCode) {
        let mut payload = [0; 8];
        payload[4..].copy_from_slice(&(code as u32).to_be_bytes());
        self.control(Kind::GoAway, 0, 0, &payload);
    }

    fn control(&mut self, kind: Kind, of: u8, stream: u32, payload: &[u8]) {
        let head = FrameHead {
            len: payload.len(),
            kind,
            flags: of,
            stream,
        };
        head.write(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
    }
}

/// By how much a window grows; `None`: by nothing, which is an error (section 6.9).
pub(super) fn increment(payload: &[u8]) -> Option<u32> {
    Some(number(payload) & WINDOW_BYTES_MAX).filter(|by| *by > 0)
}
