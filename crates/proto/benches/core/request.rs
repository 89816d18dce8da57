//! One request through the server's end of a connection, in memory.

use std::sync::Arc;

use loadline_base::Millis;
use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{Kind, PREFACE, flags, write_frame};
use loadline_proto::{
    Action, Context, Counters, Fields, HttpDate, Outcome, Pool, ServerSession, SessionConfig,
    Status,
};

/// As wrk sends it.
pub(crate) const WRK: &[u8] = b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1:21001\r\n\r\n";
/// As a browser does.
pub(crate) const BROWSER: &[u8] = b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\
\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\
\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\
\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0\
\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\
\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\
\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\r\n";
const FIELDS: [(&str, &str); 4] = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("ETag", "\"0123456789abcdef\""),
    ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("Accept-Ranges", "bytes"),
];

/// What a client sends at once.
pub(crate) enum Sent {
    /// A request of HTTP/1.
    Http1(&'static [u8]),
    /// So many requests of HTTP/2, as h2load sends them on a warm connection.
    Http2(u32),
}

/// Frames of HTTP/2 requests for the next streams of a connection.
struct Streams {
    block: Vec<u8>,
    next: u32,
}

impl Streams {
    /// The connection begins with what is appended to `bytes`.
    fn begin(bytes: &mut Vec<u8>) -> Self {
        bytes.extend_from_slice(PREFACE);
        write_frame(Kind::Settings, 0, 0, &[], bytes);
        write_frame(
            Kind::WindowUpdate,
            0,
            0,
            &0x3fff_ffff_u32.to_be_bytes(),
            bytes,
        );
        let mut encoder = Encoder::default();
        let mut encode = || {
            let mut block = Vec::new();
            for (name, value) in [
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "127.0.0.1:21001"),
                (":path", "/small.html"),
                ("user-agent", "h2load nghttp2/1.52.0"),
            ] {
                encoder.field(
                    name.as_bytes(),
                    value.as_bytes(),
                    Indexing::Kept,
                    &mut block,
                );
            }
            block
        };
        let first = encode();
        write_frame(
            Kind::Headers,
            flags::END_STREAM | flags::END_HEADERS,
            1,
            &first,
            bytes,
        );
        Self {
            block: encode(),
            next: 3,
        }
    }

    fn write(&mut self, count: u32, bytes: &mut Vec<u8>) {
        bytes.clear();
        for _ in 0..count {
            let flag = flags::END_STREAM | flags::END_HEADERS;
            write_frame(Kind::Headers, flag, self.next, &self.block, bytes);
            self.next += 2;
        }
        // As much room again for responses.
        let more = count * 600;
        write_frame(Kind::WindowUpdate, 0, 0, &more.to_be_bytes(), bytes);
    }
}

/// Gives `requests` a session; each call of it is one request, answered as from a cached file.
pub(crate) fn with_session(sent: &Sent, requests: impl FnOnce(&mut dyn FnMut())) {
    let mut pool = Pool::new();
    let counters = Counters::default();
    let date = HttpDate::at(784_111_777);
    let mut cx = Context {
        now: Millis(0),
        came: Millis(0),
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut cx);
    let content = [b'x'; 600];
    let mut fields = Fields::default();
    FIELDS
        .iter()
        .for_each(|(name, value)| fields.add(name, value));
    let mut take = |bytes: &mut [u8]| {
        session.received(bytes, &mut cx);
        loop {
            match session.next_action(&mut cx) {
                Action::Run(mut exchange) => {
                    exchange.answer_borrowed(Status::OK, &fields, &content, &mut cx);
                    session.ran(exchange, Outcome::Ready, &mut cx);
                }
                Action::Send { mut transmit, .. } => {
                    transmit.advance(transmit.remaining());
                    session.sent(transmit, &mut cx);
                }
                Action::Wait { .. } => break,
                other => unreachable!("{other:?}"),
            }
        }
    };
    match sent {
        Sent::Http1(request) => {
            let mut bytes = request.to_vec();
            requests(&mut || take(&mut bytes));
        }
        Sent::Http2(count) => {
            let mut bytes = Vec::new();
            let mut streams = Streams::begin(&mut bytes);
            take(&mut bytes);
            requests(&mut || {
                streams.write(*count, &mut bytes);
                take(&mut bytes);
            });
        }
    }
}
