//! One client: it has at most one connection at a time, and at most one request.

use std::os::fd::OwnedFd;

use loadline_base::Token;
use loadline_proto::ClientSession;
use sha2::Sha256;

use crate::recorder::Stamps;

/// Where a client's connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Closed,
    /// It is being opened, with or without a request that waits for it.
    Connecting,
    /// It is there, and the handshake of its layer is not over.
    Handshaking,
    /// Open, and nothing is out.
    Idle,
    /// A part of the request is still to be taken by the kernel.
    Sending,
    /// The request is out.
    Awaiting,
}

impl Stage {
    /// Whether a connection is in the making.
    pub(super) fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting | Self::Handshaking)
    }
}

/// A client. Kept within two cache lines: at 10,000 connections each event finds it cold.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// When things happened to the request in hand; `due_ns` also of the next one, while it waits.
    pub(super) stamps: Stamps,
    /// When the attempt in hand was due: of a first attempt, as the request.
    pub(super) attempt_due_ns: u64,
    /// Until when the stage may last: connecting, the answer, or a pause.
    pub(super) deadline_ns: u64,
    pub(super) session: ClientSession,
    /// Of an answer whose content is being checked.
    pub(super) hasher: Option<Box<Sha256>>,
    pub(super) socket: Option<OwnedFd>,
    /// Which connection of this client: an event for an earlier one misses.
    pub(super) generation: u32,
    /// Index into `Mix::requests`.
    pub(super) request: u32,
    /// Bytes of the request that the kernel has taken.
    pub(super) sent_bytes: u32,
    /// Requests that this connection may still carry.
    pub(super) requests_left: u32,
    pub(super) pause_ms: u16,
    /// What the answer in hand asks to wait before another attempt; 0: nothing.
    pub(super) retry_after_s: u16,
    /// Index into `Plan::servers`.
    pub(super) server: u16,
    /// That in which the request was due.
    pub(super) phase: u16,
    /// Attempts that the request in hand has had before this one.
    pub(super) retries: u8,
    /// Whether the first byte of the request in hand has left, in this attempt or in one before.
    pub(super) was_sent: bool,
    /// Whether it was sent in this attempt, and waits to be sent again (`put_back`): it counts as in flight.
    pub(super) is_put_back: bool,
    pub(super) stage: Stage,
    pub(super) has_request: bool,
    /// Whether this connection is opened without a request: the opener counts it.
    pub(super) is_opening: bool,
    /// Whether it waits before it tries again.
    pub(super) is_pausing: bool,
    /// Whether a timer is set.
    pub(super) is_timed: bool,
    /// Whether it stands in the opener's queue.
    pub(super) is_queued: bool,
    /// Whether this connection has brought an answer.
    pub(super) is_used: bool,
}

/// The first pause after a failed attempt to connect, or a connection that brought no answer.
const PAUSE_MS_MIN: u16 = 10;
/// The longest one: a server that comes back is found within it.
const PAUSE_MS_MAX: u16 = 1000;

impl Client {
    /// Without a connection, for this server.
    pub(super) fn new(server: u16) -> Self {
        Self {
            server,
            ..Self::default()
        }
    }

    /// A socket has begun to connect.
    pub(super) fn begin(&mut self, socket: OwnedFd, requests: u32, deadline_ns: u64) {
        self.session = ClientSession::new();
        self.socket = Some(socket);
        self.requests_left = requests;
        self.deadline_ns = deadline_ns;
        self.is_used = false;
        self.stage = Stage::Connecting;
    }

    /// Parts with the connection, if there is one; its events miss from now on.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.generation = self.generation.wrapping_add(1);
        self.stage = Stage::Closed;
    }

    /// How long to wait after one more of them: twice as long as the last time.
    pub(super) fn next_pause_ms(&mut self) -> u16 {
        self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_MS_MIN, PAUSE_MS_MAX);
        self.pause_ms
    }

    /// Whether a request is out, wholly or in part, or a connection in the making.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Closed | Stage::Idle)
    }

    /// The name of its connection in events.
    pub(super) fn token(&self, index: u32) -> Token {
        Token {
            index,
            generation: self.generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_fits_two_cache_lines() {
        assert!(size_of::<Client>() <= 136, "{}", size_of::<Client>());
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let mut client = Client::new(0);
        let pauses: Vec<u16> = (0..9).map(|_| client.next_pause_ms()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
