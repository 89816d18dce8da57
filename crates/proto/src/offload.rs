//! HTTP/1 that workers parse.
//!
//! The owner of the connection, a loop, receives and sends. What it has received goes to a worker together with the
//! session itself ([`Offload`]): the worker parses it, carries requests out and encodes their responses. Meanwhile
//! what happens to the connection is kept here.
//!
//! ```text
//!        received          Compute                                              computed
//!  here ──────────► (kept) ───────► at a worker: parse · next_step · ran · … ─────────────► here
//! ```
//!
//! The loop itself does what reads and writes: it sends, closes, and serves a request that an app's task has, until
//! that has ended. HTTP/2, and HTTP/1 over a layer such as TLS, is not parsed by workers.

use core::any::Any;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use loadline_base::{Millis, Transmit};

use crate::{
    Action, ClientKey, CloseReason, Computation, ConnectionRecord, Context, Exchange, Fill, HangUp,
    Http1Session, Outcome, Piece, Protocol, Security, ServerSession, Session, SessionConfig,
    StreamId, Then,
};

impl Protocol {
    /// The same as `Http`, but workers parse the requests of HTTP/1, carry them out and encode the responses
    /// ([`OffloadedSession`]).
    pub const OFFLOADED: Self =
        Self::Other(|config, peer, cx| Box::new(OffloadedSession::new(config, peer, cx)));
}

/// A session on its way to a worker and back, with what it has received.
#[derive(Debug)]
pub struct Offload {
    session: ServerSession,
    /// Something was kept that is to be parsed, and of how many bytes it is.
    is_due: bool,
    came: usize,
    /// The peer will send no more, behind that.
    is_at_end: bool,
    /// What has left, if something to be parsed came before it had.
    sent: Option<Transmit>,
    /// What the worker leaves to the owner.
    order: Option<Action>,
    /// Of the connection that it is away from.
    hang_up: HangUp,
}

impl Offload {
    /// HTTP/1 that would parse what it receives now.
    fn parser(&mut self) -> Option<&mut Http1Session> {
        match &mut self.session {
            ServerSession::Http1(http1) if http1.parses() => Some(http1),
            _ => None,
        }
    }

    /// Whether the next thing to be done is a worker's.
    fn is_for_worker(&self) -> bool {
        let ServerSession::Http1(http1) = &self.session else {
            return false;
        };
        let is_out = http1.is_sending() && self.sent.is_none();
        let has_input = self.is_due || self.sent.is_some();
        !is_out && (http1.has_step_due() || (has_input && http1.parses()))
    }

    /// Parses what was received: the first thing that a worker does.
    pub fn parse(&mut self, is_draining: bool, cx: &mut Context<'_>) {
        let came = std::mem::take(&mut self.came);
        let is_due = std::mem::take(&mut self.is_due);
        if let Some(transmit) = self.sent.take() {
            self.session.sent(transmit, cx);
        } else if is_due && let Some(http1) = self.parser() {
            http1.parse(came, cx);
        }
        if std::mem::take(&mut self.is_at_end) {
            self.session.received_eof(cx);
        }
        if is_draining {
            self.session.draining(cx);
        }
    }

    /// The next step of a request: `Run`, or `Block` if this thread may block. `None`: what comes next is the owner's.
    pub fn next_step(&mut self, may_block: bool, cx: &mut Context<'_>) -> Option<Action> {
        match self.session.next_action(cx) {
            step @ Action::Run(_) => return Some(step),
            step @ Action::Block(_) if may_block => return Some(step),
            Action::Wait { .. } | Action::Close => {} // the session orders it again
            order => self.order = Some(order),
        }
        None
    }

    /// The quick step ran: see [`Session::ran`].
    pub fn ran(&mut self, exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>) {
        self.session.ran(exchange, outcome, cx);
    }

    /// The blocking step is done: see [`Session::completed`].
    pub fn completed(&mut self, exchange: Box<Exchange>, is_draining: bool, cx: &mut Context<'_>) {
        if is_draining {
            self.session.draining(cx);
        }
        self.session.completed(exchange, cx);
    }

    /// `Some`: what is to be done instead of `Computation::carry_out`, by a thread that has a handler. It may block.
    pub fn of(computation: &mut dyn Computation) -> Option<&mut Self> {
        let any: &mut dyn Any = computation;
        any.downcast_mut()
    }

    /// A worker has panicked over it: the connection is to be closed.
    pub fn give_up(&mut self) {
        self.order = None;
        self.session.abort(CloseReason::Failed);
    }
}

impl Computation for Offload {
    /// It takes a handler: `Offload::of`.
    fn carry_out(&mut self) {}

    fn is_abandoned(&self) -> bool {
        self.hang_up.is_gone()
    }
}

/// HTTP/1 in plain text that workers parse; HTTP/2 by prior knowledge is served as ever.
#[derive(Debug)]
pub struct OffloadedSession {
    /// `None`: a worker has it.
    here: Option<Box<Offload>>,
    /// What came meanwhile. No more than what was on its way when the owner stopped receiving.
    input: Vec<u8>,
    is_at_end: bool,
    is_gone: bool,
    is_draining: bool,
    /// What holds of it until it is back.
    client: Option<IpAddr>,
    proxied: Option<ClientKey>,
    held_bytes: usize,
    record: Option<Box<ConnectionRecord>>,
    /// Why it is closed before it is back.
    reason: Option<CloseReason>,
    /// Shows a worker that nobody reads the response.
    hang_up: HangUp,
}

/// Nothing is wanted of the client while a worker has the session.
const WAIT_FOR_WORKER: Action = Action::Wait {
    read: false,
    hang_up: false,
};

impl OffloadedSession {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(
        config: &Arc<SessionConfig>,
        peer: Option<SocketAddr>,
        cx: &mut Context<'_>,
    ) -> Self {
        let hang_up = HangUp::default();
        let here = Offload {
            session: ServerSession::new(config, peer, cx),
            is_due: false,
            came: 0,
            is_at_end: false,
            sent: None,
            order: None,
            hang_up: hang_up.clone(),
        };
        Self {
            here: Some(Box::new(here)),
            input: Vec::new(),
            is_at_end: false,
            is_gone: false,
            is_draining: false,
            client: None,
            proxied: None,
            held_bytes: 0,
            record: None,
            reason: None,
            hang_up,
        }
    }

    /// Orders that a worker takes it.
    fn leave(&mut self, here: Box<Offload>) -> Action {
        let session = &here.session;
        self.hang_up.reset();
        self.client = session.client_address();
        self.proxied = session.proxied_client();
        self.held_bytes = session.held_bytes();
        if let ServerSession::Http1(http1) = session {
            self.record = http1.record().cloned().map(Box::new);
        }
        Action::Compute(here)
    }
}

/// Passes events on to a session that is here. While a worker has it, nothing is out that they could be about.
macro_rules! pass_on {
    ($(fn $event:ident($($arg:ident: $type:ty),*);)+) => {
        $(fn $event(&mut self, $($arg: $type),*) {
            if let Some(here) = &mut self.here {
                here.session.$event($($arg),*);
            }
        })+
    };
}

/// The same with questions, whose answer is otherwise this.
macro_rules! ask {
    ($(fn $question:ident($($arg:ident: $type:ty),*) -> $answer:ty { $away:expr })+) => {
        $(fn $question(&self, $($arg: $type),*) -> $answer {
            match &self.here {
                Some(here) => here.session.$question($($arg),*),
                None => $away,
            }
        })+
    };
}

impl Session for OffloadedSession {
    pass_on! {
        fn layer_opened(security: &Arc<Security>, cx: &mut Context<'_>);
        fn delayed(us: u64);
        fn half_closed();
        fn nothing_pending(cx: &mut Context<'_>);
        fn progressed(bytes: u64, cx: &mut Context<'_>);
        fn filled(fill: Box<Fill>, cx: &mut Context<'_>);
        fn not_cached(fill: Box<Fill>, cx: &mut Context<'_>);
        fn cached(cx: &mut Context<'_>);
        fn ran(exchange: Box<Exchange>, outcome: Outcome, cx: &mut Context<'_>);
        fn completed(exchange: Box<Exchange>, cx: &mut Context<'_>);
        fn answered(exchange: Box<Exchange>, cx: &mut Context<'_>);
        fn consumed(stream: StreamId, bytes: usize, cx: &mut Context<'_>);
        fn produced(stream: StreamId, piece: Piece, cx: &mut Context<'_>);
        fn expired(cx: &mut Context<'_>);
        fn refuse(reason: CloseReason, cx: &mut Context<'_>);
        fn keep_record(record: Option<Box<ConnectionRecord>>);
        fn release(cx: &mut Context<'_>);
    }

    ask! {
        fn is_before_handshake() -> bool { false }
        fn handshake_us(now: Millis) -> u64 { 0 }
        fn is_multiplexed() -> bool { false }
        fn has_steps() -> bool { false }
        fn is_cut() -> bool { false }
        fn has_work_out() -> bool { true }
    }

    fn client_address(&self) -> Option<IpAddr> {
        let here = self.here.as_ref();
        here.map_or(self.client, |here| here.session.client_address())
    }

    fn proxied_client(&self) -> Option<ClientKey> {
        let here = self.here.as_ref();
        here.map_or(self.proxied, |here| here.session.proxied_client())
    }

    fn next_action(&mut self, cx: &mut Context<'_>) -> Action {
        let Some(mut here) = self.here.take() else {
            return match self.reason {
                Some(_) => Action::Close,
                None => WAIT_FOR_WORKER,
            };
        };
        if let Some(order) = here.order.take() {
            self.here = Some(here);
            return order;
        }
        if here.is_for_worker() {
            return self.leave(here);
        }
        let action = here.session.next_action(cx);
        self.here = Some(here);
        action
    }

    fn received(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) {
        let Some(here) = &mut self.here else {
            return self.input.extend_from_slice(bytes);
        };
        here.session.follow_preface(bytes, cx);
        if let Some(http1) = here.parser() {
            http1.keep(bytes, cx);
            here.is_due = true;
            here.came += bytes.len();
        } else {
            here.session.received(bytes, cx);
        }
    }

    fn received_eof(&mut self, cx: &mut Context<'_>) {
        let Some(here) = &mut self.here else {
            self.is_at_end = true;
            return;
        };
        let is_behind_input = here.is_due || here.sent.is_some();
        match is_behind_input && here.parser().is_some() {
            true => here.is_at_end = true,
            false => here.session.received_eof(cx),
        }
    }

    fn hold_requests(&mut self, are_held: bool) -> bool {
        let here = self.here.as_mut();
        here.is_some_and(|here| here.session.hold_requests(are_held))
    }

    /// What came before output had left is parsed then: by a worker.
    fn sent(&mut self, transmit: Transmit, cx: &mut Context<'_>) {
        let Some(here) = &mut self.here else {
            return cx.pool.give_segments(transmit.into_segments());
        };
        let is_parsed_then = here.parser().is_some_and(|http1| http1.has_unparsed());
        match is_parsed_then {
            true => here.sent = Some(transmit),
            false => here.session.sent(transmit, cx),
        }
    }

    /// A worker is done with it, or the owner has no room for it there and has had its requests refused.
    fn computed(&mut self, computation: Box<dyn Computation>, cx: &mut Context<'_>) {
        let computation: Box<dyn Any> = computation;
        let Ok(mut here) = computation.downcast::<Offload>() else {
            return;
        };
        let mut input = std::mem::take(&mut self.input);
        let is_at_end = std::mem::take(&mut self.is_at_end);
        let is_draining = std::mem::take(&mut self.is_draining);
        // What follows the output is no longer what the worker has expected.
        if (!input.is_empty() || is_at_end || is_draining)
            && let Some(Action::Send { then, .. }) = &mut here.order
        {
            *then = Then::More;
        }
        if is_draining {
            here.session.draining(cx);
        }
        self.here = Some(here);
        if !input.is_empty() {
            self.received(&mut input, cx);
        }
        if is_at_end {
            self.received_eof(cx);
        }
        if self.is_gone {
            self.peer_gone(cx);
        }
    }

    fn peer_gone(&mut self, cx: &mut Context<'_>) {
        match &mut self.here {
            // Not idle: a request may have come.
            Some(here) if here.is_for_worker() => here.session.abort(CloseReason::Vanished),
            Some(here) => here.session.peer_gone(cx),
            None => {
                self.is_gone = true;
                self.hang_up.close();
            }
        }
    }

    /// Behind what is still to be parsed.
    fn draining(&mut self, cx: &mut Context<'_>) {
        match &mut self.here {
            Some(here) if !here.is_for_worker() => here.session.draining(cx),
            _ => self.is_draining = true,
        }
    }

    fn abort(&mut self, reason: CloseReason) {
        match &mut self.here {
            Some(here) => here.session.abort(reason),
            None => {
                self.reason = Some(reason);
                self.hang_up.close();
            }
        }
    }

    fn ended(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        if let Some(here) = &mut self.here {
            return here.session.ended(cx);
        }
        let reason = self.reason.unwrap_or(CloseReason::Failed);
        cx.counters.close(reason);
        let mut record = self.record.take();
        if let Some(record) = &mut record {
            record.reason = reason;
        }
        record
    }

    fn is_idle(&self) -> bool {
        let here = self.here.as_ref();
        here.is_some_and(|here| !here.is_for_worker() && here.session.is_idle())
    }

    /// Not while something that has come is still to be parsed.
    fn deadline(&self) -> Option<Millis> {
        let here = self.here.as_ref().filter(|here| !here.is_for_worker())?;
        here.session.deadline()
    }

    /// The same.
    fn awaits_client_since(&self) -> Option<Millis> {
        let here = self.here.as_ref().filter(|here| !here.is_for_worker())?;
        here.session.awaits_client_since()
    }

    /// An idle connection is counted as every other.
    fn held_bytes(&self) -> usize {
        let session = self.here.as_ref().map(|here| here.session.held_bytes());
        session.unwrap_or(self.held_bytes) + self.input.capacity()
    }
}

#[cfg(test)]
mod tests;
