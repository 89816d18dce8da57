//! Responses: their heads at once, and whose content is next.

use std::collections::VecDeque;

use loadline_base::{Buffer, BufferPool, Millis, Segment};

use super::{Http2Session, abandon};
use crate::error_pages::fill_error_page;
use crate::hpack::{Encoder, Indexing, is_secret};
use crate::http1_session::encode::{stated_len, takes_trailers};
use crate::http2::frame::{ErrorCode, HEAD_BYTES, Kind, PAYLOAD_BYTES_MAX, flags};
use crate::http2::response;
use crate::http2::stream::{Phase, Stream};
use crate::{Body, Context, Exchange, Fault, HttpDate, Method, Response, Status, StreamId};

/// The session's own field.
pub(super) const SERVER: (&[u8], &[u8]) = (b"server", b"Loadline");
/// When a client that has reset too much may ask again: it could a moment later, so the least that can be said.
const RETRY_AFTER_S: &str = "1";
/// Fields whose values come again on a connection.
const KEPT: [&[u8]; 12] = [
    b"server",
    b"date",
    b"content-type",
    b"content-encoding",
    b"cache-control",
    b"vary",
    b"accept-ranges",
    b"x-content-type-options",
    b"strict-transport-security",
    b"content-security-policy",
    b"access-control-allow-origin",
    b"retry-after",
];

impl Http2Session {
    /// The response stands in the exchange.
    pub(super) fn answer(&mut self, mut exchange: Box<Exchange>, cx: &mut Context<'_>) {
        if self.is_refused(&exchange) {
            exchange.response.error(Status::CONTENT_TOO_LARGE);
        }
        self.begin_answer(exchange, cx);
    }

    /// Whether a response does not stand because there is more content than is taken.
    pub(super) fn is_refused(&self, exchange: &Exchange) -> bool {
        let body_max = self.config.limits.body_bytes_max;
        let stream = self.streams.get(exchange.stream);
        let announced = stream.map_or(0, |stream| {
            stream.announced_left.unwrap_or(0) + stream.app.received_bytes
        });
        announced > body_max && !exchange.response.status.is_error()
    }

    /// What went wrong with a request, as its response.
    pub(super) fn answer_fault(
        &mut self,
        mut exchange: Box<Exchange>,
        fault: Fault,
        cx: &mut Context<'_>,
    ) {
        cx.counters.fault(&fault);
        match fault.status.unwrap_or(Status::BAD_REQUEST) {
            Status::SERVICE_UNAVAILABLE => exchange.refuse_for_a_while(),
            Status::TOO_MANY_REQUESTS => {
                exchange.response.error(Status::TOO_MANY_REQUESTS);
                exchange.response.field("Retry-After", RETRY_AFTER_S);
            }
            status => exchange.response.error(status),
        }
        self.begin_answer(exchange, cx);
    }

    /// Puts the head of a response into the output, and its content behind it or into its stream.
    pub(super) fn begin_answer(&mut self, mut exchange: Box<Exchange>, cx: &mut Context<'_>) {
        let id = exchange.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return cx.pool.give_exchange(exchange);
        };
        stream.phase = Phase::Answering;
        stream.exchange_bytes = 0;
        abandon(stream);
        fill_error_page(&mut exchange.response, &self.config.error_pages);
        cx.counters.answer_to(&exchange);
        if let Some(record) = &mut self.record {
            record.requests += 1;
        }
        let mut body = std::mem::take(&mut exchange.response.body);
        let stated = stated_len(&exchange.request, &exchange.response, &body);
        let is_empty =
            exchange.request.method == Method::Head || exchange.response.status.has_no_content();
        if let Body::Stream { len } = body
            && !is_empty
        {
            stream.phase = Phase::Task;
            stream.is_produced = true;
            stream.promised_left = len;
            stream.takes_trailers = takes_trailers(&exchange.request);
            body = Body::Empty;
        } else {
            self.credit += stream.drop_request_content(&mut cx.pool.buffers);
        }
        if is_empty {
            let task = matches!(body, Body::Stream { .. }).then_some(id);
            self.cancelled.extend(task); // nobody gets what it would produce
            body = Body::Empty;
        }
        put_content(&mut stream.content, body, cx);
        self.waiting_bytes_most += stream.waiting_bytes();
        stream.begin_period(cx.now);
        stream.counted = self.content_sent;
        stream.has_head = true;
        let is_end = stream.content.is_empty() && !stream.is_produced;
        let mut block = std::mem::take(&mut cx.pool.http2.block);
        block.clear();
        let head = Head {
            encoder: &mut self.encoder,
            layer_block: &self.layer_block,
            name: &mut cx.pool.http2.name,
            block: &mut block,
        };
        encode_head(&exchange.response, stated, head, cx.date);
        stream.answered = Some(exchange);
        let (client, urgency) = (stream.client, stream.priority.urgency);
        self.send_fields(is_end, id, &block, cx);
        cx.pool.http2.block = block;
        if is_end {
            return self.finish(id, cx);
        }
        // Small content leaves with its head, if there is room for it and nothing more urgent waits.
        let has_room = self.output.len() < self.config.limits.output_bytes_max as u64;
        if has_room
            && !self
                .streams
                .has_more_urgent(client, urgency, self.send_window)
        {
            self.send_piece(id, cx);
        }
    }

    /// A field block.
    pub(super) fn send_fields(
        &mut self,
        is_end: bool,
        id: StreamId,
        block: &[u8],
        cx: &mut Context<'_>,
    ) {
        self.budget.use_bytes(HEAD_BYTES + block.len());
        self.output.headers(is_end, id, block, cx);
    }

    /// Fills the output with content, the most urgent first.
    pub(super) fn fill(&mut self, cx: &mut Context<'_>) {
        let most = self.config.limits.output_bytes_max as u64;
        while self.output.len() < most
            && let Some(id) = self.next_to_send()
        {
            self.send_piece(id, cx);
        }
        self.count_for_others(cx.now);
    }

    /// Who waits for others waits for the server. If that is because the connection's window is used up,
    /// what the others were sent shows that the client takes content.
    fn count_for_others(&mut self, now: Millis) {
        let (window, sent) = (self.send_window, self.content_sent);
        let pace = &self.config.limits.write_pace;
        for stream in self.streams.iter_mut() {
            let by_others = sent - std::mem::replace(&mut stream.counted, sent);
            if stream.content.is_empty() {
                continue;
            }
            if !stream.is_blocked(window) {
                stream.begin_period(now);
            } else if stream.send_window > 0 {
                stream.advance(by_others, pace, now);
            }
        }
    }

    /// RFC 9218 section 10: by urgency; of one urgency in the order of the requests, but that incremental
    /// ones take turns.
    fn next_to_send(&self) -> Option<StreamId> {
        let ready = |stream: &&Stream| stream.can_send(self.send_window);
        let order = |stream: &&Stream| {
            let priority = stream.priority;
            let turn = match priority.is_incremental {
                true => stream.turn,
                false => 0,
            };
            (priority.urgency, priority.is_incremental, turn)
        };
        let next = self.streams.iter().filter(ready).min_by_key(order);
        next.map(|stream| stream.id)
    }

    /// One frame of content, or the end of a stream.
    fn send_piece(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let window = self.send_window;
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if !stream.can_send(window) {
            return;
        }
        let room = stream.send_window.min(window).min(PAYLOAD_BYTES_MAX as i64);
        let most = u64::try_from(room).unwrap_or(0);
        self.turns += 1;
        stream.turn = self.turns;
        let Some(piece) = stream.take_content(most, &mut cx.pool.buffers) else {
            return self.send_end(id, cx);
        };
        let len = piece.len();
        self.budget.use_bytes(len as usize);
        stream.send_window -= len as i64;
        self.send_window -= len as i64;
        self.content_sent += len;
        stream.content_sent += len;
        stream.counted += len;
        stream.app.sent(len as usize);
        stream.advance(len, &self.config.limits.write_pace, cx.now);
        if stream.is_blocked(self.send_window) && !std::mem::replace(&mut stream.was_blocked, true)
        {
            stream.begin_period(cx.now); // what the windows held says nothing of the client
        }
        if stream.content.is_empty() {
            stream.app.app_moved(cx.now); // it may have had no room before
        }
        let has_more = !stream.content.is_empty() || stream.is_produced;
        let is_end = !has_more && stream.trailers.is_none();
        let flag = if is_end { flags::END_STREAM } else { 0 };
        if let Some(copied) = self.output.data(flag, id, piece, cx) {
            keep_memory(copied, stream, &mut cx.pool.buffers);
        }
        if is_end {
            self.finish(id, cx);
        } else if !has_more {
            self.send_end(id, cx);
        } else if stream.phase == Phase::Task {
            self.mark_due(id); // there is room for the app
        }
    }

    /// The end of a stream without more content: trailers, or an empty frame.
    fn send_end(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let trailers = self.streams.get_mut(id).and_then(|it| it.trailers.take());
        match trailers {
            Some(fields) => {
                let mut block = std::mem::take(&mut cx.pool.http2.block);
                block.clear();
                self.encoder.begin(&mut block);
                for (name, value) in fields.iter() {
                    let name = name.to_ascii_lowercase();
                    self.encoder.field(&name, value, Indexing::Not, &mut block);
                }
                self.send_fields(true, id, &block, cx);
                cx.pool.http2.block = block;
            }
            None => self
                .output
                .frame(Kind::Data, flags::END_STREAM, id, &[], cx),
        }
        self.finish(id, cx);
    }

    /// The response is in the output, all of it.
    pub(super) fn finish(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let Some(mut stream) = self.streams.remove(id) else {
            return;
        };
        if !stream.has_all {
            self.let_go(&mut stream, cx);
            stream.head_bytes = 0;
            stream.phase = Phase::Discarding;
            stream.begin_period(cx.now);
            self.streams.insert(stream);
            return self.discard_content(id, cx);
        }
        let answered = stream.answered.as_ref();
        if answered.is_some_and(|it| !it.response.status.is_error()) {
            self.budget.earn();
            self.client_budgets.earn(stream.client);
        }
        self.discard(stream, cx);
        self.rest_if_idle(cx);
    }

    /// Content that nobody wants has come, or is still to come. Behind the response it is received and
    /// dropped for a while: many clients read only then, and some lose a response that a reset follows at
    /// once. Of more, the client learns that it is not needed (section 8.1).
    pub(super) fn discard_content(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let limits = &self.config.limits;
        let window = super::stream_window(limits.stream_window_bytes);
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.phase != Phase::Discarding {
            return;
        }
        let more = window.saturating_sub(stream.window);
        if stream.has_all {
            let stream = self.streams.remove(id);
            stream.into_iter().for_each(|it| self.discard(it, cx));
            self.rest_if_idle(cx);
        } else if stream.moved > limits.linger_bytes_max {
            self.reset(id, ErrorCode::NoError, cx);
        } else if more >= window.div_ceil(2) {
            stream.window += more;
            stream.credit = 0; // it is in there
            self.output.window_update(id, more, cx);
        }
    }
}

/// Memory of content that was copied. A handler's goes to the next response of its exchange, as over HTTP/1: the
/// thread keeps none that is so small.
fn keep_memory(mut copied: Buffer, stream: &mut Stream, buffers: &mut BufferPool) {
    let is_all = stream.content.is_empty() && stream.content_sent == copied.len() as u64;
    match &mut stream.answered {
        Some(exchange)
            if is_all
                && stream.phase == Phase::Answering
                && exchange.response.can_keep(copied.capacity()) =>
        {
            exchange.response.keep(std::mem::take(&mut *copied));
        }
        _ => buffers.give(copied),
    }
}

/// What a field block is made with.
struct Head<'s> {
    encoder: &'s mut Encoder,
    /// Fields of the layer below, encoded.
    layer_block: &'s [u8],
    /// Memory for a name.
    name: &'s mut Vec<u8>,
    block: &'s mut Vec<u8>,
}

/// The field block of a response.
fn encode_head(
    response: &Response,
    stated_len: Option<u64>,
    Head {
        encoder,
        layer_block,
        name,
        block,
    }: Head<'_>,
    date: &HttpDate,
) {
    encoder.begin(block);
    response::status(response.status, block);
    if !response.fields.has_server() {
        encoder.field(SERVER.0, SERVER.1, Indexing::Kept, block);
    }
    if !response.fields.has_date() {
        encoder.field(b"date", date.imf(), Indexing::Kept, block);
    }
    for (field_name, value) in response.fields.iter() {
        name.clear();
        name.extend(field_name.iter().map(u8::to_ascii_lowercase));
        encoder.field(name, value, indexing(name), block);
    }
    if !response.fields.has_transport_security() {
        block.extend_from_slice(layer_block);
    }
    if let Some(len) = stated_len {
        response::content_length(len, block);
    }
}

fn indexing(name: &[u8]) -> Indexing {
    match name {
        name if is_secret(name) => Indexing::Never,
        name if KEPT.contains(&name) => Indexing::Kept,
        _ => Indexing::Not,
    }
}

/// Field lines of HTTP/1 as pairs.
pub(super) fn lines(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// Content that is to be sent.
fn put_content(content: &mut VecDeque<Segment>, body: Body, cx: &mut Context<'_>) {
    match body {
        Body::Bytes(bytes) => put_buffer(content, bytes.into(), cx),
        Body::Shared { bytes, start, end } if start < end => {
            content.push_back(Segment::Shared { bytes, start, end });
        }
        Body::File { file, offset, len } if len > 0 => {
            content.push_back(Segment::File { file, offset, len });
        }
        Body::Segments(pieces) => {
            for piece in pieces {
                match piece {
                    Segment::Buffer(bytes) => put_buffer(content, bytes, cx),
                    piece if piece.is_empty() => {}
                    piece => content.push_back(piece),
                }
            }
        }
        _ => {}
    }
}

fn put_buffer(content: &mut VecDeque<Segment>, bytes: Buffer, cx: &mut Context<'_>) {
    match bytes.is_empty() {
        true => cx.pool.buffers.give(bytes),
        false => content.push_back(Segment::Buffer(bytes)),
    }
}
