//! A connection that speaks HTTP/2 (RFC 9113), as a state machine: events in, orders out.
//!
//! ```text
//!   received ─► frames ─► streams ─► Run · Block · Start · Offer · Pull · Cancel
//!                            │
//!                    ran · completed · answered · produced
//!                            │
//!   Send ◄─ output ◄─ heads at once, content as windows and turns allow
//! ```
//!
//! | what | file |
//! |---|---|
//! | frames that come; settings, windows and priorities | `input`, `control` |
//! | one stream, and all of them; their states as the standard has them | `http2::stream`, `http2::state` |
//! | responses, and whose content is next | `answering`, `http2::priority`, `output` |
//! | small cached responses, in one copy | `borrowed_output` |
//! | how streams and the connection end | `ending` |
//! | apps whose content streams | `tasks` |
//! | what the owner has to do | `orders`, `due` |
//! | times, and what clients may not do too often | `deadlines`, `floods`, `budget` |

mod answering;
mod borrowed_output;
mod budget;
mod control;
mod deadlines;
mod due;
mod ending;
mod floods;
mod input;
mod orders;
mod output;
mod tasks;

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Arc;

use loadline_base::{Buffer, Millis, Transmit};

use crate::hpack::{self, Decoder, Encoder};
use crate::http1_session::Handover;
use crate::http2::frame::{ErrorCode, FrameHead, WINDOW_BYTES};
use crate::http2::priority::Priority;
use crate::http2::state::State;
use crate::http2::stream::{Phase, Stream, Streams};
use crate::peer::Peer;
use crate::progress::no_room_for_connection;
use crate::trusted_proxies::PeerKind;
use crate::{
    Body, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill,
    Http1Session, Http2Count, Method, Outcome, Security, Session, SessionConfig, Status, StreamId,
};
use borrowed_output::Common;
use budget::{Budget, ClientBudgets};
use due::Due;
use ending::RecentlyReset;
use floods::Abandoned;
use input::Block;
use output::Output;

/// The connection.
const CONNECTION: StreamId = StreamId(0);
/// Of streams that were reset a moment ago, as many are known as a client may have at a time
/// (`Limits::streams_max`), but no fewer than this.
const RESET_KEPT_MIN: usize = 64;

/// A list of fields that is so many times larger than the limit on heads is not decoded to its end, so
/// that the connection cannot go on. A smaller one beyond the limit has an answer, 431, and costs no more
/// than this.
const LISTS_MAX: usize = 4;

/// A connection that speaks HTTP/2.
#[derive(Debug)]
pub struct Http2Session {
    config: Arc<SessionConfig>,
    peer: Peer,
    /// Of a layer such as TLS below.
    security: Option<Arc<Security>>,
    stage: Stage,

    reading: Reading,
    /// Input of which only a part of a frame has come.
    unread: Buffer,
    /// When the first byte of that frame came: the bytes behind it buy no time beyond their pace.
    frame_since: Millis,
    /// A DATA frame of which only a part has come: what is left of it.
    partial: Option<FrameHead>,
    /// A field block that is incomplete.
    block: Option<Block>,
    decoder: Decoder,
    /// The highest number of a stream of the client's.
    last_stream: u32,
    /// The same before GOAWAY, which names it: a later one may not name a higher stream.
    last_begun: u32,
    recently_reset: RecentlyReset,
    /// Priorities that came before their requests.
    early_priorities: Vec<(StreamId, Priority)>,
    budget: Budget,
    client_budgets: ClientBudgets,
    abandoned: Abandoned,
    /// How much the client may send, and what it may send more once that is said.
    window: u32,
    credit: u32,
    /// Since when it may send nothing.
    shut_since: Option<Millis>,

    streams: Streams,
    /// No less than what waits in them to be sent: what was counted last, and what was added since.
    waiting_bytes_most: usize,
    /// Those that have an order to give, the most urgent first.
    due: Due,
    /// No request is begun: output and input come first.
    are_requests_held: bool,
    /// Those whose app's task is to be dropped.
    cancelled: VecDeque<StreamId>,
    turns: u64,

    encoder: Encoder,
    common: Common,
    /// Fields that the layer below adds to each response, encoded.
    layer_block: Box<[u8]>,
    output: Output,
    /// What the client takes, of all streams together, and of each new one.
    send_window: i64,
    stream_send_window: u32,
    /// Content of responses that was put into the output so far.
    content_sent: u64,
    sending: bool,
    /// Of the batch on its way: its length, its memory, and how much of it has left.
    out_bytes: u64,
    out_sent: u64,
    sending_bytes: usize,

    eof: bool,
    /// The socket holds nothing, as of the last `ReceivePending`.
    nothing_pending: bool,
    /// The period of the connection's own deadline, and what has moved in it.
    since: Millis,
    moved: u64,
    reason: Option<CloseReason>,
    record: Option<Box<ConnectionRecord>>,
}

/// What is awaited of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// That it speaks HTTP/2 (section 3.4).
    Preface,
    /// Its settings.
    Settings,
    /// Any frame.
    Frames,
    /// Nothing: behind a connection error nothing can be understood.
    Nothing,
}

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It serves.
    Open,
    /// GOAWAY without a last stream was sent; streams that come all the same are served.
    Draining,
    /// GOAWAY is in the output: no stream is begun, and what has begun is finished.
    Ending,
    /// The output is shut down; what still comes is thrown away.
    Lingering,
    Closed,
}

impl Http2Session {
    /// A connection that was just accepted. `security`: of a layer such as TLS below.
    #[must_use]
    pub fn new(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        security: Option<&Arc<Security>>,
        cx: &mut Context<'_>,
    ) -> Self {
        Self::after(&mut Http1Session::new(config, peer, cx), security, cx)
    }

    /// A connection that has begun as HTTP/1, before its first request.
    pub(crate) fn after(
        http1: &mut Http1Session,
        security: Option<&Arc<Security>>,
        cx: &mut Context<'_>,
    ) -> Self {
        let Handover {
            config,
            peer,
            record,
            unread,
            since,
            is_draining,
        } = http1.hand_over(cx);
        let mut session = Self {
            peer,
            security: security.cloned(),
            stage: Stage::Open,
            reading: Reading::Preface,
            unread: Buffer::default(),
            frame_since: cx.now,
            partial: None,
            block: None,
            decoder: Decoder::within(LISTS_MAX * config.limits.head_bytes_max),
            last_stream: 0,
            last_begun: 0,
            recently_reset: RecentlyReset::default(),
            early_priorities: Vec::new(),
            budget: Budget::new(cx.now),
            client_budgets: ClientBudgets::default(),
            abandoned: Abandoned::default(),
            window: config.limits.connection_window_bytes,
            config,
            credit: 0,
            shut_since: None,
            streams: Streams::default(),
            waiting_bytes_most: 0,
            due: Due::default(),
            are_requests_held: false,
            cancelled: VecDeque::new(),
            turns: 0,
            encoder: Encoder::default(),
            common: Common::default(),
            layer_block: layer_block(security),
            output: Output::default(),
            send_window: i64::from(WINDOW_BYTES),
            stream_send_window: WINDOW_BYTES,
            content_sent: 0,
            sending: false,
            out_bytes: 0,
            out_sent: 0,
            sending_bytes: 0,
            eof: false,
            nothing_pending: false,
            since,
            moved: 0,
            reason: None,
            record,
        };
        cx.counters.http2(Http2Count::Connections);
        session.introduce(cx);
        session.read(&unread, cx);
        cx.pool.buffers.give(unread);
        if is_draining {
            session.draining(cx);
        }
        session
    }

    /// Where a stream stands.
    #[must_use]
    pub fn stream_state(&self, id: StreamId) -> State {
        let is_of_client = id.0 % 2 == 1;
        if id.0 > self.last_stream || !is_of_client {
            return State::Idle;
        }
        match self.streams.get(id) {
            Some(stream) => stream.state(),
            None if self.recently_reset.contains(id) => State::Reset,
            None => State::Closed,
        }
    }

    fn peer_is_trusted(&self) -> bool {
        self.peer.kind == PeerKind::Proxy
    }

    fn begin_period(&mut self, cx: &Context<'_>) {
        self.since = cx.now;
        self.moved = 0;
    }

    fn close(&mut self, reason: CloseReason) {
        self.reason.get_or_insert(reason);
        self.streams.iter_mut().for_each(abandon);
        self.stage = Stage::Closed;
    }

    fn count_bytes_out(&mut self, bytes: u64, cx: &Context<'_>) {
        cx.counters.bytes_out.add(bytes);
        if let Some(record) = &mut self.record {
            record.bytes_out += bytes;
        }
    }
}

/// Whoever works for the stream learns that nobody reads the response.
fn abandon(stream: &mut Stream) {
    if let Some(hang_up) = stream.hang_up.take() {
        hang_up.close();
    }
}

/// Fields of each response that the layer below has, encoded.
fn layer_block(security: Option<&Arc<Security>>) -> Box<[u8]> {
    let lines = security.map_or(&[][..], |security| &security.response_lines);
    hpack::literals(answering::lines(lines)).into()
}

/// The window of a new stream: what an app's task has of its content at one time.
fn stream_window(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(WINDOW_BYTES).max(1)
}

impl Session for Http2Session {
    fn next_action(&mut self, cx: &mut Context<'_>) -> crate::Action {
        self.order(cx)
    }

    fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        cx.counters.bytes_in.add(bytes.len() as u64);
        if let Some(record) = &mut self.record {
            record.bytes_in += bytes.len() as u64;
        }
        match self.stage {
            Stage::Closed => {}
            Stage::Lingering => {
                self.moved += bytes.len() as u64;
                if self.moved > self.config.limits.linger_bytes_max {
                    self.close(CloseReason::Finished);
                }
            }
            _ if self.budget.receive(bytes.len(), cx.now) => self.read(bytes, cx),
            _ => self.fail_of_flood(cx),
        }
    }

    fn layer_opened(&mut self, _security: &Arc<Security>, _cx: &mut Context<'_>) {}

    fn received_eof(&mut self, cx: &mut Context<'_>) {
        self.eof = true;
        if self.stage == Stage::Lingering {
            return self.close(CloseReason::Finished);
        }
        self.end_input(cx);
    }

    fn delayed(&mut self, _us: u64) {}

    fn half_closed(&mut self) {
        for stream in self.streams.iter_mut() {
            stream.hang_up.as_ref().inspect(|it| it.half_close());
        }
    }

    fn nothing_pending(&mut self, _cx: &mut Context<'_>) {
        self.nothing_pending = true;
    }

    fn hold_requests(&mut self, are_held: bool) -> bool {
        std::mem::replace(&mut self.are_requests_held, are_held)
    }

    fn progressed(&mut self, bytes: u64, cx: &mut Context<'_>) {
        self.moved += bytes;
        let pace = self.config.limits.write_pace;
        if let Some(since) = pace.renewed(self.since, self.moved, cx.now) {
            self.since = since;
            self.moved = 0;
        }
        self.out_sent += bytes;
        self.count_bytes_out(bytes, cx);
    }

    fn sent(&mut self, transmit: Transmit, cx: &mut Context<'_>) {
        debug_assert!(self.sending && transmit.is_done());
        self.sending = false;
        self.sending_bytes = 0;
        cx.pool.give_segments(transmit.into_segments());
        let left = self.out_bytes.saturating_sub(self.out_sent);
        self.count_bytes_out(left, cx);
        self.begin_period(cx);
    }

    fn filled(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    fn not_cached(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    /// Its client did not keep the server waiting.
    fn cached(&mut self, cx: &mut Context<'_>) {
        self.since = self.since.max(cx.now);
    }

    fn computed(&mut self, _computation: Box<dyn Computation>, _cx: &mut Context<'_>) {}

    fn peer_gone(&mut self, _cx: &mut Context<'_>) {
        self.close(match self.streams.is_empty() && !self.sending {
            true => CloseReason::Client,
            false => CloseReason::Vanished,
        });
    }

    fn ran(&mut self, mut exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>) {
        let id = exchange.stream;
        let is_for_app = matches!(outcome, Outcome::Later(_));
        let is_unknown = exchange.request.method == Method::Other && !is_for_app;
        let stands = outcome == Outcome::Ready && !is_unknown && !self.is_refused(&exchange);
        self.take_back_output(&mut exchange, stands);
        if let Body::Encoded { len } = exchange.response.body {
            return self.encoded(exchange, len, cx);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return cx.pool.give_exchange(exchange);
        };
        if is_unknown {
            exchange.response.error(Status::NOT_IMPLEMENTED);
            return self.answer(exchange, cx);
        }
        match outcome {
            Outcome::Ready => self.answer(exchange, cx),
            Outcome::Blocking => {
                stream.await_turn(Phase::Block, cx.now);
                stream.exchange = Some(exchange);
                self.mark_due(id);
            }
            Outcome::Later(options) => self.start_due(exchange, options, cx),
            Outcome::Collect { bytes_max } => self.collect(exchange, bytes_max, cx),
        }
    }

    fn completed(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        let id = exchange.stream;
        match self.streams.get_mut(id) {
            Some(stream) if stream.phase == Phase::Blocking => {
                stream.hang_up = None;
                self.answer(exchange, cx);
            }
            Some(_) => {
                cx.pool.give_exchange(exchange);
                if let Some(stream) = self.streams.remove(id) {
                    if stream.phase == Phase::Reset {
                        self.forget_abandoned(&stream);
                    }
                    self.discard(stream, cx);
                }
                self.rest_if_idle(cx);
            }
            None => cx.pool.give_exchange(exchange),
        }
    }

    fn answered(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        self.task_answered(exchange, cx);
    }

    fn consumed(&mut self, stream: StreamId, bytes: usize, cx: &mut Context<'_>) {
        self.task_consumed(stream, bytes, cx);
    }

    fn produced(&mut self, stream: StreamId, piece: crate::Piece, cx: &mut Context<'_>) {
        self.task_produced(stream, piece, cx);
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        self.look_at_time(cx);
    }

    fn draining(&mut self, cx: &mut Context<'_>) {
        if self.stage == Stage::Open {
            // Streams that are on their way are still served: the last one is not known yet.
            self.output.go_away(
                crate::http2::frame::WINDOW_BYTES_MAX,
                ErrorCode::NoError,
                cx,
            );
            self.stage = Stage::Draining;
            self.nothing_pending = false;
        }
    }

    fn refuse(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.reason = Some(reason);
        cx.counters.fault(&no_room_for_connection());
        self.go_away(ErrorCode::EnhanceYourCalm, cx);
    }

    fn abort(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    fn keep_record(&mut self, record: Option<Box<ConnectionRecord>>) {
        self.record = record;
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        self.release_all(cx);
    }

    fn ended(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        let reason = self.reason.unwrap_or(CloseReason::Failed);
        cx.counters.close(reason);
        self.release_all(cx);
        let mut record = self.record.take();
        if let Some(record) = &mut record {
            record.reason = reason;
        }
        record
    }

    fn deadline(&self) -> Option<Millis> {
        self.next_deadline()
    }

    fn is_idle(&self) -> bool {
        let is_quiet = self.unread.is_empty() && self.block.is_none();
        self.stage <= Stage::Draining && self.streams.is_empty() && !self.sending && is_quiet
    }

    fn client_address(&self) -> Option<IpAddr> {
        let peer = self.peer.address().filter(|_| !self.peer_is_trusted())?;
        Some(peer.ip())
    }

    fn proxied_client(&self) -> Option<ClientKey> {
        self.peer_is_trusted()
            .then(|| self.streams.largest_client())
    }

    fn is_before_handshake(&self) -> bool {
        false // a layer below says when its own is over
    }

    fn handshake_us(&self, _now: Millis) -> u64 {
        0
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn has_steps(&self) -> bool {
        let mut phases = self.streams.iter().map(|stream| stream.phase);
        phases.any(|phase| matches!(phase, Phase::Blocking | Phase::Reset))
    }

    fn is_cut(&self) -> bool {
        false // each stream says itself whether it is whole
    }

    fn has_work_out(&self) -> bool {
        false
    }

    fn awaits_client_since(&self) -> Option<Millis> {
        self.client_awaited_since()
    }

    fn held_bytes(&self) -> usize {
        let streams: usize = self.streams.iter().map(Stream::memory_bytes).sum();
        let block = self.block.as_ref().map_or(0, Block::memory_bytes);
        size_of::<Self>()
            + streams
            + block
            + self.output.memory_bytes()
            + self.sending_bytes
            + self.unread.capacity()
            + self.recently_reset.held_bytes()
            + self.abandoned.held_bytes()
            + self.early_priorities.capacity() * size_of::<(StreamId, Priority)>()
            + self.client_budgets.held_bytes()
            + self.common.held_bytes()
            + self.layer_block.len()
            + self.decoder.held_bytes()
            + self.encoder.held_bytes()
    }
}
