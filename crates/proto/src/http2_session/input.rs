//! Frames that come, and what they change (RFC 9113 sections 4 and 6).

use loadline_base::Millis;

use super::control::depends_on_itself;
use super::ending::{Failure, Parsed};
use super::{CONNECTION, Http2Session, Reading, Stage};
use crate::hpack::HpackError;
use crate::http1::Framing;
use crate::http2::field::check_trailer;
use crate::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, Kind, PREFACE, flags, unwrapped};
use crate::http2::priority::Priority;
use crate::http2::request::{CameOver, RequestError};
use crate::http2::state::{Effect, Received, State};
use crate::http2::stream::{Phase, Stream};
use crate::{
    ClientKey, Context, Exchange, Fault, FieldName, Fields, Http2Count, Request, RequestBody,
    StreamId,
};

/// Frames of one field block: what fits into the limit on heads fits into three, and an attacker sends
/// empty ones.
const BLOCK_FRAMES_MAX: u32 = 16;

/// A field block whose end has not come.
#[derive(Debug)]
pub(super) struct Block {
    head: FrameHead,
    bytes: Vec<u8>,
    frames: u32,
    /// When it began.
    pub(super) since: Millis,
}

impl Block {
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Http2Session {
    /// Reads what came, and keeps the beginning of a frame.
    pub(super) fn read(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        if self.unread.is_empty() {
            self.frame_since = cx.now;
            return self.read_from(bytes, cx);
        }
        cx.pool.buffers.reserve(&mut self.unread, bytes.len());
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        self.read_from(&unread, cx);
        cx.pool.buffers.give(unread);
    }

    fn read_from(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let is_over = self.stage >= Stage::Ending && self.streams.is_empty();
            if is_over || self.reading == Reading::Nothing {
                return; // nothing of it concerns anybody
            }
            match self.read_one(rest, cx) {
                Ok(Some(used)) => {
                    rest = &rest[used..];
                    self.frame_since = cx.now; // what is behind it belongs to the next frame
                }
                Ok(None) => {
                    cx.pool.buffers.reserve(&mut self.unread, rest.len());
                    self.unread.extend_from_slice(rest);
                    return;
                }
                Err(Failure(code, text)) => return self.fail(code, text, cx),
            }
        }
    }

    /// Reads the preface or a frame; says how long it was. `None`: it is incomplete.
    fn read_one(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Parsed<Option<usize>> {
        if self.reading == Reading::Preface {
            let len = bytes.len().min(PREFACE.len());
            if bytes[..len] != PREFACE[..len] {
                return Err(Failure(
                    ErrorCode::Protocol,
                    "the preface of HTTP/2 is missing",
                ));
            }
            if len < PREFACE.len() {
                return Ok(None);
            }
            self.reading = Reading::Settings;
            return Ok(Some(len));
        }
        if let Some(head) = self.partial.take() {
            return self.part_of_data(head, bytes, cx).map(Some);
        }
        let Some((head, behind)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = FrameHead::parse(head);
        self.check_place(head)?;
        // Content is taken as it comes: a whole frame of it may take a slow client long.
        if head.kind == Kind::Data && !head.has(flags::PADDED) && behind.len() < head.len {
            self.partial = Some(head);
            return Ok(Some(HEAD_BYTES));
        }
        let Some(payload) = behind.get(..head.len) else {
            return Ok(None);
        };
        self.frame(head, payload, cx)?;
        Ok(Some(HEAD_BYTES + head.len))
    }

    /// More of a DATA frame, as a frame of its own; says how much.
    fn part_of_data(
        &mut self,
        head: FrameHead,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Parsed<usize> {
        let len = head.len.min(bytes.len());
        let left = head.len - len;
        let is_last = left == 0;
        let flags = if is_last {
            head.flags
        } else {
            head.flags & !flags::END_STREAM
        };
        self.partial = (!is_last).then_some(FrameHead { len: left, ..head });
        self.frame(FrameHead { len, flags, ..head }, &bytes[..len], cx)?;
        Ok(len)
    }

    /// Whether a frame may come now.
    fn check_place(&mut self, head: FrameHead) -> Parsed {
        head.check()
            .map_err(|code| Failure(code, "a frame of a wrong length or stream"))?;
        let follows = self.block.as_ref().map(|block| block.head.stream);
        let is_right = match (head.kind, follows) {
            (Kind::Continuation, stream) => stream == Some(head.stream),
            (_, stream) => stream.is_none(),
        };
        if !is_right {
            return Err(Failure(
                ErrorCode::Protocol,
                "a field block was interrupted",
            ));
        }
        if self.reading == Reading::Settings {
            if head.kind != Kind::Settings || head.has(flags::ACK) {
                return Err(Failure(
                    ErrorCode::Protocol,
                    "the first frame is not SETTINGS",
                ));
            }
            self.reading = Reading::Frames;
        }
        Ok(())
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8], cx: &mut Context<'_>) -> Parsed {
        match head.kind {
            Kind::Data => self.data(head, payload, cx),
            Kind::Headers => self.headers(head, payload, cx),
            Kind::Continuation => self.continuation(head, payload, cx),
            Kind::RstStream => {
                cx.counters.http2(Http2Count::ClientResets);
                if self.is_taken(head, cx)? {
                    self.reset_by_client(StreamId(head.stream), cx)?;
                }
                Ok(())
            }
            Kind::Settings if head.has(flags::ACK) => Ok(()),
            Kind::Settings => self.settings(payload, cx),
            Kind::Ping if head.has(flags::ACK) => Ok(()),
            Kind::Ping => {
                // Clients of gRPC measure with one each round trip. Who does not take the answers is not
                // read from: that bounds them.
                self.output
                    .frame(Kind::Ping, flags::ACK, CONNECTION, payload, cx);
                Ok(())
            }
            Kind::WindowUpdate => self.window_update(head, payload, cx),
            Kind::Priority => self.priority(head, payload, cx),
            Kind::PriorityUpdate => self.priority_update(payload, cx),
            Kind::PushPromise => Err(Failure(ErrorCode::Protocol, "a client does not push")),
            Kind::GoAway | Kind::Unknown => Ok(()),
        }
    }

    /// Whether the state of its stream lets a frame do what it is for. Else it has had the effect that
    /// `http2::state` says.
    pub(super) fn is_taken(&mut self, head: FrameHead, cx: &mut Context<'_>) -> Parsed<bool> {
        let id = StreamId(head.stream);
        let Some(received) = Received::of(head) else {
            return Ok(true);
        };
        let state = self.stream_state(id);
        match state.receive(received).effect {
            Effect::Enter(_) => Ok(true),
            Effect::Ignored => Ok(false),
            // A proxy may have sent it before it could know of a reset; nothing was done for it.
            Effect::StreamError(code) if state == State::Closed && self.peer_is_trusted() => {
                self.reset(id, code, cx);
                Ok(false)
            }
            Effect::StreamError(code) => self.refuse_stream(id, code, cx).map(|()| false),
            Effect::ConnectionError(code) => Err(Failure(
                code,
                "a frame for a stream that is not begun, or has ended",
            )),
        }
    }

    /// Section 6.1. All of the payload counts for the windows.
    fn data(&mut self, head: FrameHead, payload: &[u8], cx: &mut Context<'_>) -> Parsed {
        let (id, len) = (StreamId(head.stream), head.len as u32);
        self.window = self.window.checked_sub(len).ok_or(Failure(
            ErrorCode::FlowControl,
            "more content than the connection's window",
        ))?;
        if self.window == 0 {
            self.shut_since.get_or_insert(cx.now);
        }
        let content =
            unwrapped(head, payload).map_err(|code| Failure(code, "more padding than there is"))?;
        let is_end = head.has(flags::END_STREAM);
        if content.is_empty() && !is_end {
            self.spend(cx)?;
        }
        self.budget.use_bytes(content.len());
        if !self.is_taken(head, cx)? {
            self.credit += len;
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(()); // those that take content are there
        };
        let content_len = content.len() as u64;
        let left = stream
            .announced_left
            .map(|left| left.checked_sub(content_len));
        let code = match (stream.window.checked_sub(len), left) {
            (None, _) => Some(ErrorCode::FlowControl),
            (_, Some(None)) => Some(ErrorCode::Protocol),
            (_, Some(Some(1..))) if is_end => Some(ErrorCode::Protocol),
            (Some(window), left) => {
                stream.window = window;
                stream.announced_left = left.flatten();
                stream.has_all = is_end;
                None
            }
        };
        if let Some(code) = code {
            self.credit += len;
            return self.refuse_stream(id, code, cx);
        }
        self.give_credit(id, len - content.len() as u32, cx);
        self.content(id, content, cx);
        Ok(())
    }

    /// Section 6.2.
    fn headers(&mut self, head: FrameHead, payload: &[u8], cx: &mut Context<'_>) -> Parsed {
        let fragment = unwrapped(head, payload)
            .map_err(|code| Failure(code, "more padding or less priority than there is"))?;
        if head.stream.is_multiple_of(2) {
            return Err(Failure(
                ErrorCode::Protocol,
                "a client's stream has an even number",
            ));
        }
        if head.has(flags::PRIORITY) && depends_on_itself(head, payload) {
            return Err(Failure(ErrorCode::Protocol, "a stream depends on itself"));
        }
        if head.has(flags::END_HEADERS) {
            return self.field_block(head, fragment, cx);
        }
        self.block = Some(Block {
            head,
            bytes: fragment.to_vec(),
            frames: 1,
            since: cx.now,
        });
        Ok(())
    }

    /// Section 6.10.
    fn continuation(&mut self, head: FrameHead, payload: &[u8], cx: &mut Context<'_>) -> Parsed {
        let Some(block) = &mut self.block else {
            return Ok(()); // `check_place` has looked
        };
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        let bytes_max = self.config.limits.head_bytes_max;
        if block.bytes.len() > bytes_max || block.frames > BLOCK_FRAMES_MAX {
            self.count_end(Http2Count::LargeBlocks, cx);
            return Err(Failure(
                ErrorCode::EnhanceYourCalm,
                "a field block that is larger than allowed",
            ));
        }
        if !head.has(flags::END_HEADERS) {
            return Ok(());
        }
        match self.block.take() {
            Some(block) => self.field_block(block.head, &block.bytes, cx),
            None => Ok(()),
        }
    }

    /// A whole field block: it is decoded in any case, since it may change the dynamic table.
    fn field_block(&mut self, head: FrameHead, block: &[u8], cx: &mut Context<'_>) -> Parsed {
        let id = StreamId(head.stream);
        self.budget.use_bytes(HEAD_BYTES + block.len());
        if id.0 <= self.last_stream {
            return self.trailers(head, block, cx);
        }
        let mut exchange = cx.pool.take_exchange();
        let (memory, limits) = (&mut cx.pool.http2, &self.config.limits);
        let fields = &mut memory.fields;
        fields.begin();
        let decoded = self
            .decoder
            .decode(block, &mut memory.field, |name, value| {
                fields.add(name, value, &mut exchange.request, limits);
            });
        if let Err(error) = decoded {
            cx.pool.give_exchange(exchange);
            return Err(self.undecodable(error, cx));
        }
        self.last_stream = id.0;
        if self.stage >= Stage::Ending {
            // Beyond the last stream of GOAWAY: the client tries it elsewhere.
            cx.pool.give_exchange(exchange);
            self.note_reset(id);
            return self.spend_for(id, cx);
        }
        self.last_begun = id.0;
        if !self.has_room(cx) {
            cx.pool.give_exchange(exchange);
            if self.peer_is_trusted() {
                // It keeps to the limit; but streams that one of its clients has reset may still count.
                self.reset(id, ErrorCode::RefusedStream, cx);
                return Ok(());
            }
            return self.refuse_stream(id, ErrorCode::RefusedStream, cx);
        }
        self.begin_stream(id, head.has(flags::END_STREAM), exchange, cx)
    }

    fn begin_stream(
        &mut self,
        id: StreamId,
        is_end: bool,
        mut exchange: Box<Exchange>,
        cx: &mut Context<'_>,
    ) -> Parsed {
        exchange.stream = id;
        exchange.peer = self.peer.address();
        exchange.listener = self.config.listener;
        exchange.is_encrypted = self.security.is_some();
        cx.stamp(&mut exchange);
        let came_over = match &self.security {
            _ if self.peer_is_trusted() => CameOver::Proxy,
            None => CameOver::Plain,
            Some(security) => CameOver::Secure(security),
        };
        let (request, limits) = (&mut exchange.request, &self.config.limits);
        let facts = cx.pool.http2.fields.end(came_over, request, limits);
        let mut stream = cx.pool.http2.streams.take();
        stream.id = id;
        stream.window = super::stream_window(self.config.limits.stream_window_bytes);
        stream.send_window = i64::from(self.stream_send_window);
        stream.has_all = is_end;
        stream.since = cx.now;
        stream.head_bytes = cx.pool.http2.fields.list_bytes();
        let facts = match facts {
            Ok(facts) => facts,
            Err(RequestError::Malformed(text)) => {
                if self.peer_is_trusted() {
                    stream.client = self.client_of(&mut exchange);
                }
                cx.pool.give_exchange(exchange);
                cx.counters.fault(&Fault::bad_request(text));
                self.streams.push(stream);
                return self.refuse_stream(id, ErrorCode::Protocol, cx);
            }
            Err(RequestError::Refused(fault)) => {
                self.streams.push(stream);
                return self.refuse_request(exchange, fault, cx);
            }
        };
        stream.client = self.client_of(&mut exchange);
        stream.announced_left = announced(facts.framing, &exchange.request);
        if is_end && stream.announced_left.is_some_and(|left| left > 0) {
            cx.pool.give_exchange(exchange);
            self.streams.push(stream);
            return self.refuse_stream(id, ErrorCode::Protocol, cx);
        }
        stream.expects_continue = facts.expects_continue && !is_end;
        exchange.request.body = match is_end {
            true => RequestBody::Empty,
            false => RequestBody::Pending {
                len: stream.announced_left,
            },
        };
        let early = self.early_priority(id);
        stream.priority = early.unwrap_or_else(|| Priority::of(&exchange.request));
        if let Some(fault) = self.flood_of(stream.client, cx) {
            self.streams.push(stream);
            return self.refuse_request(exchange, fault, cx);
        }
        stream.exchange = Some(exchange);
        self.streams.push(stream);
        self.mark_due(id);
        Ok(())
    }

    /// Whose request it is, as a trusted proxy says.
    fn client_of(&mut self, exchange: &mut Exchange) -> ClientKey {
        (self.config.trusted_proxies).note(&mut self.peer.kind, exchange);
        match self.peer_is_trusted() {
            true => ClientKey::of_request(exchange),
            false => ClientKey::NOBODY,
        }
    }

    /// Fields behind the content of a request (section 8.1): for whoever gets its content.
    fn trailers(&mut self, head: FrameHead, block: &[u8], cx: &mut Context<'_>) -> Parsed {
        let id = StreamId(head.stream);
        let limits = &self.config.limits;
        let mut trailers = Fields::default();
        let (mut bytes, mut count, mut is_wrong) = (0, 0, false);
        let decoded = self
            .decoder
            .decode(block, &mut cx.pool.http2.field, |name, value| {
                bytes += name.len() + value.len();
                count += 1;
                if !is_wrong && bytes <= limits.trailer_bytes_max && count <= limits.fields_max {
                    is_wrong =
                        check_trailer(name, value).is_err() || !trailers.try_add(name, value);
                }
            });
        decoded.map_err(|error| self.undecodable(error, cx))?;
        let is_large = bytes > limits.trailer_bytes_max || count > limits.fields_max;
        if self.stream_state(id) == State::Reset {
            self.spend_for(id, cx)?; // a small block can be much work, and nobody gets its fields
        }
        if !self.is_taken(head, cx)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(()); // those that take trailers are there
        };
        let is_early = stream.announced_left.is_some_and(|left| left > 0);
        let code = match is_large {
            _ if is_wrong || is_early => Some(ErrorCode::Protocol),
            true => Some(ErrorCode::EnhanceYourCalm),
            false => None,
        };
        if let Some(code) = code {
            return self.refuse_stream(id, code, cx);
        }
        stream.has_all = true;
        let is_awaited = !matches!(stream.phase, Phase::Answering | Phase::Discarding);
        if is_awaited && !trailers.is_empty() {
            stream.app.keep_trailers(Some(Box::new(trailers)));
        }
        self.content(id, &[], cx);
        Ok(())
    }

    /// The table is unknown then (RFC 9113 section 4.3).
    #[cold]
    fn undecodable(&self, error: HpackError, cx: &Context<'_>) -> Failure {
        if error == HpackError::TooLarge {
            self.count_end(Http2Count::LargeBlocks, cx);
            return Failure(
                ErrorCode::EnhanceYourCalm,
                "a field block whose fields are larger than allowed",
            );
        }
        Failure(ErrorCode::Compression, "a field block cannot be decoded")
    }

    /// The client will send no more: what is incomplete stays so.
    pub(super) fn end_input(&mut self, cx: &mut Context<'_>) {
        let is_hopeless = |stream: &&Stream| !stream.has_all || stream.task.cancel_on_half_close;
        let hopeless = self.streams.iter().filter(is_hopeless);
        let hopeless: Vec<_> = hopeless.map(|stream| stream.id).collect();
        for id in hopeless {
            self.leave(id, cx);
        }
        for stream in self.streams.iter() {
            stream.hang_up.as_ref().inspect(|it| it.half_close());
        }
    }
}

/// The length of the content, if the head says it (section 8.1.1). To HTTP/1 a length of 0 is none.
fn announced(framing: Framing, request: &Request) -> Option<u64> {
    match framing {
        Framing::Length(len) => Some(len),
        Framing::Empty => request.field(FieldName::ContentLength).map(|_| 0),
        Framing::Chunked => None,
    }
}
