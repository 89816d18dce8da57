//! A session over a layer that changes its bytes on their way: TLS over a socket, HTTP over TLS.
//!
//! ```text
//!   socket ── received ──► Layer ── plain bytes ──► session
//!   socket ◄──── Send ──── Layer ◄── plain bytes ── session   (files: `Fill` first)
//! ```
//!
//! Transports and architectures see one session as any other. Output is taken piece by piece, so
//! that a large file needs no more memory than a piece.

mod arriving;
mod ending;

use core::fmt::Debug;
use core::net::IpAddr;
use std::io::IoSlice;
use std::sync::Arc;

use loadline_base::{Buffer, Chunk, Millis, Segment, Transmit};

use crate::{
    Action, Blame, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fault,
    Fill, Layer, Outcome, Piece, Security, Session, SessionConfig, Status, StreamId, Then,
};
use arriving::{Arriving, is_too_early};

/// Plain bytes that are changed at once: 64 KiB fit into a core's caches, in both forms.
const PIECE_BYTES: usize = 64 << 10;

/// No less of a file is asked for at once.
const FILL_BYTES_MIN: usize = 16 << 10;

/// Pieces of memory that are changed together: 64 KiB of frames of HTTP/2, each behind its head, have eight.
const PIECES_MAX: usize = 16;

/// A session over a layer.
#[derive(Debug)]
pub struct Layered<L, S> {
    layer: L,
    session: S,
    config: Arc<SessionConfig>,
    /// Bytes for the socket, and how many of the session's they stand for.
    out: Buffer,
    out_plain: u64,
    /// The session's output, as far as it is not in `out` yet, and what follows it.
    output: Option<(Transmit, Then)>,
    filling: Filling,
    in_flight: Option<InFlight>,
    computing: Computing,
    /// The session knows that the layer is open.
    is_open: bool,
    arriving: Arriving,
    /// When it was accepted, or its last bytes were made: for the deadline of either.
    since: Millis,
    /// The peer's end was reported to the session.
    eof: bool,
    /// The peer is gone.
    gone: bool,
    end: End,
}

/// A part of a file that is read for the output.
#[derive(Debug)]
enum Filling {
    No,
    /// Ordered.
    Ordered,
    /// To be ordered again, once it is in the page cache.
    NotCached(Box<Fill>),
    /// To be ordered again.
    Cached(Box<Fill>),
}

/// A computation of the layer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computing {
    No,
    Ordered,
    /// The peer's end came meanwhile: it stands behind what is computed.
    OrderedBeforeEof,
}

/// A batch on its way: how many of the socket's, and of the session's.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    bytes: u64,
    bytes_sent: u64,
    plain: u64,
    plain_sent: u64,
}

/// How far the connection's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The layer's end stands in `out`, behind the last of the session's bytes. What still comes is
    /// received: the session may have to read on, so that the peer reads its last bytes.
    Said,
    /// The same; then the socket is half-closed.
    Finishing,
    /// Half-closed.
    Finished,
    /// What stands in `out` is the last; then the connection closes.
    Last,
    /// To be closed at once.
    Closed,
}

impl<L: Layer, S: Session> Layered<L, S> {
    /// A connection that was just accepted.
    pub fn new(layer: L, session: S, config: &Arc<SessionConfig>, cx: &Context<'_>) -> Self {
        Self {
            layer,
            session,
            config: Arc::clone(config),
            out: Buffer::default(),
            out_plain: 0,
            output: None,
            filling: Filling::No,
            computing: Computing::No,
            is_open: false,
            arriving: Arriving::default(),
            in_flight: None,
            since: cx.now,
            eof: false,
            gone: false,
            end: End::Open,
        }
    }

    /// What is to be sent now, or to be read for that.
    fn send_due(&mut self, cx: &mut Context<'_>) -> Option<Action> {
        if self.is_ending() {
            self.drop_fill(cx);
        }
        match std::mem::replace(&mut self.filling, Filling::No) {
            Filling::No => {}
            Filling::Cached(fill) => {
                self.filling = Filling::Ordered;
                return Some(Action::Fill(fill));
            }
            filling => {
                self.filling = filling;
                return None;
            }
        }
        if self.in_flight.is_some() {
            return None;
        }
        if self.layer.is_open()
            && !self.is_ending()
            && let Some(fill) = self.take_output(cx)
        {
            self.filling = Filling::Ordered;
            return Some(Action::Fill(fill));
        }
        if self.out.is_empty() {
            if self.end != End::Finishing {
                return None;
            }
            self.end = End::Finished;
            return Some(Action::Finish);
        }
        Some(self.send(cx))
    }

    /// What was received, or came of a computation, goes to the session.
    fn take_in(&mut self, mut plain: Buffer, result: Result<(), Fault>, cx: &mut Context<'_>) {
        if !self.is_open && self.layer.is_open() {
            self.is_open = true;
            self.arriving.opened(cx.now);
            if let Some(security) = self.layer.security() {
                self.session.layer_opened(security, cx);
            }
        }
        let is_partial = self.layer.partial_bytes() > 0;
        self.arriving.received(is_partial, plain.len(), cx.now);
        if !plain.is_empty() {
            self.session.received(&mut plain, cx);
        }
        cx.pool.buffers.give(plain);
        if let Err(fault) = result {
            cx.counters.fault(&fault);
            self.session.abort(match fault.blame {
                Blame::Limit => CloseReason::Refused,
                _ => CloseReason::BadRequest,
            });
            self.end = End::Last;
            self.since = cx.now;
        } else if self.layer.has_ended() {
            self.received_eof(cx);
        }
    }

    /// Moves output through the layer, a piece of it at most. `Some`: a file is next.
    fn take_output(&mut self, cx: &mut Context<'_>) -> Option<Box<Fill>> {
        let (transmit, _) = self.output.as_mut()?;
        let mut room = PIECE_BYTES.saturating_sub(self.out.len());
        while let Some(chunk) = transmit.front() {
            match chunk {
                Chunk::Memory(_) if room > 0 => {
                    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
                    let (count, len) = transmit.slices_within(room, &mut pieces);
                    if self.out.capacity() == 0 {
                        self.out = cx.pool.buffers.take(len);
                    }
                    self.layer.send_pieces(&pieces[..count], &mut self.out);
                    self.out_plain += len as u64;
                    room -= len;
                    transmit.advance(len as u64);
                }
                Chunk::File { file, offset, len } if room >= FILL_BYTES_MIN => {
                    let len = usize::try_from(len).map_or(room, |len| len.min(room));
                    return Some(Box::new(Fill {
                        file: Arc::clone(file),
                        offset,
                        len,
                        buffer: cx.pool.buffers.take(len),
                        is_cached: false,
                    }));
                }
                _ => return None,
            }
        }
        None
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Action {
        let then = match &self.output {
            _ if self.end == End::Last => Then::Close,
            Some((transmit, then)) if transmit.is_done() => *then,
            _ => Then::More,
        };
        if then == Then::Close && self.end == End::Open {
            self.layer.finish(&mut self.out);
            self.end = End::Said;
        }
        self.in_flight = Some(InFlight {
            bytes: self.out.len() as u64,
            bytes_sent: 0,
            plain: std::mem::take(&mut self.out_plain),
            plain_sent: 0,
        });
        let mut segments = cx.pool.take_segments();
        segments.push(Segment::Buffer(std::mem::take(&mut self.out)));
        Action::Send {
            transmit: Transmit::new(segments),
            then,
        }
    }
}

impl<L: Layer, S: Session> Session for Layered<L, S> {
    fn next_action(&mut self, cx: &mut Context<'_>) -> Action {
        loop {
            if let Some(action) = self.send_due(cx) {
                return action;
            }
            if self.computing == Computing::No
                && !self.is_ending()
                && let Some(computation) = self.layer.take_computation()
            {
                self.computing = Computing::Ordered;
                self.arriving.computes(cx.now);
                return Action::Compute(computation);
            }
            let action = self.session.next_action(cx);
            self.note_rest(&action, cx.now);
            match action {
                Action::Run(mut exchange) => {
                    exchange.handshake = self.arriving.requested(cx.now);
                    exchange.security = self.layer.security().cloned();
                    if !is_too_early(&exchange) {
                        return Action::Run(exchange);
                    }
                    exchange.response.error(Status::TOO_EARLY);
                    self.session.ran(exchange, Outcome::Ready, cx);
                }
                Action::Send { transmit, then } => self.output = Some((transmit, then)),
                Action::Finish => {
                    if self.end == End::Open {
                        self.layer.finish(&mut self.out);
                    }
                    self.end = End::Finishing;
                }
                Action::Close => {
                    self.close(cx);
                    if self.end == End::Closed {
                        return Action::Close;
                    }
                    if self.in_flight.is_some() {
                        return Action::Wait {
                            read: false,
                            hang_up: false,
                        };
                    }
                }
                // In a drain: a session that knows nothing of it would close.
                Action::ReceivePending { .. } if self.awaits_input(cx.now) => {
                    return Action::Wait {
                        read: self.computing == Computing::No,
                        hang_up: false,
                    };
                }
                // Output in pieces: what was known of the input before the last one is old.
                Action::ReceivePending { .. } => return Action::ReceivePending { certain: true },
                Action::Wait { read, hang_up } => {
                    return Action::Wait {
                        read: self.computing == Computing::No && (read || !self.layer.is_open()),
                        hang_up,
                    };
                }
                action => return action,
            }
        }
    }

    fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        if self.is_ending() {
            return;
        }
        let mut plain = cx.pool.buffers.take(bytes.len());
        let result = self.layer.received(bytes, &mut plain, &mut self.out);
        self.take_in(plain, result, cx);
    }

    fn layer_opened(&mut self, _security: &Arc<Security>, _cx: &mut Context<'_>) {}

    fn delayed(&mut self, us: u64) {
        if !self.is_open {
            self.arriving.delayed(us);
        }
    }

    fn received_eof(&mut self, cx: &mut Context<'_>) {
        if self.computing != Computing::No {
            self.computing = Computing::OrderedBeforeEof;
        } else if !std::mem::replace(&mut self.eof, true) {
            if self.is_handshaking() {
                self.layer.abandoned();
            } else if !self.layer.has_ended() {
                self.layer.truncated();
            }
            self.session.received_eof(cx);
        }
    }

    fn half_closed(&mut self) {
        self.session.half_closed();
    }

    fn nothing_pending(&mut self, cx: &mut Context<'_>) {
        self.session.nothing_pending(cx);
    }

    fn hold_requests(&mut self, are_held: bool) -> bool {
        self.session.hold_requests(are_held)
    }

    /// The session's part of it, for its minimum rate.
    fn progressed(&mut self, bytes: u64, cx: &mut Context<'_>) {
        let Some(batch) = &mut self.in_flight else {
            return;
        };
        batch.bytes_sent += bytes;
        let plain = batch.plain * batch.bytes_sent / batch.bytes.max(1) - batch.plain_sent;
        batch.plain_sent += plain;
        if plain > 0 {
            self.session.progressed(plain, cx);
        }
    }

    fn sent(&mut self, transmit: Transmit, cx: &mut Context<'_>) {
        cx.pool.give_segments(transmit.into_segments());
        let Some(batch) = self.in_flight.take() else {
            return;
        };
        if self.end == End::Last && self.output.is_none() && self.out.is_empty() {
            self.end = End::Closed;
        }
        // `out` may hold a handshake's bytes by now, but none of the session's: they come after `sent`.
        if let Some((done, _)) = self.output.take_if(|(rest, _)| rest.is_done()) {
            self.session.sent(done, cx);
        } else if batch.plain > batch.plain_sent {
            self.session.progressed(batch.plain - batch.plain_sent, cx);
        }
    }

    fn filled(&mut self, mut fill: Box<Fill>, cx: &mut Context<'_>) {
        self.filling = Filling::No;
        let buffer = std::mem::take(&mut fill.buffer);
        if self.is_ending() {
            return cx.pool.buffers.give(buffer);
        }
        if buffer.len() < fill.len {
            self.session.abort(CloseReason::Failed); // the file has become shorter
            self.end = End::Closed;
        } else if let Some((transmit, _)) = &mut self.output {
            if self.out.capacity() == 0 {
                self.out = cx.pool.buffers.take(buffer.len());
            }
            self.layer.send(&buffer, &mut self.out);
            self.out_plain += buffer.len() as u64;
            transmit.advance(buffer.len() as u64);
        }
        cx.pool.buffers.give(buffer);
    }

    fn not_cached(&mut self, fill: Box<Fill>, _cx: &mut Context<'_>) {
        self.filling = Filling::NotCached(fill);
    }

    fn cached(&mut self, cx: &mut Context<'_>) {
        self.filling = match std::mem::replace(&mut self.filling, Filling::No) {
            Filling::NotCached(mut fill) => {
                fill.is_cached = true;
                self.session.cached(cx);
                Filling::Cached(fill)
            }
            filling => filling,
        };
    }

    fn computed(&mut self, computation: Box<dyn Computation>, cx: &mut Context<'_>) {
        let computing = std::mem::replace(&mut self.computing, Computing::No);
        self.arriving.computed(cx.now);
        if self.is_ending() {
            return;
        }
        let mut plain = cx.pool.buffers.take(0);
        let result = (self.layer).computed(computation, &mut plain, &mut self.out);
        self.take_in(plain, result, cx);
        if computing == Computing::OrderedBeforeEof {
            self.received_eof(cx);
        }
    }

    fn peer_gone(&mut self, cx: &mut Context<'_>) {
        self.gone = true;
        if self.is_handshaking() {
            self.layer.abandoned();
        }
        self.session.peer_gone(cx);
    }

    fn ran(&mut self, exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>) {
        self.session.ran(exchange, outcome, cx);
    }

    fn completed(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        self.session.completed(exchange, cx);
    }

    fn answered(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        self.session.answered(exchange, cx);
    }

    fn consumed(&mut self, stream: StreamId, bytes: usize, cx: &mut Context<'_>) {
        self.session.consumed(stream, bytes, cx);
    }

    fn produced(&mut self, stream: StreamId, piece: Piece, cx: &mut Context<'_>) {
        self.session.produced(stream, piece, cx);
    }

    fn expired(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_none_or(|deadline| deadline > cx.now) {
            return;
        }
        self.arriving.expired(cx.now);
        let handshake = self.handshake_deadline();
        let is_late = handshake.is_some_and(|until| until <= cx.now) || self.is_record_late(cx.now);
        if self.layer.is_open() && !self.is_ending() && !is_late {
            return self.session.expired(cx);
        }
        if self.is_handshaking() && !self.is_ending() {
            self.layer.timed_out();
        }
        cx.counters.fault(&Fault::timeout(
            None,
            "time was up for a handshake, a record or an end",
        ));
        self.abort(CloseReason::Slow);
    }

    /// Beside what the session says: a handshake that has begun is awaited, and then its first request for
    /// a moment; and so is the rest of a record.
    fn draining(&mut self, cx: &mut Context<'_>) {
        self.arriving.draining();
        self.session.draining(cx);
    }

    /// An answer would take a handshake first: it is closed.
    fn refuse(&mut self, reason: CloseReason, _cx: &mut Context<'_>) {
        self.abort(reason);
    }

    fn abort(&mut self, reason: CloseReason) {
        self.session.abort(reason);
        self.end = End::Closed;
    }

    fn keep_record(&mut self, record: Option<Box<ConnectionRecord>>) {
        self.session.keep_record(record);
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        cx.pool.buffers.give(std::mem::take(&mut self.out));
        self.drop_fill(cx);
        if let Some((transmit, _)) = self.output.take() {
            cx.pool.give_segments(transmit.into_segments());
        }
        self.session.release(cx);
    }

    fn ended(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        self.release(cx);
        self.session.ended(cx)
    }

    fn deadline(&self) -> Option<Millis> {
        let limits = &self.config.limits;
        match self.end {
            End::Closed => None,
            End::Last => Some(limits.linger_pace.deadline(self.since, 0)),
            _ if self.computing != Computing::No => None,
            _ if !self.layer.is_open() => self.handshake_deadline(),
            _ if !matches!(self.filling, Filling::No) => None,
            _ => {
                let all = [self.handshake_deadline(), self.session_deadline()];
                all.into_iter().flatten().min()
            }
        }
    }

    fn is_idle(&self) -> bool {
        let nothing_out = self.out.is_empty() && self.in_flight.is_none();
        let nothing_in = self.arriving.record_since().is_none();
        nothing_out && nothing_in && self.layer.is_open() && self.session.is_idle()
    }

    fn client_address(&self) -> Option<IpAddr> {
        self.session.client_address()
    }

    fn proxied_client(&self) -> Option<ClientKey> {
        self.session.proxied_client()
    }

    fn is_before_handshake(&self) -> bool {
        !self.layer.has_begun()
    }

    fn handshake_us(&self, now: Millis) -> u64 {
        self.arriving.handshake(now).counted_us(0)
    }

    fn is_multiplexed(&self) -> bool {
        self.session.is_multiplexed()
    }

    fn has_steps(&self) -> bool {
        self.session.has_steps()
    }

    fn is_cut(&self) -> bool {
        self.session.is_cut()
    }

    fn has_work_out(&self) -> bool {
        self.computing != Computing::No || matches!(self.filling, Filling::NotCached(_))
    }

    fn awaits_client_since(&self) -> Option<Millis> {
        match self.layer.is_open() && matches!(self.end, End::Open | End::Said) {
            _ if self.computing != Computing::No => None,
            true => (self.record_awaited_since()).or_else(|| self.session.awaits_client_since()),
            false => Some(self.since), // a handshake, or the end
        }
    }

    fn held_bytes(&self) -> usize {
        let in_flight = self.in_flight.map_or(0, |batch| batch.bytes as usize);
        let layer = self.layer.held_bytes();
        size_of::<Self>() + layer + self.out.capacity() + in_flight + self.session.held_bytes()
    }
}
