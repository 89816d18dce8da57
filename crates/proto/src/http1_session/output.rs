//! Output of a session: content that an app produces, batches to be sent, and lines of the log for
//! what has left.

use loadline_base::{Buffer, Segment, Transmit};

use super::encode;
use crate::latency::Timing;
use crate::progress::Progress;
use crate::stream::AnswerEnd;
use crate::{Context, Exchange, Fields};

impl Progress {
    /// Puts content of an answer into the output; `false` if it is more than was promised.
    pub(super) fn push_content(&mut self, bytes: Buffer, cx: &mut Context<'_>) -> bool {
        let whole = bytes.len();
        if whole == 0 {
            return true;
        }
        let sent = match &mut self.stream.end {
            AnswerEnd::Nothing | AnswerEnd::NoHead => 0,
            AnswerEnd::Length { left } if (whole as u64) > *left => return false,
            AnswerEnd::Length { left } => {
                *left -= whole as u64;
                whole
            }
            AnswerEnd::Chunked | AnswerEnd::Close => whole,
        };
        self.stream.produced(whole, sent);
        if sent > 0 {
            let chunked = self.stream.end == AnswerEnd::Chunked;
            encode::content(bytes, chunked, &mut self.output, &mut self.segments, cx);
        } else {
            cx.pool.buffers.give(bytes);
        }
        true
    }

    pub(super) fn push_last_chunk(&mut self, cx: &mut Context<'_>) {
        let trailers = match self.stream.takes_trailers {
            true => std::mem::take(&mut self.stream.trailers),
            false => Fields::default(),
        };
        encode::last_chunk(&trailers, &mut self.output, cx);
    }

    /// All output that waits, as one batch.
    pub(crate) fn take_output(&mut self, cx: &mut Context<'_>) -> Transmit {
        let mut segments = if self.segments.capacity() == 0 {
            cx.pool.take_segments()
        } else {
            std::mem::take(&mut self.segments)
        };
        if !self.output.is_empty() {
            segments.push(Segment::Buffer(std::mem::take(&mut self.output)));
        }
        self.stream.leaves();
        self.out_bytes = segments.iter().map(Segment::len).sum();
        self.sending_bytes = segments.iter().map(Segment::memory_bytes).sum();
        self.out_sent = 0;
        Transmit::new(segments)
    }

    /// Logs an answer at once if it is all in the output, else when it is out.
    /// Behind a batch that is being sent, at once too: what has left is counted for that one.
    pub(crate) fn keep_or_log(
        &mut self,
        exchange: Box<Exchange>,
        sending: bool,
        cx: &mut Context<'_>,
    ) {
        if self.segments.is_empty() || self.is_unlogged() || sending {
            return cx.answered(exchange, self.content_len);
        }
        if cx.log.is_some() {
            self.unlogged = Some(exchange);
        } else {
            self.unmeasured = Timing::of(&exchange);
            if self.unmeasured.is_none() {
                cx.counters.unmeasured(exchange.response.status);
            }
            cx.pool.give_exchange(exchange);
        }
    }

    fn is_unlogged(&self) -> bool {
        self.unlogged.is_some() || self.unmeasured.is_some()
    }

    /// Logs the answer that has left, or of which only `bytes_sent` of the batch have.
    pub(crate) fn log_pending(&mut self, bytes_sent: u64, cx: &mut Context<'_>) {
        if let Some(timing) = self.unmeasured.take() {
            cx.counters.latencies.record(timing);
        }
        if let Some(exchange) = self.unlogged.take() {
            let head_len = self.out_bytes.saturating_sub(self.content_len);
            cx.answered(
                exchange,
                bytes_sent.saturating_sub(head_len).min(self.content_len),
            );
        }
    }

    /// An app's task is over: gives back what was kept for it, and logs the answer that it streamed.
    /// `batch_bytes`: how much of the batch that is being sent has left, if no more will; `None`: all
    /// of it will.
    pub(crate) fn end_stream(&mut self, batch_bytes: Option<u64>, cx: &mut Context<'_>) {
        let mut stream = std::mem::take(&mut self.stream);
        self.exchange_bytes = 0;
        cx.pool.buffers.give(std::mem::take(&mut stream.offer));
        if let Some(exchange) = stream.request_copy.take() {
            cx.pool.give_exchange(exchange);
        }
        if let Some(exchange) = stream.answered.take() {
            let bytes = match batch_bytes {
                Some(sent) => stream.content_sent(sent),
                None => stream.content_len,
            };
            cx.answered(exchange, bytes);
        }
    }

    /// Gives all memory back to the pool.
    pub(crate) fn recycle(&mut self, cx: &mut Context<'_>) {
        self.end_stream(Some(self.out_sent), cx);
        let Self {
            unread,
            output,
            segments,
            exchange,
            unlogged,
            ..
        } = std::mem::take(self);
        cx.pool.buffers.give(unread);
        cx.pool.buffers.give(output);
        cx.pool.give_segments(segments);
        for exchange in [exchange, unlogged].into_iter().flatten() {
            cx.pool.give_exchange(exchange);
        }
    }
}
