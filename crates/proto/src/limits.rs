//! Every bound on input, output and time of a connection, each with its reason. Those of a client's
//! connection of HTTP/2 are in `http2_client/bounds.rs`.

use loadline_base::Millis;

/// What every architecture receives at once, if that much has come: 4 KiB, the buffer of a ring; other
/// owners of a session receive a multiple of it. Chunked content that comes in the same 4 KiB as the
/// end of its head is judged with the head, under every architecture.
pub const RECEIVE_BYTES: usize = 4 << 10;

/// How long a new connection may take with its first request while the server goes down, in milliseconds:
/// from when it is accepted, and from the end of its handshake. The connection was complete, so its
/// request is as good as on its way.
pub const FIRST_REQUEST_GRACE_MS: u64 = 250;

/// Heads of all requests in progress on an HTTP/2 connection may be an eighth of what they could come to, 512 KiB by
/// default: 4 KiB for each of 128 requests, more than browsers send with some cookies. They need not have been sent:
/// HPACK makes 120 heads of 27 KB, 3.2 MB, of 10 KB.
const HEADS_DIVISOR: usize = 8;
/// So much in any case: eight of the largest heads by default, where few requests are allowed.
const HEADS_BYTES_MIN: usize = 256 << 10;
/// While the process has no memory left, no more than this: some dozens of requests with 1 or 2 KiB each, as a
/// page of a website causes.
const HEADS_BYTES_MAX_SHORT: usize = 64 << 10;

/// How slow a peer may be: a period of grace, then a minimum rate, then an end.
///
/// The deadline after `bytes` bytes is `start + grace + bytes / bytes_per_second_min`, and never
/// later than `start + total_max`: a peer that drips single bytes gains nothing by it. Where there
/// is no `total_max`, the bytes of the past buy a pause of three to four graces and no more: a peer
/// that takes a GiB in a second and then stops would have twelve days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time that is always given, in milliseconds.
    pub grace_ms: u64,
    /// Bytes that buy another second.
    pub bytes_per_second_min: u64,
    /// The end, whatever the rate, in milliseconds; `u64::MAX` for none.
    pub total_max_ms: u64,
}

impl Pace {
    /// When the peer has to be done, given what has passed so far.
    #[must_use]
    pub fn deadline(&self, start: Millis, bytes: u64) -> Millis {
        let bought = bytes.saturating_mul(1000) / self.bytes_per_second_min.max(1);
        let allowed = self.grace_ms.saturating_add(bought).min(self.total_max_ms);
        Millis(start.0.saturating_add(allowed))
    }

    /// Where the period begins anew, once `bytes` have moved in it that are worth the grace or
    /// more: where it would have to begin for the same deadline, but in two graces at most.
    ///
    /// Not sooner: bytes that are reported as sent went into the socket's buffer, and the next time
    /// there is room is when a third of that, a MiB perhaps, has been taken. A grace of 20 s gives
    /// a minute, as other servers do.
    #[must_use]
    pub(crate) fn renewed(&self, start: Millis, bytes: u64, now: Millis) -> Option<Millis> {
        let bought = bytes.saturating_mul(1000) / self.bytes_per_second_min.max(1);
        if self.total_max_ms != u64::MAX || bought < self.grace_ms {
            return None;
        }
        let latest = now.0.saturating_add(self.grace_ms.saturating_mul(2));
        Some(Millis(start.0.saturating_add(bought).min(latest)))
    }
}

/// The bounds of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and fields together. 32 KiB: four times what browsers send with many cookies.
    pub head_bytes_max: usize,
    /// Request target. 8000 octets is the least that RFC 9112 section 3 recommends.
    pub target_bytes_max: usize,
    /// Fields of one request's head, and of its trailers. 100 is what most servers allow; each costs a
    /// comparison later.
    pub fields_max: usize,
    /// Content of one request, but for apps' tasks, which have limits of their own
    /// (`TaskOptions::body_bytes_max`). 1 MiB: forms are collected into memory, files want none.
    pub body_bytes_max: u64,
    /// One chunk-size line, extensions included. Extensions are ignored, so they may be short.
    pub chunk_line_bytes_max: usize,
    /// The trailer section of a request. 8 KiB: a checksum, a signature and a status are some hundred bytes.
    /// It has as many fields as a head, at most.
    pub trailer_bytes_max: usize,
    /// Interim answers (1xx) that a client passes over before a final one. 16: one 100 and some 102
    /// or 103 are usual; a server that sends nothing else would keep its client for ever.
    pub interim_answers_max: u16,
    /// Content that no handler asked for, which is read and thrown away to keep a connection alive.
    /// Beyond it, closing is cheaper than reading.
    pub discard_bytes_max: u64,
    /// Output gathered from pipelined requests before it is sent.
    pub output_bytes_max: usize,
    /// A body up to this length is copied behind its head, so that both leave in one piece: two
    /// pieces cost 0.5 us more than one, a copy of 16 KiB about as much.
    pub inline_body_bytes_max: usize,
    /// Content that is on its way to an app, and as much of its answer on its way to the client. 64
    /// KiB: a socket's receive window begins with it, and two wake-ups for each are cheap enough. Content
    /// of a known length that fits into it is gathered in it before the app's task is started.
    pub stream_window_bytes: usize,
    /// Requests of one HTTP/2 connection at one time. 128: RFC 9113 section 6.5.2 asks for 100 or more, and
    /// browsers have some dozens.
    pub streams_max: u32,
    /// Content of all requests of an HTTP/2 connection that may be on its way or wait for whoever reads it.
    /// 256 KiB: four streams at full speed, and a bound on memory.
    pub connection_window_bytes: u32,
    /// Content of responses in memory that waits for an HTTP/2 client to make room; beyond that no further
    /// request of it is begun. 1 MiB: more than a page has that is made by apps. Files are not in memory.
    /// Behind a trusted proxy each of its clients has so much, and all of a connection four times as much.
    pub waiting_bytes_max: usize,
    /// Time for an app to answer, from its request's head or from its last step in reading the
    /// content on: 60 s, as proxies give it. Then 503. As long may a request over HTTP/2 wait while none of
    /// its client is begun, because the client does not take other responses; then it is refused.
    pub app_answer_timeout_ms: u64,
    /// Time without a piece of an app's answer once it has begun, nor of content that the app waits for;
    /// then the connection is closed, or the stream of HTTP/2 reset. 5 minutes: event streams say something
    /// every 15 to 60 s to stay open, and calls of gRPC may pause.
    pub app_silence_timeout_ms: u64,
    /// Bytes read and thrown away after an error answer, so that the client reads it instead of a
    /// reset (RFC 9112 section 9.6); of a stream of HTTP/2, after any answer that is complete before its
    /// request is (RFC 9113 section 8.1). 64 MiB: many clients send all of a photo or a film before they
    /// read a word. Throwing away costs no memory and little time; its bound is the next one.
    pub linger_bytes_max: u64,
    /// The same in time. 2 s, and more only for who goes on sending: an upload of 10 MB at 20 Mbit/s
    /// still reads its answer.
    pub linger_pace: Pace,
    /// Time without exchange after which an idle connection is closed (15 s in P2); `u64::MAX`: it
    /// never is, but to make room, or by its client.
    pub idle_timeout_ms: u64,
    /// The same for a connection of a trusted proxy, if that is longer. 620 s: the side that closes
    /// first loses the request that is on its way just then, so it should be the proxy. nginx and Amazon's
    /// balancer keep connections for 60 s, and Google's, which cannot be configured, for 600.
    pub proxy_idle_timeout_ms: u64,
    /// Time for the handshake of a layer such as TLS, at any speed. 10 s: two round trips by way of a
    /// satellite, and packets lost on the way.
    pub handshake_timeout_ms: u64,
    /// Time for a head: 10 s at any speed, then for 500 bytes a second, 30 s in all. A drip of one byte a second
    /// ends after 10 s.
    pub head_pace: Pace,
    /// Time for a body, until an app's answer has begun. Content counts, its framing does not: a chunk-size
    /// line or the trailers have the grace from where they began.
    pub body_pace: Pace,
    /// Time for an answer to be taken.
    pub write_pace: Pace,
}

impl Limits {
    /// The size of the heads of all requests in progress on an HTTP/2 connection, as `head_bytes_max` counts
    /// each. `is_short`: the process has no memory left.
    pub(crate) fn heads_bytes_max(&self, is_short: bool) -> usize {
        if is_short {
            return HEADS_BYTES_MAX_SHORT;
        }
        let all = self
            .head_bytes_max
            .saturating_mul(self.streams_max as usize);
        (all / HEADS_DIVISOR).max(HEADS_BYTES_MIN)
    }

    /// How long a connection may be idle; `u64::MAX`: without end.
    pub(crate) fn idle_ms(&self, is_of_trusted_proxy: bool) -> u64 {
        match is_of_trusted_proxy {
            true => self.idle_timeout_ms.max(self.proxy_idle_timeout_ms),
            false => self.idle_timeout_ms,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 << 10,
            target_bytes_max: 8000,
            fields_max: 100,
            body_bytes_max: 1 << 20,
            chunk_line_bytes_max: 256,
            trailer_bytes_max: 8 << 10,
            interim_answers_max: 16,
            discard_bytes_max: 64 << 10,
            output_bytes_max: 64 << 10,
            inline_body_bytes_max: 16 << 10,
            stream_window_bytes: 64 << 10,
            streams_max: 128,
            connection_window_bytes: 256 << 10,
            waiting_bytes_max: 1 << 20,
            app_answer_timeout_ms: 60_000,
            app_silence_timeout_ms: 300_000,
            linger_bytes_max: 64 << 20,
            linger_pace: Pace {
                grace_ms: 2_000,
                bytes_per_second_min: 128 << 10,
                total_max_ms: 10_000,
            },
            idle_timeout_ms: 15_000,
            proxy_idle_timeout_ms: 620_000,
            handshake_timeout_ms: 10_000,
            head_pace: Pace {
                grace_ms: 10_000,
                bytes_per_second_min: 500,
                total_max_ms: 30_000,
            },
            body_pace: Pace {
                grace_ms: 10_000,
                bytes_per_second_min: 500,
                total_max_ms: u64::MAX,
            },
            write_pace: Pace {
                grace_ms: 20_000,
                bytes_per_second_min: 1_000,
                total_max_ms: u64::MAX,
            },
        }
    }
}
