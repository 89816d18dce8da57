//! One connection of a server as a state machine: facts in, orders out.

use core::net::SocketAddr;
use std::sync::Arc;

use loadline_base::{Millis, Transmit};

use crate::{CloseReason, ErrorPages, Exchange, Limits, Outcome, Status, Turn};

/// What every connection of a server has in common.
#[derive(Debug)]
pub struct SessionConfig {
    /// The bounds.
    pub limits: Limits,
    /// Whether a connection may serve more than one request.
    pub keep_alive: bool,
    /// Content of error answers.
    pub error_pages: ErrorPages,
}

/// What the owner of a session has to do next.
#[derive(Debug)]
#[must_use]
pub enum Action {
    /// The handler's quick step, on the owner's thread; give back with `ran`.
    Run(Box<Exchange>),
    /// The handler's blocking step, where blocking is allowed; give back with `completed`.
    Block(Box<Exchange>),
    /// Deliver this; give back with `sent`. One at a time.
    Send(Transmit),
    /// Half-close: no more output will come. (`shutdown(SHUT_WR)`.)
    Finish,
    /// Nothing more until a fact; `read`: are bytes welcome?
    Wait {
        /// Whether bytes may be received now.
        read: bool,
    },
    /// Close the connection; then nothing follows but `ended`.
    Close,
}

/// What a connection needs only while something is in progress.
#[derive(Debug, Default)]
pub(crate) struct Progress {}

/// One connection of a server.
#[derive(Debug)]
pub struct ServerSession {
    config: Arc<SessionConfig>,
}

#[allow(unused_variables)]
impl ServerSession {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(config: &Arc<SessionConfig>, peer: Option<SocketAddr>, turn: &mut Turn<'_>) -> Self {
        Self {
            config: Arc::clone(config),
        }
    }

    /// Bytes came. Welcome after `Wait { read: true }`, bounded otherwise by what the loop reads at
    /// once. (`&mut`: a later TLS layer decrypts in place.)
    pub fn received(&mut self, bytes: &mut [u8], turn: &mut Turn<'_>) {}

    /// The peer will send no more (a half-close): answers still go out.
    pub fn received_eof(&mut self, turn: &mut Turn<'_>) {}

    /// Part of what is out has left; for the minimum rate.
    pub fn progressed(&mut self, bytes: u64, turn: &mut Turn<'_>) {}

    /// All of what was out has left.
    pub fn sent(&mut self, transmit: Transmit, turn: &mut Turn<'_>) {}

    /// The peer is gone altogether (reset, hang-up). `Close` follows.
    pub fn peer_gone(&mut self, turn: &mut Turn<'_>) {}

    /// The quick step ran.
    pub fn ran(&mut self, exchange: Box<Exchange>, outcome: Outcome, turn: &mut Turn<'_>) {}

    /// The blocking step is done (or was refused: then the answer says so).
    pub fn completed(&mut self, exchange: Box<Exchange>, turn: &mut Turn<'_>) {}

    /// `deadline` has passed. Told too early, it changes nothing.
    pub fn expired(&mut self, turn: &mut Turn<'_>) {}

    /// The server is going down: finish what was accepted, say `Connection: close`, then `Close`.
    /// An idle connection closes at once, so read what has arrived before telling it.
    pub fn draining(&mut self, turn: &mut Turn<'_>) {}

    /// Answer a newcomer with this status and close, without reading a request.
    pub fn refuse(&mut self, status: Status, turn: &mut Turn<'_>) {}

    /// Close without an answer, for this reason.
    pub fn abort(&mut self, reason: CloseReason) {}

    /// The next order. To be asked after every fact until it says `Wait` or `Close`.
    pub fn next_action(&mut self, turn: &mut Turn<'_>) -> Action {
        Action::Close
    }

    /// The connection is closed: memory goes back to the pool, the close is counted by its reason.
    pub fn ended(self, turn: &mut Turn<'_>) {}

    /// When to call `expired`. `None` while only the server itself is awaited.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        None
    }

    /// Between requests with nothing received: may be closed to make room.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        false
    }
}
