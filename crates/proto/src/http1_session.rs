//! A connection that speaks HTTP/1, as a state machine: events in, orders out.
//!
//! ```text
//!            received          ran                 next_action        sent
//!  Idle ─► Head ─► RunDue ─► Running ─► (answer) ─► Idle | Discarding | Ending ─► Closed
//!                     ▲         │  │
//!          Collecting ┘◄────────┘  └► BlockDue ─► Blocking ─► (answer)
//! ```
//!
//! Whether output is on its way (`sending`) is apart from the state: while it is, the session
//! wants nothing else, so that a client which does not read is not read from.

mod answer;
mod borrowed_output;
pub(crate) mod encode;
mod handover;
mod idle;
mod input;
mod memory;
mod offload;
mod orders;
mod output;
mod reading;
mod record;
mod streaming;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use loadline_base::{Millis, Segment, Transmit};

use crate::peer::Peer;
use crate::progress::{BodyReader, Progress, no_room_for_connection};
use crate::session_state::{Pending, State};
use crate::trusted_proxies::PeerKind;
use crate::{
    CloseReason, Computation, ConnectionRecord, Context, Exchange, Fault, Fill, Method, Outcome,
    Pace, SessionConfig, Status,
};

pub(crate) use handover::Handover;

/// What a socket takes in some microseconds; behind more, a client may have sent something meanwhile.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

/// A connection that speaks HTTP/1. An idle one owns no memory besides itself.
#[derive(Debug)]
pub struct Http1Session {
    config: Arc<SessionConfig>,
    progress: Option<Box<Progress>>,
    peer: Peer,
    /// When the period began that the deadline counts from.
    since: Millis,
    /// Bytes that have moved in this period, for its minimum rate.
    moved: u64,
    state: State,
    sending: bool,
    eof: bool,
    draining: bool,
    over: Over,
    /// What the socket holds.
    pending: Pending,
    reason: Option<CloseReason>,
    /// What it comes to, for a journal of connections.
    record: Option<Box<ConnectionRecord>>,
}

/// What HTTP is spoken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// In plain text; nothing that is no HTTP/2 has come, and HTTP/2 is served, too.
    PlainMaybeHttp2,
    /// In plain text.
    Plain,
    /// A layer such as TLS.
    Layer,
}

impl Http1Session {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Self {
        cx.counters.accepted.add(1);
        Self {
            config: Arc::clone(config),
            progress: None,
            peer: Peer::new(peer, config.trusted_proxies.peer_kind(peer)),
            since: cx.now,
            moved: 0,
            state: State::Idle,
            sending: false,
            eof: false,
            draining: false,
            over: Over::Plain,
            pending: Pending::AsReported,
            reason: None,
            record: None,
        }
    }

    /// Bytes came. Welcome after `Wait { read: true }`, bounded otherwise by what the loop reads at
    /// once. (`&mut`: a later TLS layer decrypts in place.)
    pub fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        self.count_bytes_in(bytes.len(), cx);
        match self.state {
            State::Closed => {}
            // Unread, it would turn the close into a reset that destroys the last answer.
            State::Ending { .. } => self.state = State::Ending { linger: true },
            // Not before the output is out: what moves now is counted for that.
            _ if self.sending && self.state != State::Streaming => {
                self.progress(cx).keep(bytes, cx);
            }
            State::Idle if !self.has_unread() => {
                self.begin_period(cx);
                let came = bytes.len();
                self.read_head(Some(bytes), came, cx);
            }
            State::Idle | State::Head => {
                if self.state == State::Idle {
                    self.begin_period(cx);
                }
                self.progress(cx).keep(bytes, cx);
                self.read_head(None, bytes.len(), cx);
            }
            State::Collecting { .. } => {
                self.progress(cx).keep(bytes, cx);
                self.read_body(cx);
            }
            State::Discarding => {
                let progress = self.progress(cx);
                progress.discarded_bytes += bytes.len() as u64;
                progress.keep(bytes, cx);
                self.read_body(cx);
            }
            State::Lingering => {
                self.moved += bytes.len() as u64;
                if self.moved > self.config.limits.linger_bytes_max {
                    self.close(CloseReason::Finished);
                }
            }
            State::RunDue
            | State::Running
            | State::BlockDue
            | State::Blocking
            | State::StartDue
            | State::CancelDue { .. } => self.progress(cx).keep(bytes, cx),
            State::AnswerDue => {
                self.progress(cx).keep(bytes, cx);
                self.answer_due(cx);
            }
            State::Streaming => self.received_streaming(bytes, cx),
        }
    }

    /// The peer will send no more (a half-close): answers still go out, but for those of apps that
    /// do not work for a client which may have left.
    pub fn received_eof(&mut self, cx: &mut Context<'_>) {
        self.eof = true;
        if self.state == State::Streaming {
            return self.received_eof_streaming(cx);
        }
        if self.sending || self.has_output() {
            return; // `sent` comes back to it
        }
        match self.state {
            State::Idle => self.close(CloseReason::Client),
            State::Head => self.close(CloseReason::Vanished),
            State::Collecting { .. } => {
                self.fault(
                    Fault::bad_request("the content ended before its length"),
                    cx,
                );
            }
            State::Discarding => self.state = State::Ending { linger: false },
            State::Lingering => self.close(CloseReason::Finished),
            State::AnswerDue => self.answer_due(cx),
            State::Blocking => self.half_closed(),
            _ => {}
        }
    }

    /// The peer has closed its end, behind input that was not received yet.
    pub fn half_closed(&mut self) {
        if let (State::Blocking, Some(progress)) = (self.state, &self.progress)
            && let Some(hang_up) = &progress.hang_up
        {
            hang_up.half_close();
        }
    }

    /// The socket holds nothing: the answer to `ReceivePending`.
    pub fn nothing_pending(&mut self, cx: &mut Context<'_>) {
        self.pending = Pending::Nothing;
        if self.state == State::AnswerDue {
            self.answer_due(cx);
        }
    }

    /// Part of what is out has left; for the minimum rate.
    pub fn progressed(&mut self, bytes: u64, cx: &mut Context<'_>) {
        debug_assert!(self.sending);
        self.pending = Pending::Unknown;
        self.moved(bytes, self.config.limits.write_pace, cx);
        if let Some(progress) = &mut self.progress {
            progress.out_sent += bytes;
        }
        self.count_bytes_out(bytes, cx);
    }

    /// All of what was out has left.
    pub fn sent(&mut self, transmit: Transmit, cx: &mut Context<'_>) {
        debug_assert!(self.sending && transmit.is_done());
        self.sending = false;
        cx.pool.give_segments(transmit.into_segments());
        self.begin_period(cx);
        if let Some(progress) = &mut self.progress {
            let left = progress.out_bytes.saturating_sub(progress.out_sent);
            if progress.out_bytes > AT_ONCE_BYTES_MAX {
                self.pending = Pending::Unknown;
            }
            progress.log_pending(u64::MAX, cx);
            progress.stream.left();
            progress.sending_bytes = 0;
            self.count_bytes_out(left, cx);
        }
        match self.state {
            State::Idle | State::Head if self.has_unread() => self.read_head(None, 0, cx),
            State::Collecting { .. } | State::Discarding => self.read_body(cx),
            State::Idle => self.release_progress(cx),
            State::RunDue | State::BlockDue | State::StartDue => self.ready_now(cx),
            _ => {}
        }
        if self.eof {
            self.received_eof(cx);
        }
        if self.draining {
            self.draining(cx);
        }
    }

    /// The peer is gone altogether (reset, hang-up). `Close` follows.
    pub fn peer_gone(&mut self, _cx: &mut Context<'_>) {
        let idle = self.state == State::Idle && !self.sending;
        self.close(if idle {
            CloseReason::Client
        } else {
            CloseReason::Vanished
        });
    }

    /// The quick step ran.
    pub fn ran(&mut self, mut exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>) {
        debug_assert!(matches!(self.state, State::Running | State::Closed));
        if self.state == State::Closed {
            cx.pool.give_exchange(exchange);
            return;
        }
        let is_for_app = matches!(outcome, Outcome::Later(_));
        let is_unknown = exchange.request.method == Method::Other && !is_for_app;
        let stands = outcome == Outcome::Ready && !is_unknown && !self.is_refused(&exchange);
        self.progress(cx).output = exchange.take_output(stands);
        if is_unknown {
            exchange.response.error(Status::NOT_IMPLEMENTED);
            return self.answer(exchange, cx);
        }
        match outcome {
            Outcome::Ready => self.answer(exchange, cx),
            Outcome::Blocking => {
                self.state = State::BlockDue;
                self.progress(cx).exchange = Some(exchange);
            }
            Outcome::Later(options) => self.start_due(exchange, options, cx),
            Outcome::Collect { bytes_max } => self.collect(exchange, bytes_max, cx),
        }
    }

    /// The blocking step is done (or was refused: then the answer says so). In a drain the last answer
    /// says so, and whether it is the last is known once what has arrived behind it was received.
    pub fn completed(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        debug_assert!(matches!(self.state, State::Blocking | State::Closed));
        if self.state == State::Closed {
            cx.pool.give_exchange(exchange);
            return;
        }
        self.pending = Pending::Unknown;
        let progress = self.progress(cx);
        progress.hang_up = None;
        progress.exchange_bytes = 0;
        if self.draining && !self.eof && !self.has_unread() {
            self.progress(cx).exchange = Some(exchange);
            self.state = State::AnswerDue;
            return;
        }
        self.answer(exchange, cx);
    }

    fn answer_due(&mut self, cx: &mut Context<'_>) {
        self.pending = Pending::Unknown;
        if let Some(exchange) = self.progress(cx).exchange.take() {
            self.answer(exchange, cx);
        }
    }

    /// `deadline` has passed. Called too early, it changes nothing.
    pub fn expired(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_none_or(|deadline| deadline > cx.now) {
            return;
        }
        let silent = Fault::timeout(None, "time was up");
        match self.state {
            _ if self.sending => {
                cx.counters.fault(&silent);
                self.close(CloseReason::Slow);
            }
            State::Streaming => self.expired_streaming(cx),
            State::Idle => self.close(CloseReason::Idle),
            State::Head | State::Collecting { .. } => {
                let status = Some(Status::REQUEST_TIMEOUT);
                self.fault(Fault::timeout(status, "the request took too long"), cx);
            }
            State::Discarding => {
                cx.counters.fault(&silent);
                self.close(CloseReason::Slow);
            }
            State::Lingering => self.close(CloseReason::Finished),
            _ => {}
        }
    }

    /// The server is going down: finish what was accepted, say `Connection: close`, then `Close`.
    /// An idle connection closes at once, unless a request has arrived.
    pub fn draining(&mut self, _cx: &mut Context<'_>) {
        self.draining = true;
        if !self.sending && self.state == State::Discarding {
            self.state = State::Ending { linger: true };
        }
    }

    /// Nothing is ordered to be filled: whoever sends the output can send files.
    #[allow(clippy::boxed_local, reason = "as other sessions take it")]
    pub fn filled(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    /// The same.
    #[allow(clippy::boxed_local, reason = "as other sessions take it")]
    pub fn not_cached(&mut self, _fill: Box<Fill>, _cx: &mut Context<'_>) {}

    /// A range of a file is in the page cache by now. Its client did not keep the server waiting.
    pub fn cached(&mut self, cx: &mut Context<'_>) {
        self.since = self.since.max(cx.now);
    }

    /// Nothing is ordered to be computed.
    pub fn computed(&mut self, _computation: Box<dyn Computation>, _cx: &mut Context<'_>) {}

    /// Answer a new connection with 503 and close, for this reason, without reading a request.
    pub fn refuse(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.reason = Some(reason);
        self.fault(no_room_for_connection(), cx);
    }

    /// Close without an answer, for this reason.
    pub fn abort(&mut self, reason: CloseReason) {
        self.close(reason);
    }

    /// The connection is closed: memory goes back to the pool, the close is counted by its reason.
    /// Returns the record, if one was kept.
    pub fn ended(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        let reason = self.reason.unwrap_or(CloseReason::Failed);
        cx.counters.close(reason);
        let mut record = self.record.take();
        if let Some(record) = &mut record {
            record.reason = reason;
        }
        self.release(cx);
        record
    }

    /// When to call `expired`. `None` while only the server itself is awaited.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        let limits = &self.config.limits;
        match self.state {
            _ if self.sending => Some(limits.write_pace.deadline(self.since, self.moved)),
            State::Idle => match self.idle_timeout_ms() {
                u64::MAX => None,
                timeout_ms => Some(Millis(self.since.0.saturating_add(timeout_ms))),
            },
            State::Head => Some(limits.head_pace.deadline(self.since, self.moved)),
            State::Collecting { .. } | State::Discarding => Some(self.body_deadline()),
            State::Lingering => Some(limits.linger_pace.deadline(self.since, self.moved)),
            State::Streaming => self.streaming_deadline(),
            _ => None,
        }
    }

    /// Whether the other end is a proxy whose word about its clients is taken.
    fn peer_is_trusted(&self) -> bool {
        self.peer.kind == PeerKind::Proxy
    }

    /// Between requests with nothing received: may be closed to make room.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.sending
    }

    /// Who its client is, if that is known of the connection.
    #[must_use]
    pub fn client_address(&self) -> Option<IpAddr> {
        let peer = self.peer.address().filter(|_| !self.peer_is_trusted())?;
        Some(peer.ip())
    }

    /// No handshake comes before its requests.
    #[must_use]
    pub fn is_before_handshake(&self) -> bool {
        false
    }

    /// One request after the other.
    #[must_use]
    pub fn is_multiplexed(&self) -> bool {
        false
    }

    /// Whether its blocking step has the exchange.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        self.state == State::Blocking
    }

    /// Since when it waits for its client in the middle of a request or a response.
    #[must_use]
    pub fn awaits_client_since(&self) -> Option<Millis> {
        let awaits = match self.state {
            State::Head | State::Collecting { .. } | State::Discarding | State::Lingering => true,
            State::Streaming => self.sending || self.awaits_content(),
            _ => self.sending,
        };
        awaits.then_some(self.since)
    }

    /// Takes the answer over from the exchange into the output, unless its request has more content
    /// than it may have: that is said then, if nothing worse is.
    fn answer(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        if self.is_refused(&exchange) {
            return self.refuse_content(exchange, cx);
        }
        self.answer_with(exchange, false, cx);
    }

    /// Whether a request is refused though it is answered: among the reasons why it is the last one
    /// of its connection there may be that it has too much content.
    fn is_refused(&self, exchange: &Exchange) -> bool {
        !exchange.persist
            && !exchange.response.status.is_error()
            && self.has_content_beyond(self.config.limits.body_bytes_max)
    }

    /// The same, while a batch may be on its way.
    fn answer_with(&mut self, mut exchange: Box<Exchange>, sending: bool, cx: &mut Context<'_>) {
        let mut progress = self.take_progress(cx);
        self.count_request();
        let persist = answer::take_over(
            &mut exchange,
            &mut progress,
            self.draining,
            &self.config,
            cx,
        );
        progress.keep_or_log(exchange, sending, cx);
        self.progress = Some(progress);
        self.go_on(persist, cx);
    }

    /// Behind an answer: the end, content that was not asked for, or the next request.
    fn go_on(&mut self, persist: bool, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        let body_left = !matches!(progress.body, BodyReader::Done);
        let unread_left = progress.has_unread();
        if !persist {
            self.state = State::Ending {
                linger: body_left || unread_left,
            };
            return;
        }
        if !self.sending {
            self.begin_period(cx);
        }
        if body_left {
            self.state = State::Discarding;
            self.progress(cx).discarded_bytes = 0;
            self.read_body(cx);
        } else {
            self.next_request(cx);
        }
    }

    /// Answers what went wrong, if there is an answer to it, and ends the connection.
    fn fault(&mut self, fault: Fault, cx: &mut Context<'_>) {
        cx.counters.fault(&fault);
        let Some(status) = fault.status else {
            self.close(CloseReason::Vanished);
            return;
        };
        let reason = match fault.blame {
            crate::Blame::Timeout => CloseReason::Slow,
            _ => CloseReason::BadRequest,
        };
        self.reason.get_or_insert(reason);
        let (peer, listener) = (self.peer.address(), self.config.listener);
        let progress = self.progress(cx);
        let mut exchange = progress
            .exchange
            .take()
            .unwrap_or_else(|| cx.pool.take_exchange());
        (exchange.peer, exchange.listener) = (peer, listener);
        if exchange.request.head.is_empty() {
            progress.copy_first_line(&mut exchange.request);
            cx.stamp(&mut exchange);
        }
        match status {
            Status::SERVICE_UNAVAILABLE => exchange.refuse_for_a_while(),
            _ => exchange.response.error(status),
        }
        exchange.response.close = true;
        progress.persist = false;
        self.answer(exchange, cx);
        self.state = State::Ending { linger: true };
    }

    /// Whether something has been received that no answer has used up yet.
    fn has_unread(&self) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.has_unread())
    }

    fn has_output(&self) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.has_output())
    }

    fn begin_period(&mut self, cx: &Context<'_>) {
        self.since = cx.now;
        self.moved = 0;
    }

    /// Bytes have moved in a period that only a minimum rate ends.
    fn moved(&mut self, bytes: u64, pace: Pace, cx: &Context<'_>) {
        self.moved += bytes;
        if let Some(since) = pace.renewed(self.since, self.moved, cx.now) {
            self.since = since;
            self.moved = 0;
        }
    }

    fn close(&mut self, reason: CloseReason) {
        self.reason.get_or_insert(reason);
        if let Some(progress) = &mut self.progress
            && let Some(hang_up) = progress.hang_up.take()
        {
            hang_up.close();
        }
        self.state = match self.state {
            State::Streaming | State::CancelDue { .. } => State::CancelDue { close: true },
            _ => State::Closed,
        };
    }

    fn progress(&mut self, cx: &mut Context<'_>) -> &mut Progress {
        self.progress.get_or_insert_with(|| cx.pool.http1.take())
    }

    fn take_progress(&mut self, cx: &mut Context<'_>) -> Box<Progress> {
        self.progress.take().unwrap_or_else(|| cx.pool.http1.take())
    }

    /// An idle connection gives everything back.
    fn release_progress(&mut self, cx: &mut Context<'_>) {
        if let Some(progress) = self
            .progress
            .take_if(|p| !p.has_unread() && !p.has_output())
        {
            cx.pool.http1.give(progress);
        }
    }
}

const _: () = assert!(size_of::<Segment>() <= 40);
const _: () = assert!(size_of::<Http1Session>() <= 72);
