//! Output of a connection: frames in the order in which they are sent.

use loadline_base::{Buffer, Segment, Transmit};

use crate::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, Kind, Setting, flags};
use crate::{Context, StreamId};

/// Shared content from this length on is sent from where it is; less is copied, and so leaves in one piece
/// with the heads of its frames.
const COPY_BYTES_MAX: usize = 8 << 10;

/// Frames that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    segments: Vec<Segment>,
    /// Behind the segments.
    tail: Buffer,
    segment_bytes: u64,
    /// How long the tail was when it was last taken.
    batch_bytes: usize,
}

impl Output {
    pub(super) fn len(&self) -> u64 {
        self.segment_bytes + self.tail.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long the next tail becomes, if it is as the last one.
    pub(super) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// What small frames are appended to, until `take_back`.
    pub(super) fn lend(&mut self) -> Buffer {
        std::mem::take(&mut self.tail)
    }

    pub(super) fn take_back(&mut self, tail: Buffer) {
        self.tail = tail;
    }

    /// A frame whose payload is in memory.
    pub(super) fn frame(
        &mut self,
        kind: Kind,
        flags: u8,
        stream: StreamId,
        payload: &[u8],
        cx: &mut Context<'_>,
    ) {
        cx.pool
            .buffers
            .reserve(&mut self.tail, HEAD_BYTES + payload.len());
        self.head(kind, flags, stream, payload.len());
        self.tail.extend_from_slice(payload);
    }

    /// A piece of content as a frame. If it was copied, its memory is returned.
    pub(super) fn data(
        &mut self,
        flags: u8,
        stream: StreamId,
        piece: Segment,
        cx: &mut Context<'_>,
    ) -> Option<Buffer> {
        let len = piece.len() as usize; // of a frame
        match piece {
            Segment::Buffer(bytes) if len < COPY_BYTES_MAX => {
                self.frame(Kind::Data, flags, stream, &bytes, cx);
                return Some(bytes);
            }
            Segment::Shared { bytes, start, end } if len < COPY_BYTES_MAX => {
                self.frame(Kind::Data, flags, stream, &bytes[start..end], cx);
            }
            piece => {
                cx.pool.buffers.reserve(&mut self.tail, HEAD_BYTES);
                self.head(Kind::Data, flags, stream, len);
                self.push(piece, cx);
            }
        }
        None
    }

    /// What the connection's settings are.
    pub(super) fn settings(&mut self, settings: &[Setting], cx: &mut Context<'_>) {
        let len = settings.len() * Setting::BYTES;
        cx.pool.buffers.reserve(&mut self.tail, HEAD_BYTES + len);
        self.head(Kind::Settings, 0, StreamId(0), len);
        for setting in settings {
            setting.write(&mut self.tail);
        }
    }

    /// A stream ends at once.
    pub(super) fn reset(&mut self, stream: StreamId, code: ErrorCode, cx: &mut Context<'_>) {
        let code = (code as u32).to_be_bytes();
        self.frame(Kind::RstStream, 0, stream, &code, cx);
    }

    /// There is room for more content.
    pub(super) fn window_update(&mut self, stream: StreamId, more: u32, cx: &mut Context<'_>) {
        self.frame(Kind::WindowUpdate, 0, stream, &more.to_be_bytes(), cx);
    }

    /// No stream beyond the last is served.
    pub(super) fn go_away(&mut self, last: u32, code: ErrorCode, cx: &mut Context<'_>) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&(code as u32).to_be_bytes());
        self.frame(Kind::GoAway, 0, StreamId(0), &payload, cx);
    }

    /// A field block: a HEADERS frame, and as many of CONTINUATION as it needs.
    pub(super) fn headers(
        &mut self,
        is_end: bool,
        stream: StreamId,
        block: &[u8],
        cx: &mut Context<'_>,
    ) {
        let mut pieces = block
            .chunks(crate::http2::frame::PAYLOAD_BYTES_MAX)
            .peekable();
        let (mut kind, mut flag) = (Kind::Headers, if is_end { flags::END_STREAM } else { 0 });
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() {
                flags::END_HEADERS
            } else {
                0
            };
            self.frame(kind, flag | last, stream, piece, cx);
            (kind, flag) = (Kind::Continuation, 0);
        }
    }

    /// All of it, as one batch.
    pub(super) fn take(&mut self, cx: &mut Context<'_>) -> Transmit {
        if self.segments.capacity() == 0 {
            self.segments = cx.pool.take_segments();
        }
        self.batch_bytes = self.tail.len();
        self.close_tail();
        self.segment_bytes = 0;
        Transmit::new(std::mem::take(&mut self.segments))
    }

    /// Memory of its own.
    pub(super) fn memory_bytes(&self) -> usize {
        let segments = self.segments.iter().map(Segment::memory_bytes);
        self.tail.capacity() + segments.sum::<usize>()
    }

    /// Gives all memory back.
    pub(super) fn recycle(&mut self, cx: &mut Context<'_>) {
        let transmit = self.take(cx);
        cx.pool.give_segments(transmit.into_segments());
    }

    fn head(&mut self, kind: Kind, flags: u8, stream: StreamId, len: usize) {
        let head = FrameHead {
            len,
            kind,
            flags,
            stream: stream.0,
        };
        head.write(&mut self.tail);
    }

    fn push(&mut self, piece: Segment, cx: &mut Context<'_>) {
        if self.segments.capacity() == 0 {
            self.segments = cx.pool.take_segments();
        }
        self.close_tail();
        self.segment_bytes += piece.len();
        self.segments.push(piece);
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.segment_bytes += self.tail.len() as u64;
            self.segments
                .push(Segment::Buffer(std::mem::take(&mut self.tail)));
        }
    }
}
