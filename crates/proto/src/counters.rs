//! What one serving thread counts; summed over threads on demand.

use loadline_base::Counter;

use crate::latency::{Latencies, UNMEASURED};
use crate::{Blame, Exchange, Fault, Status};

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CloseReason {
    /// The client ended it between requests.
    Client,
    /// An answer said `Connection: close`.
    Finished,
    /// Idle for too long.
    Idle,
    /// Too slow with a head, a body or taking an answer.
    Slow,
    /// A bad request, after its answer.
    BadRequest,
    /// The client vanished in the middle.
    Vanished,
    /// Closed idle to make room for a new connection.
    Evicted,
    /// Closed in the middle of something, for a client with far fewer connections.
    OverShare,
    /// Closed because memory was short.
    Memory,
    /// A new connection refused with 503 at the cap.
    Refused,
    /// A new connection refused with 503 because there was no memory for it.
    RefusedMemory,
    /// A new connection closed without an answer at a loop's capacity.
    OverCapacity,
    /// The server is going down.
    Drained,
    /// Something failed here: a file changed while being sent, say.
    Failed,
}

impl CloseReason {
    /// Its name in the status page and in the journal of connections.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        let own = all.find(|(reason, _)| *reason == self);
        own.map_or("failed", |(_, name)| name)
    }

    /// Every reason with its name in the status page.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::Client, "client"),
        (Self::Finished, "finished"),
        (Self::Idle, "idle"),
        (Self::Slow, "slow"),
        (Self::BadRequest, "bad_request"),
        (Self::Vanished, "vanished"),
        (Self::Evicted, "evicted"),
        (Self::OverShare, "over_share"),
        (Self::Memory, "memory"),
        (Self::Refused, "refused"),
        (Self::RefusedMemory, "refused_memory"),
        (Self::OverCapacity, "over_capacity"),
        (Self::Drained, "drained"),
        (Self::Failed, "failed"),
    ];
}

/// What clients of HTTP/2 do, or are kept from doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Http2Count {
    /// Connections that speak HTTP/2.
    Connections,
    /// Streams that clients have reset.
    ClientResets,
    /// Streams that the server has reset, for whatever reason.
    ServerResets,
    /// Streams refused since there were too many at one time, or their heads were too large together, or since they
    /// could not be begun in time.
    RefusedStreams,
    /// Streams ended since the client did not take its response, or send its content.
    SlowStreams,
    /// Connections ended for too many resets, settings, priorities or empty frames; behind a trusted proxy
    /// requests refused for too many of their client's resets.
    Floods,
    /// Requests refused for a head that is larger than allowed (431).
    LargeHeads,
    /// Connections ended for a field block that is larger than allowed.
    LargeBlocks,
    /// Connections ended for another fault of the client's.
    Errors,
    /// Times that a client was not read from, since it did not read.
    Unread,
}

impl Http2Count {
    /// Each with its name in the status page.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Connections, "connections"),
        (Self::ClientResets, "client_resets"),
        (Self::ServerResets, "server_resets"),
        (Self::RefusedStreams, "refused_streams"),
        (Self::SlowStreams, "slow_streams"),
        (Self::Floods, "floods"),
        (Self::LargeHeads, "large_heads"),
        (Self::LargeBlocks, "large_blocks"),
        (Self::Errors, "errors"),
        (Self::Unread, "unread"),
    ];
}

/// Counts of one serving thread. Written by that thread only.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests whose answer was begun, by status class 1xx..5xx (index 0 is 1xx).
    pub answers: [Counter; 5],
    /// Those of them that refuse a request, for want of time or room (`Exchange::refuse`).
    pub refusals: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Faults by blame: peer, local, limit, timeout.
    pub faults: [Counter; 4],
    /// Connections taken over.
    pub accepted: Counter,
    /// Connections closed, by reason.
    pub closed: [Counter; CloseReason::ALL.len()],
    /// What clients of HTTP/2 do; indexed by `Http2Count as usize`.
    pub http2: [Counter; Http2Count::ALL.len()],
    /// How long requests took.
    pub latencies: Latencies,
    /// Complete responses that are in no latencies, and no refusals: the server's own pages.
    pub own_pages: Counter,
    /// Requests refused because there was no memory for their content.
    pub content_refused_memory: Counter,
}

impl Counters {
    /// Notes a complete response that is in no latencies.
    pub(crate) fn unmeasured(&self, status: Status) {
        self.own_pages
            .add(u64::from(status != Status::SERVICE_UNAVAILABLE));
    }

    /// Notes the answer to a request.
    pub(crate) fn answer_to(&self, exchange: &Exchange) {
        let status = exchange.response.status;
        self.answer(status);
        if status == Status::SERVICE_UNAVAILABLE && exchange.mount == UNMEASURED {
            self.refusals.add(1);
        }
    }

    /// Notes an answer.
    pub fn answer(&self, status: Status) {
        let class = usize::from(status.code() / 100).clamp(1, 5) - 1;
        self.answers[class].add(1);
    }

    /// Notes a fault.
    pub fn fault(&self, fault: &Fault) {
        let index = match fault.blame {
            Blame::Peer => 0,
            Blame::Local => 1,
            Blame::Limit => 2,
            Blame::Timeout => 3,
        };
        self.faults[index].add(1);
    }

    /// Notes what a client of HTTP/2 does.
    pub fn http2(&self, what: Http2Count) {
        self.http2[what as usize].add(1);
    }

    /// Notes that a connection was closed.
    pub fn close(&self, reason: CloseReason) {
        self.closed[reason as usize].add(1);
    }

    /// Answers of every class but 1xx: requests served.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.answers[1..].iter().map(Counter::value).sum()
    }

    /// The same without refusals and the server's own pages.
    #[must_use]
    pub fn served(&self) -> u64 {
        let others = self.refusals.value() + self.own_pages.value();
        self.requests().saturating_sub(others)
    }
}
