//! Input of a session: bytes ahead of their turn become heads and content.

use crate::http1::{HeadScan, HeadScanner};
use crate::progress::{BodyReader, Progress, too_much_content};
use crate::{Context, Fault, Limits, RequestBody, Status};

impl Progress {
    /// Keeps bytes for later.
    pub(crate) fn keep(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        if bytes.is_empty() {
            return;
        }
        let free = self.unread.capacity() - self.unread.len();
        if free < bytes.len() {
            let kept = self.unread.len() - self.unread_start;
            let wanted = (kept + bytes.len()).max(kept * 2);
            let mut larger = cx.pool.buffers.take(wanted);
            larger.extend_from_slice(&self.unread[self.unread_start..]);
            cx.pool
                .buffers
                .give(std::mem::replace(&mut self.unread, larger));
            self.unread_start = 0;
        }
        self.unread.extend_from_slice(bytes);
    }

    /// Looks for the next head, in `fresh` bytes if nothing was kept, else in what was kept. A
    /// whole head moves into a new exchange; what follows it is kept.
    pub(crate) fn scan(
        &mut self,
        fresh: Option<&[u8]>,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Result<HeadScan, Fault> {
        let unread = match fresh {
            Some(bytes) => bytes,
            None => &self.unread[self.unread_start..],
        };
        let scan = self.scanner.scan(unread, limits);
        match scan {
            Ok(HeadScan::Complete { start, end }) => {
                let mut exchange = cx.pool.take_exchange();
                exchange.request.head.extend_from_slice(&unread[start..end]);
                self.exchange = Some(exchange);
                self.scanner = HeadScanner::default();
                match fresh {
                    Some(bytes) => self.keep(&bytes[end..], cx),
                    None => self.used(end, cx),
                }
            }
            Ok(HeadScan::Partial) | Err(_) => self.keep(fresh.unwrap_or_default(), cx),
        }
        scan
    }

    /// Notes that `count` of the kept bytes are used up.
    fn used(&mut self, count: usize, cx: &mut Context<'_>) {
        self.unread_start += count;
        if self.unread_start == self.unread.len() {
            self.unread_start = 0;
            cx.pool.buffers.give(std::mem::take(&mut self.unread));
        }
    }

    pub(crate) fn push_continue(&mut self, cx: &mut Context<'_>) {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        cx.counters.answer(Status::CONTINUE);
        cx.pool.buffers.reserve(&mut self.output, CONTINUE.len());
        self.output.extend_from_slice(CONTINUE);
    }

    /// Uses up what was kept of the content; returns how much of it there was, without framing.
    pub(crate) fn read_body(
        &mut self,
        collecting: bool,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Result<u64, Fault> {
        let unread = &self.unread[self.unread_start..];
        let collected = &mut self.collected;
        let mut content_bytes = 0;
        let take = |piece: &[u8]| {
            content_bytes += piece.len() as u64;
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
        self.used(used, cx);
        if done {
            let trailers = self.body.finish();
            let content = std::mem::take(&mut self.collected);
            if let (true, Some(exchange)) = (collecting, &mut self.exchange) {
                exchange.request.body = RequestBody::Whole(content);
                exchange.request.trailers = trailers;
            }
        }
        self.note_line(content_bytes, cx.now);
        Ok(content_bytes)
    }

    /// Decodes content for an app's task, from `fresh` bytes (then nothing was kept) or from what
    /// was kept, as far as the window allows. The rest is kept. Returns how much of it there was, without
    /// framing.
    pub(crate) fn read_stream(
        &mut self,
        fresh: Option<&[u8]>,
        limits: &Limits,
        cx: &mut Context<'_>,
    ) -> Result<u64, Fault> {
        let unread = match fresh {
            Some(bytes) => bytes,
            None => &self.unread[self.unread_start..],
        };
        let stream = &mut self.stream;
        let received_before = stream.received_bytes;
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
            cx.pool.buffers.reserve(offer, input.len());
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
                stream.keep_trailers(self.body.finish());
            }
        }
        match fresh {
            Some(bytes) => self.keep(&bytes[used..], cx),
            None => self.used(used, cx),
        }
        let content_bytes = self.stream.received_bytes - received_before;
        self.note_line(content_bytes, cx.now);
        Ok(content_bytes)
    }
}
