//! One request through the server's end of a connection, in memory.

use std::sync::Arc;

use loadline_base::Millis;
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

/// Gives `requests` a session; each call of it is one request, answered as from a cached file.
pub(crate) fn with_session(request: &[u8], requests: impl FnOnce(&mut dyn FnMut())) {
    let mut pool = Pool::new();
    let counters = Counters::default();
    let date = HttpDate::at(784_111_777);
    let mut cx = Context {
        now: Millis(0),
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut cx);
    let mut bytes = request.to_vec();
    let content = [b'x'; 600];
    let mut fields = Fields::default();
    FIELDS
        .iter()
        .for_each(|(name, value)| fields.add(name, value));
    requests(&mut || {
        session.received(&mut bytes, &mut cx);
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
    });
}
