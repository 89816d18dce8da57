//! What a connection needs only while something is in progress: bytes ahead of their turn, the
//! request being read, output that waits to be sent.

use loadline_base::{Buffer, Segment, Transmit};

use crate::http1::{ChunkedDecoder, Framing, HeadScan, HeadScanner, encode};
use crate::stream::Stream;
use crate::{Exchange, Fault, Limits, RECEIVE_BYTES, RequestBody, Status, TaskOptions, Turn};

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
    fn read(
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
}

/// Boxed and pooled: an idle connection has none.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes received that nobody has used yet, from `carry_start` on.
    carry: Buffer,
    carry_start: usize,
    scanner: HeadScanner,
    /// The request that waits for the handler.
    pub(crate) exchange: Option<Box<Exchange>>,
    pub(crate) body: BodyReader,
    pub(crate) persist: bool,
    pub(crate) expects_continue: bool,
    /// Chunked content that came with the head, as far as it was looked at.
    content_ahead_bytes: u64,
    collected: Vec<u8>,
    collect_bytes_max: u64,
    /// Output that waits: the segments, then this.
    pub(crate) output: Buffer,
    pub(crate) segments: Vec<Segment>,
    /// Length of what is being sent.
    pub(crate) out_bytes: u64,
    /// How much of it has left, as far as that was told.
    pub(crate) out_sent: u64,
    /// An answer too large to be copied is logged when it is out.
    unlogged: Option<Box<Exchange>>,
    /// Length of the content of the last answer.
    pub(crate) content_len: u64,
    /// What an app's task asked for.
    pub(crate) task: TaskOptions,
    /// What it has.
    pub(crate) stream: Stream,
}

impl Progress {
    pub(crate) fn has_carry(&self) -> bool {
        self.carry_start < self.carry.len()
    }

    pub(crate) fn carry_len(&self) -> u64 {
        (self.carry.len() - self.carry_start) as u64
    }

    /// Whether the answer in the making is the last of a drain: no other request has come behind
    /// it, with its head at least. What has come was accepted, and only the last answer says close.
    #[inline]
    pub(crate) fn is_last(&self, draining: bool) -> bool {
        draining && !self.has_head_ahead()
    }

    #[cold]
    fn has_head_ahead(&self) -> bool {
        let unread = &self.carry[self.carry_start..];
        matches!(self.body, BodyReader::Done) && memchr::memmem::find(unread, b"\r\n\r\n").is_some()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || !self.segments.is_empty()
    }

    /// Whether the output has to be sent before more may join it.
    pub(crate) fn is_full(&self, output_bytes_max: usize) -> bool {
        !self.segments.is_empty() || self.output.len() >= output_bytes_max
    }

    /// Keeps bytes for later.
    pub(crate) fn keep(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        if bytes.is_empty() {
            return;
        }
        let free = self.carry.capacity() - self.carry.len();
        if free < bytes.len() {
            let kept = self.carry.len() - self.carry_start;
            let wanted = (kept + bytes.len()).max(kept * 2);
            let mut larger = turn.pool.buffers.take(wanted);
            larger.extend_from_slice(&self.carry[self.carry_start..]);
            turn.pool
                .buffers
                .give(std::mem::replace(&mut self.carry, larger));
            self.carry_start = 0;
        }
        self.carry.extend_from_slice(bytes);
    }

    /// Looks for the next head, in `fresh` bytes if nothing was kept, else in what was kept. A
    /// whole head moves into a new exchange; what follows it is kept.
    pub(crate) fn scan(
        &mut self,
        fresh: Option<&[u8]>,
        limits: &Limits,
        turn: &mut Turn<'_>,
    ) -> Result<HeadScan, Fault> {
        let unread = match fresh {
            Some(bytes) => bytes,
            None => &self.carry[self.carry_start..],
        };
        let scan = self.scanner.scan(unread, limits);
        match scan {
            Ok(HeadScan::Complete { start, end }) => {
                let mut exchange = turn.pool.take_exchange();
                exchange.request.head.extend_from_slice(&unread[start..end]);
                self.exchange = Some(exchange);
                self.scanner = HeadScanner::default();
                match fresh {
                    Some(bytes) => self.keep(&bytes[end..], turn),
                    None => self.used(end, turn),
                }
            }
            Ok(HeadScan::Partial) | Err(_) => self.keep(fresh.unwrap_or_default(), turn),
        }
        scan
    }

    /// Copies the first line of what was kept, for the log of a request that was refused.
    pub(crate) fn carry_line(&self, line: &mut Vec<u8>) {
        let unread = &self.carry[self.carry_start..];
        let end = memchr::memchr2(b'\r', b'\n', unread).unwrap_or(unread.len());
        line.extend_from_slice(&unread[..end.min(1024)]);
    }

    /// Notes that `count` of the kept bytes are used up.
    fn used(&mut self, count: usize, turn: &mut Turn<'_>) {
        self.carry_start += count;
        if self.carry_start == self.carry.len() {
            self.carry_start = 0;
            turn.pool.buffers.give(std::mem::take(&mut self.carry));
        }
    }

    /// Reads chunked content that came with its head, and keeps it: what is malformed is refused
    /// before anybody answers. `came`: bytes of the last receive, which are the last ones kept.
    #[cold]
    pub(crate) fn look_ahead(&mut self, came: usize, limits: &Limits) -> Result<(), Fault> {
        let BodyReader::Chunked(decoder) = &self.body else {
            return Ok(());
        };
        let unread = &self.carry[self.carry_start..];
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

    pub(crate) fn begin_collecting(&mut self, announced: u64, bytes_max: u64) {
        self.collect_bytes_max = bytes_max;
        // An announcement alone gets no more than a buffer's worth of memory.
        let expected = usize::try_from(announced).unwrap_or_default();
        self.collected = Vec::with_capacity(expected.min(COLLECT_BYTES_AT_FIRST));
    }

    pub(crate) fn push_continue(&mut self, turn: &mut Turn<'_>) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        turn.counters.answer(Status::CONTINUE);
        encode::reserve(&mut self.output, CONTINUE.len(), turn);
        self.output.extend_from_slice(CONTINUE);
    }

    /// Uses up what was kept of the content; returns whether all of it has come.
    pub(crate) fn read_body(
        &mut self,
        collecting: bool,
        limits: &Limits,
        turn: &mut Turn<'_>,
    ) -> Result<bool, Fault> {
        let unread = &self.carry[self.carry_start..];
        let collected = &mut self.collected;
        let take = |piece: &[u8]| {
            if collecting {
                collected.extend_from_slice(piece);
            }
        };
        let read = self.body.read(unread, limits, take);
        // Before a fault behind it, so that it does not matter how the bytes were cut.
        if collecting && self.collected.len() as u64 > self.collect_bytes_max {
            self.collected = Vec::new();
            return Err(too_much_content());
        }
        let (used, done) = read?;
        self.used(used, turn);
        if done {
            self.body = BodyReader::Done;
            let content = std::mem::take(&mut self.collected);
            if let (true, Some(exchange)) = (collecting, &mut self.exchange) {
                exchange.request.body = RequestBody::Whole(content);
            }
        }
        Ok(done)
    }

    /// Decodes content for an app's task, from `fresh` bytes (then nothing was kept) or from what
    /// was kept, as far as the window allows. The rest is kept.
    pub(crate) fn read_stream(
        &mut self,
        fresh: Option<&[u8]>,
        limits: &Limits,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        let unread = match fresh {
            Some(bytes) => bytes,
            None => &self.carry[self.carry_start..],
        };
        let stream = &mut self.stream;
        let mut used = 0_usize;
        loop {
            let room = limits
                .stream_window_bytes
                .saturating_sub(stream.offered_bytes);
            // What is encoded is never shorter than what is in it.
            let input = &unread[used..unread.len().min(used.saturating_add(room))];
            if input.is_empty() || matches!(self.body, BodyReader::Done) {
                break;
            }
            let offer = &mut stream.offer;
            encode::reserve(offer, input.len(), turn);
            let before = offer.len();
            let read = self
                .body
                .read(input, limits, |piece| offer.extend_from_slice(piece));
            let content_bytes = offer.len() - before;
            stream.offered_bytes += content_bytes;
            stream.received_bytes += content_bytes as u64;
            // Before a fault behind it, as above.
            if stream.received_bytes > self.task.body_bytes_max {
                return Err(too_much_content());
            }
            let (now_used, done) = read?;
            used += now_used;
            if done {
                self.body = BodyReader::Done;
            }
        }
        match fresh {
            Some(bytes) => self.keep(&bytes[used..], turn),
            None => self.used(used, turn),
        }
        Ok(())
    }

    /// An app's task is over: gives back what was kept for it, and logs the answer that it streamed.
    /// `batch_bytes`: of the batch that is being sent so much has left, and no more will; `None`: all
    /// of it will.
    pub(crate) fn end_stream(&mut self, batch_bytes: Option<u64>, turn: &mut Turn<'_>) {
        let mut stream = std::mem::take(&mut self.stream);
        turn.pool.buffers.give(std::mem::take(&mut stream.offer));
        if let Some(exchange) = stream.stand_in.take() {
            turn.pool.give_exchange(exchange);
        }
        if let Some(exchange) = stream.answered.take() {
            let bytes = match batch_bytes {
                Some(sent) => stream.content_sent(sent),
                None => stream.content_len,
            };
            log(exchange, bytes, turn);
        }
    }

    /// All output that waits, as one batch.
    pub(crate) fn take_output(&mut self, turn: &mut Turn<'_>) -> Transmit {
        let mut segments = if self.segments.capacity() == 0 {
            turn.pool.take_segments()
        } else {
            std::mem::take(&mut self.segments)
        };
        if !self.output.is_empty() {
            segments.push(Segment::Buffer(std::mem::take(&mut self.output)));
        }
        self.stream.leaves();
        self.out_bytes = segments.iter().map(Segment::len).sum();
        self.out_sent = 0;
        Transmit::new(segments)
    }

    /// Logs an answer at once if it is all in the output, else when it is out.
    /// Behind a batch that is being sent, at once too: what has left is counted for that one.
    pub(crate) fn keep_or_log(
        &mut self,
        exchange: Box<Exchange>,
        sending: bool,
        turn: &mut Turn<'_>,
    ) {
        let is_free = self.unlogged.is_none() && !sending;
        if turn.log.is_some() && !self.segments.is_empty() && is_free {
            self.unlogged = Some(exchange);
            return;
        }
        log(exchange, self.content_len, turn);
    }

    /// Logs the answer that has left, or of which only `bytes_sent` of the batch have.
    pub(crate) fn log_pending(&mut self, bytes_sent: u64, turn: &mut Turn<'_>) {
        if let Some(exchange) = self.unlogged.take() {
            let head_len = self.out_bytes.saturating_sub(self.content_len);
            log(
                exchange,
                bytes_sent.saturating_sub(head_len).min(self.content_len),
                turn,
            );
        }
    }

    /// Gives all memory back to the pool.
    pub(crate) fn recycle(&mut self, turn: &mut Turn<'_>) {
        self.end_stream(Some(self.out_sent), turn);
        let Self {
            carry,
            output,
            segments,
            exchange,
            unlogged,
            ..
        } = std::mem::take(self);
        turn.pool.buffers.give(carry);
        turn.pool.buffers.give(output);
        turn.pool.give_segments(segments);
        for exchange in [exchange, unlogged].into_iter().flatten() {
            turn.pool.give_exchange(exchange);
        }
    }
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

fn log(exchange: Box<Exchange>, bytes: u64, turn: &mut Turn<'_>) {
    if let Some(log) = turn.log.as_deref_mut() {
        let status = exchange.response.status;
        log.add(&exchange, status, bytes, turn.date);
    }
    turn.pool.give_exchange(exchange);
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
