//! The fast path of HTTP/2: the connection's output, lent to the handler's quick step, so that a small
//! response that is kept somewhere is encoded behind what waits there, in one copy.

use super::Http2Session;
use super::answering::SERVER;
use crate::exchange::{BorrowedOutput, BorrowedStream};
use crate::http2::frame::PAYLOAD_BYTES_MAX;
use crate::{Context, Exchange};

/// What is the same for all responses of a connection, for a while: Server, Date, and what the layer
/// below adds.
#[derive(Debug, Default)]
pub(super) struct Common {
    block: Vec<u8>,
    /// The encoder's table and the date that it was made for.
    made_for: Option<(u64, u64)>,
}

impl Common {
    pub(super) fn held_bytes(&self) -> usize {
        self.block.capacity()
    }
}

impl Http2Session {
    /// Lends the output for the response of this stream.
    pub(super) fn lend_output(&mut self, exchange: &mut Exchange, cx: &Context<'_>) {
        // The response before it, with the first of a date, has put that into the table. What is lent may
        // not stand, and so it changes nothing there.
        if self.encoder.is_resized() || !self.refresh_common(cx) {
            return;
        }
        let Some(stream) = self.streams.get(exchange.stream) else {
            return;
        };
        let (client, urgency) = (stream.client, stream.priority.urgency);
        let room = match self
            .streams
            .has_more_urgent(client, urgency, self.send_window)
        {
            true => 0, // the head leaves alone
            false => stream.send_window.min(self.send_window),
        };
        let room = usize::try_from(room).unwrap_or(0).min(PAYLOAD_BYTES_MAX);
        // Behind other output there is no telling how much comes.
        let batch_bytes = match self.output.is_empty() {
            true => self.output.batch_bytes(),
            false => 0,
        };
        let output = self.output.lend();
        exchange.borrowed_output = Some(BorrowedOutput {
            len: output.len(),
            output,
        });
        exchange.borrowed_stream = Some(BorrowedStream {
            common: std::mem::take(&mut self.common.block),
            content_bytes_max: room,
            batch_bytes,
        });
    }

    /// Takes the output back, with the response if it stands.
    pub(super) fn take_back_output(&mut self, exchange: &mut Exchange, stands: bool) {
        if let Some(BorrowedStream { common, .. }) = exchange.borrowed_stream.take() {
            self.common.block = common;
            let lent_bytes = exchange.borrowed_output.as_ref().map_or(0, |it| it.len);
            let output = exchange.take_output(stands);
            let added_bytes = output.len().saturating_sub(lent_bytes);
            self.budget.use_bytes(added_bytes);
            self.output.take_back(output);
        }
    }

    /// The response was encoded with so much content.
    pub(super) fn encoded(&mut self, exchange: Box<Exchange>, len: u64, cx: &mut Context<'_>) {
        let id = exchange.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return cx.pool.give_exchange(exchange);
        };
        cx.counters.answer(exchange.response.status);
        if let Some(record) = &mut self.record {
            record.requests += 1;
        }
        stream.send_window -= len as i64;
        stream.content_sent = len;
        stream.has_head = true;
        stream.answered = Some(exchange);
        self.send_window -= len as i64;
        self.content_sent += len;
        self.finish(id, cx);
    }

    /// Makes it for this date; `false`: the table has not got it yet.
    fn refresh_common(&mut self, cx: &Context<'_>) -> bool {
        let made_for = (self.encoder.inserted(), cx.date.unix_seconds());
        if self.common.made_for == Some(made_for) {
            return true;
        }
        let Common {
            block,
            made_for: of,
        } = &mut self.common;
        block.clear();
        *of = None;
        let is_known = self.encoder.indexed(SERVER.0, SERVER.1, block)
            && self.encoder.indexed(b"date", cx.date.imf(), block);
        if is_known {
            block.extend_from_slice(&self.layer_block);
            *of = Some(made_for);
        }
        is_known
    }
}
