//! What a connection needs only while something is in progress: bytes ahead of their turn, the
//! request being read, output that waits to be sent.

use loadline_base::{Buffer, Millis, Segment};

use crate::http1::{ChunkedDecoder, Framing, HeadScanner};
use crate::latency::Timing;
use crate::stream::Stream;
use crate::{
    ClientKey, Exchange, Fault, Fields, HangUp, Limits, Method, RECEIVE_BYTES, Request, Status,
    TaskOptions,
};

/// Room for content that was announced and has not come yet: what one read brings.
const COLLECT_BYTES_AT_FIRST: usize = 64 << 10;

/// How much of the content is still to come.
#[derive(Debug, Default)]
pub(crate) enum BodyReader {
    #[default]
    Done,
    Length {
        left: u64,
    },
    Chunked(ChunkedDecoder),
}

impl BodyReader {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Empty => Self::Done,
            Framing::Length(left) => Self::Length { left },
            Framing::Chunked => Self::Chunked(ChunkedDecoder::of_request()),
        }
    }

    /// Reads content from `input` on, giving each piece to `content`; returns how many bytes were
    /// used and whether all of it has come.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        limits: &Limits,
        mut content: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), Fault> {
        match self {
            Self::Done => Ok((0, true)),
            Self::Length { left } => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let used = most.min(input.len());
                content(&input[..used]);
                *left -= used as u64;
                Ok((used, *left == 0))
            }
            Self::Chunked(decoder) => {
                let used = decoder.decode(input, limits, content)?;
                Ok((used, decoder.is_done()))
            }
        }
    }

    /// All of the content has come: its trailers, if there are any.
    pub(crate) fn finish(&mut self) -> Option<Box<Fields>> {
        match std::mem::take(self) {
            Self::Chunked(mut decoder) => decoder.take_trailers(),
            Self::Done | Self::Length { .. } => None,
        }
    }

    /// Memory that it holds beside itself.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Chunked(decoder) => decoder.held_bytes(),
            Self::Done | Self::Length { .. } => 0,
        }
    }
}

/// Boxed and pooled: an idle connection has none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes received and not yet used, from `unread_start` on.
    pub(crate) unread: Buffer,
    pub(crate) unread_start: usize,
    pub(crate) scanner: HeadScanner,
    /// The request that waits for the handler.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// Whose request it is, as a trusted proxy says.
    pub(crate) client: ClientKey,
    /// Of the request whose blocking step is in progress.
    pub(crate) hang_up: Option<HangUp>,
    pub(crate) body: BodyReader,
    pub(crate) persist: bool,
    pub(crate) expects_continue: bool,
    /// Since when a chunk-size line or the trailer section is incomplete.
    pub(crate) line_since: Option<Millis>,
    /// What came of content that is thrown away, with its framing.
    pub(crate) discarded_bytes: u64,
    /// Chunked content that came with the head, as far as it was looked at.
    pub(crate) content_ahead_bytes: u64,
    pub(crate) collected: Vec<u8>,
    pub(crate) collect_bytes_max: u64,
    /// Output that waits: the segments, then this.
    pub(crate) output: Buffer,
    pub(crate) segments: Vec<Segment>,
    /// Length of what is being sent.
    pub(crate) out_bytes: u64,
    /// How much of it has left, as far as that was reported.
    pub(crate) out_sent: u64,
    /// Memory of what is being sent.
    pub(crate) sending_bytes: usize,
    /// Memory of the exchange that a handler's blocking step or an app's task has.
    pub(crate) exchange_bytes: usize,
    /// An answer too large to be copied is logged when it is out.
    pub(crate) unlogged: Option<Box<Exchange>>,
    /// Without a log, that is when its latency ends.
    pub(crate) unmeasured: Option<Timing>,
    /// Length of the content of the last answer.
    pub(crate) content_len: u64,
    /// What an app's task asked for.
    pub(crate) task: TaskOptions,
    /// What it has.
    pub(crate) stream: Stream,
}

impl Progress {
    pub(crate) fn has_unread(&self) -> bool {
        self.unread_start < self.unread.len()
    }

    pub(crate) fn unread_len(&self) -> u64 {
        (self.unread.len() - self.unread_start) as u64
    }

    /// Whether the answer in the making is the last of a drain: no other request has come behind
    /// it, with its head at least. What has come was accepted, and only the last answer says close.
    #[inline]
    pub(crate) fn is_last(&self, draining: bool) -> bool {
        draining && !self.has_head_ahead()
    }

    #[cold]
    fn has_head_ahead(&self) -> bool {
        let unread = &self.unread[self.unread_start..];
        matches!(self.body, BodyReader::Done) && memchr::memmem::find(unread, b"\r\n\r\n").is_some()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || !self.segments.is_empty()
    }

    /// Whether the output has to be sent before more may join it.
    pub(crate) fn is_full(&self, output_bytes_max: usize) -> bool {
        !self.segments.is_empty() || self.output.len() >= output_bytes_max
    }

    /// Copies the first line of what was kept into a request that was refused: for the log, and since the
    /// response to HEAD has no content, also if it is an error.
    pub(crate) fn copy_first_line(&self, request: &mut Request) {
        let unread = &self.unread[self.unread_start..];
        let end = memchr::memchr2(b'\r', b'\n', unread).unwrap_or(unread.len());
        request.head.extend_from_slice(&unread[..end.min(1024)]);
        if unread.starts_with(b"HEAD ") {
            request.method = Method::Head;
        }
    }

    /// Reads chunked content that came with its head, and keeps it: what is malformed is refused
    /// before anybody answers. `came`: bytes of the last receive, which are the last ones kept.
    #[cold]
    pub(crate) fn look_ahead(&mut self, came: usize, limits: &Limits) -> Result<(), Fault> {
        let BodyReader::Chunked(decoder) = &self.body else {
            return Ok(());
        };
        let unread = &self.unread[self.unread_start..];
        let with_head = &unread[..came_with_head(came, unread.len())];
        let mut content_bytes = 0;
        decoder.clone().decode(with_head, limits, |piece| {
            content_bytes += piece.len() as u64;
        })?;
        self.content_ahead_bytes = content_bytes;
        Ok(())
    }

    /// The least that the content of a request comes to, before any of it is used up.
    pub(crate) fn content_bytes_min(&self) -> u64 {
        match &self.body {
            BodyReader::Done => 0,
            BodyReader::Length { left } => *left,
            BodyReader::Chunked(_) => self.content_ahead_bytes,
        }
    }

    /// Follows whether a line of the framing is incomplete, after a read that brought this much content.
    pub(crate) fn note_line(&mut self, content_bytes: u64, now: Millis) {
        let is_in_line = matches!(&self.body, BodyReader::Chunked(decoder) if decoder.is_in_line());
        match self.line_since {
            _ if !is_in_line => self.line_since = None,
            Some(_) if content_bytes == 0 => {}
            _ => self.line_since = Some(now), // this line began behind that content
        }
    }

    pub(crate) fn begin_collecting(&mut self, announced: u64, bytes_max: u64) {
        self.collect_bytes_max = bytes_max;
        // An announcement alone gets no more than a buffer's worth of memory.
        let expected = usize::try_from(announced).unwrap_or_default();
        self.collected = Vec::with_capacity(expected.min(COLLECT_BYTES_AT_FIRST));
    }
}

/// Content that is gathered even while memory is short: what a login sends, or a small form.
pub(crate) const SMALL_CONTENT_BYTES: u64 = 16 << 10;

pub(crate) fn no_room_for_connection() -> Fault {
    Fault::limit(
        Status::SERVICE_UNAVAILABLE,
        "no room for another connection",
    )
}

pub(crate) fn no_memory_for_content() -> Fault {
    Fault::limit(Status::SERVICE_UNAVAILABLE, "no memory for so much content")
}

pub(crate) fn too_much_content() -> Fault {
    Fault::limit(Status::CONTENT_TOO_LARGE, "more content than allowed")
}

/// How many of the `behind` bytes behind a head came in the same receive, as if everybody received
/// `RECEIVE_BYTES` at once. `came`: bytes of the last receive; a head that ended before it has been
/// waiting for its turn, and what is behind it as well.
fn came_with_head(came: usize, behind: usize) -> usize {
    let most = match came.checked_sub(behind) {
        Some(end @ 1..) => end.next_multiple_of(RECEIVE_BYTES) - end,
        _ => RECEIVE_BYTES,
    };
    most.min(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One write of a head of `head` bytes and of content, received in pieces of `piece` bytes: how
    /// much of the content is looked at.
    fn looked_at(head: usize, content: usize, piece: usize) -> usize {
        let all = head + content;
        let end = head.next_multiple_of(piece).min(all); // of the receive that ends the head
        let begin = (end - 1) / piece * piece;
        came_with_head(end - begin, end - head)
    }

    #[test]
    fn what_came_with_a_head_does_not_depend_on_who_receives() {
        for head in [
            1, 100, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 16_383, 16_384, 16_385, 30_000,
        ] {
            for content in [0, 1, 95, 4095, 4096, 4097, 20_000] {
                let by_ring = looked_at(head, content, RECEIVE_BYTES);
                assert_eq!(
                    by_ring,
                    content.min(head.next_multiple_of(RECEIVE_BYTES) - head)
                );
                for piece in [16 << 10, 64 << 10] {
                    let other = looked_at(head, content, piece);
                    assert_eq!(other, by_ring, "{head} + {content} in pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn behind_a_request_that_waited_its_turn() {
        assert_eq!(came_with_head(0, 100), 100);
        assert_eq!(came_with_head(0, 10_000), RECEIVE_BYTES);
        assert_eq!(came_with_head(50, 10_000), RECEIVE_BYTES);
    }
}
