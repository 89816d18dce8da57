//! One request and the room for its answer: made, moved between threads and recycled as a whole.

use core::any::Any;
use core::net::SocketAddr;
use std::sync::Arc;

use loadline_base::{Buffer, Millis};

use crate::client::Forwarded;
use crate::{Client, ForwardedField, HandshakeTime, HangUp, Request, Response, Security};

/// The mount of what is not to be measured: the server's own pages, and what was refused.
pub const UNMEASURED: u8 = u8::MAX;

/// The latest time at which a client is to come back if it is not known when there is room for it, in seconds. There
/// may be room at any moment: so it is short, and long enough that not all come back at once.
const RETRY_AFTER_MAX_S: u64 = 5;

/// When a client is to come back if it is not known when there is room for it, in seconds: numbers in a row have
/// all times in turn.
#[must_use]
pub fn spread_retry_after_s(number: u64) -> u32 {
    u32::try_from(1 + number % RETRY_AFTER_MAX_S).unwrap_or(1)
}

/// Which of a connection's requests this is. 0 in HTTP/1, which has one at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

/// A request and its response. Its holder is the only one that can touch it.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Which of the connection's requests this is.
    pub stream: StreamId,
    /// The other end of the connection, perhaps a proxy's; `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The number of the listener that has accepted its connection, in the order of the server's
    /// addresses.
    pub listener: u32,
    /// The number of the part of the site that answers, for latencies by mount: `Handler::mounts` has
    /// its name. `UNMEASURED`: none.
    pub mount: u8,
    /// How much content may be on its way to an app's task and from it, in bytes each. There for
    /// `Handler::start` alone.
    pub stream_window_bytes: usize,
    /// The address that the client has connected to. There for an app's task (`Handler::start`)
    /// alone, since it costs a system call for each connection; `None` over a Unix socket.
    pub local: Option<SocketAddr>,
    /// An event loop polls the app's task or carries out the blocking step, since there are no workers: what
    /// computes for long has no place there. There for `Handler::start` and `Handler::handle_blocking` alone.
    pub is_done_by_loop: bool,
    /// What is known of the connection if its bytes are encrypted; `None`: they are not.
    pub security: Option<Arc<Security>>,
    /// When the head was complete, on the server's clock.
    pub began: Millis,
    /// When the last of what is needed to go on with it came, about: its head, content that is gathered first, or room,
    /// if its client has not taken other responses.
    pub ready: Millis,
    /// Of its connection, if this is the first request behind it.
    pub handshake: HandshakeTime,
    /// The request.
    pub request: Request,
    /// The answer in the making.
    pub response: Response,
    /// Whether its client has left while a worker has it. An app's task learns that by its port.
    pub hang_up: HangUp,
    /// What has taken the handler's quick step, if another step follows: there may be another handler by then.
    /// The server's own.
    pub handler: Option<Arc<dyn Any + Send + Sync>>,
    /// For a handler that wraps another: the other has answered, only the wrapper's own blocking
    /// step is left.
    pub inner_ready: bool,
    /// For a handler that wraps another: the other's answer stays data, so that the wrapper can
    /// change it or hold it back. See `answer_borrowed`.
    pub answer_as_data: bool,
    /// The response stands, as data, if the blocking step is refused: that would only make a better one.
    pub stands_if_refused: bool,
    /// The connection's unsent output, while an answer can be encoded straight into it.
    pub(crate) borrowed_output: Option<BorrowedOutput>,
    /// If it is HTTP/2's.
    pub(crate) borrowed_stream: Option<BorrowedStream>,
    /// Whether the connection can stay open after this answer.
    pub(crate) persist: bool,
    /// For how many seconds it then stays open at least, if that is to be said.
    pub(crate) promised_s: u32,
    /// Whether its connection's bytes are encrypted: known before it is run, and so before `security`.
    pub(crate) is_encrypted: bool,
    /// What trusted proxies say.
    pub(crate) forwarded: Forwarded,
    /// `began` in microseconds.
    pub(crate) began_us: u64,
    /// When it came, as far as the server knows: its latency counts from then.
    pub(crate) came_us: u64,
    pub(crate) unnamed_proxy: Option<ForwardedField>,
}

/// Output of a connection, lent for the handler's quick step.
#[derive(Debug)]
pub(crate) struct BorrowedOutput {
    pub(crate) output: Buffer,
    /// How much of it was there when it was lent.
    pub(crate) len: usize,
}

/// What a response on a stream of HTTP/2 needs beside.
#[derive(Debug)]
pub(crate) struct BorrowedStream {
    /// Fields that are the session's and the connection's, encoded.
    pub(crate) common: Vec<u8>,
    /// Content that may leave with the head, at most.
    pub(crate) content_bytes_max: usize,
    /// How much output there was before the last time that it was sent.
    pub(crate) batch_bytes: usize,
}

impl Exchange {
    /// Who sent it: the client that a trusted proxy names, else the other end of the connection.
    /// `None` on a Unix socket, if no proxy names a client.
    #[must_use]
    pub fn client(&self) -> Option<Client> {
        self.forwarded
            .client
            .or_else(|| self.peer.map(Client::from))
    }

    /// Whether the client has sent it by https: over this connection, or as a trusted proxy says.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_encrypted || self.security.is_some() || self.forwarded.is_secure
    }

    /// Whether other requests of its connection may be in progress beside it (HTTP/2).
    #[must_use]
    pub fn is_multiplexed(&self) -> bool {
        self.stream != StreamId(0)
    }

    /// It had waited for so long before its head was complete, at least: that is known only now.
    pub fn had_waited(&mut self, us: u64) {
        let came_us = self.began_us.saturating_sub(us);
        self.came_us = self.came_us.min(came_us);
    }

    /// Responds that the server has no time or no room for it (503), unless there is a response that stands
    /// all the same. It is not in the latencies: it was not served.
    pub fn refuse(&mut self, retry_after_s: u32) {
        if std::mem::take(&mut self.stands_if_refused) {
            return;
        }
        self.response.overloaded(retry_after_s);
        self.mount = UNMEASURED;
    }

    /// The same if it is not known when there is time or room for it. Clients come back at different times, by their
    /// ports, their streams and the time.
    pub(crate) fn refuse_for_a_while(&mut self) {
        let port = self.peer.map_or(0, |peer| peer.port());
        let number = u64::from(port) + u64::from(self.stream.0) + self.began.0;
        self.refuse(spread_retry_after_s(number));
    }

    /// The field by which it says that it has come through a proxy, if it is a connection's first
    /// request, that proxy is on this machine, and none at all is trusted: then each client of that
    /// proxy is taken for the proxy itself.
    #[must_use]
    pub fn unnamed_proxy(&self) -> Option<ForwardedField> {
        self.unnamed_proxy
    }

    /// Becomes a copy of another's request, to be answered in its place.
    pub(crate) fn copy_request(&mut self, other: &Self) {
        self.stream = other.stream;
        self.listener = other.listener;
        self.mount = other.mount;
        self.peer = other.peer;
        self.is_encrypted = other.is_encrypted;
        self.forwarded = other.forwarded;
        self.security.clone_from(&other.security);
        self.began = other.began;
        self.ready = other.ready;
        self.began_us = other.began_us;
        self.came_us = other.came_us;
        self.request.copy_head(&other.request);
    }

    /// Empties it for the next request, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.stream = StreamId(0);
        self.promised_s = 0;
        self.mount = 0;
        self.peer = None;
        self.local = None;
        self.is_done_by_loop = false;
        self.security = None;
        self.is_encrypted = false;
        self.handler = None;
        self.handshake = HandshakeTime::default();
        self.forwarded = Forwarded::default();
        self.unnamed_proxy = None;
        self.inner_ready = false;
        self.answer_as_data = false;
        self.stands_if_refused = false;
        self.borrowed_output = None;
        self.borrowed_stream = None;
        self.request.clear();
        self.response.clear();
    }

    /// Whether it holds more than 16 KiB, and is freed instead of pooled.
    pub(crate) fn is_oversized(&self) -> bool {
        self.held_bytes() > 16 << 10
    }

    /// Memory that it holds beside itself, but for content.
    pub(crate) fn held_bytes(&self) -> usize {
        let response = self.response.fields.memory_bytes() + self.response.spare.capacity();
        self.request.head.capacity() + response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::latency::Timing;

    fn retry_after_s(port: u16, stream: u32, began_ms: u64) -> u32 {
        let mut exchange = Exchange {
            stream: StreamId(stream),
            peer: Some(([192, 0, 2, 1], port).into()),
            began: Millis(began_ms),
            ..Exchange::default()
        };
        exchange.refuse_for_a_while();
        let text = exchange.response.fields.get("Retry-After").unwrap();
        std::str::from_utf8(text).unwrap().parse().unwrap()
    }

    /// All of them came back after a second.
    #[test]
    fn clients_without_room_come_back_at_different_times() {
        let all: BTreeSet<u32> = (1..=5).collect();
        let connections: BTreeSet<_> = (0..50)
            .map(|index| retry_after_s(40_000 + 2 * index, 0, 7))
            .collect();
        let streams: BTreeSet<_> = (0..50)
            .map(|index| retry_after_s(40_000, 2 * index + 1, 7))
            .collect();
        let later: BTreeSet<_> = (0..50).map(|ms| retry_after_s(40_000, 0, ms)).collect();
        for seen in [connections, streams, later] {
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn what_is_known_twice_of_a_wait_counts_once() {
        let mut exchange = Exchange {
            began_us: 900,
            came_us: 850,
            ..Exchange::default()
        };
        let came_us = [20, 300, 300].map(|us| {
            exchange.had_waited(us);
            exchange.came_us
        });
        assert_eq!(came_us, [850, 600, 600]);
    }

    /// It counted for the listener of the request that had the copy's memory before.
    #[test]
    fn a_response_in_the_place_of_an_app_is_measured_as_that_of_the_app() {
        let exchange = Exchange {
            listener: 2,
            mount: 1,
            began_us: 7,
            came_us: 5,
            ..Exchange::default()
        };
        let mut copy = Exchange {
            listener: 3,
            ..Exchange::default()
        };
        copy.copy_request(&exchange);
        assert_eq!(Timing::of(&copy), Timing::of(&exchange));
    }
}
