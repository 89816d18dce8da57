//! One request through the core, and one answer through the client's end, in memory: what they add
//! to the kernel's TCP.
//!
//! `cargo bench -p loadline-proto` prints the time of one request and what it allocates.

use std::sync::Arc;

use loadline_base::Millis;
use loadline_proto::{
    Action, ClientSession, Counters, HttpDate, Limits, Method, Outcome, Pool, Received,
    ServerSession, SessionConfig, Status, Turn,
};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

const WRK: &[u8] = b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1:21001\r\n\r\n";
const BROWSER: &[u8] = b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\
\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\
\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\
\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0\
\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\
\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\
\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\r\n";
const FIELDS: &[u8] = b"Content-Type: text/html; charset=utf-8\r\nETag: \"0123456789abcdef\"\r\n\
Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nAccept-Ranges: bytes\r\n";
/// The head of nginx 1.22 for a small file, 238 bytes.
const NGINX: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
Content-Type: text/html\r\nContent-Length: 612\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
Connection: keep-alive\r\nETag: \"2ebc9f01-264\"\r\nAccept-Ranges: bytes\r\n\r\n";

fn main() {
    divan::main();
}

fn one_request(bencher: divan::Bencher<'_, '_>, request: &[u8]) {
    let mut pool = Pool::new();
    let counters = Counters::default();
    let date = HttpDate::at(784_111_777);
    let mut turn = Turn {
        now: Millis(0),
        date: &date,
        pool: &mut pool,
        counters: &counters,
        log: None,
    };
    let mut session = ServerSession::new(&Arc::new(SessionConfig::default()), None, &mut turn);
    let mut bytes = request.to_vec();
    let content = [b'x'; 600];
    bencher.bench_local(|| {
        session.received(&mut bytes, &mut turn);
        loop {
            match session.next_action(&mut turn) {
                Action::Run(mut exchange) => {
                    exchange.answer_borrowed(Status::OK, FIELDS, &content, &mut turn);
                    session.ran(exchange, Outcome::Ready, &mut turn);
                }
                Action::Send(mut transmit) => {
                    transmit.advance(transmit.remaining());
                    session.sent(transmit, &mut turn);
                }
                Action::Wait { .. } => break,
                other => unreachable!("{other:?}"),
            }
        }
    });
}

#[divan::bench]
fn wrk_request(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, WRK);
}

#[divan::bench]
fn browser_request(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, BROWSER);
}

fn one_answer(bencher: divan::Bencher<'_, '_>, pieces: &[&[u8]]) {
    let limits = Limits::default();
    let mut session = ClientSession::new();
    bencher.bench_local(|| {
        session.requested(Method::Get);
        let mut last = Received::More;
        for piece in divan::black_box(pieces) {
            last = session.received(piece, &limits, &mut ());
        }
        assert!(matches!(last, Received::Reply(_)), "{last:?}");
        last
    });
}

#[divan::bench]
fn nginx_answer(bencher: divan::Bencher<'_, '_>) {
    one_answer(bencher, &[&[NGINX, &[b'x'; 612]].concat()]);
}

#[divan::bench]
fn nginx_answer_cut_in_the_head(bencher: divan::Bencher<'_, '_>) {
    let answer = [NGINX, &[b'x'; 612]].concat();
    one_answer(bencher, &[&answer[..100], &answer[100..]]);
}

#[divan::bench]
fn chunked_answer(bencher: divan::Bencher<'_, '_>) {
    let head = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let content = [&b"264\r\n"[..], &[b'x'; 612], b"\r\n0\r\n\r\n"].concat();
    one_answer(bencher, &[&[&head[..], &content].concat()]);
}
