//! One request through the core, and one answer through the client's end, in memory: what they add
//! to the kernel's TCP.
//!
//! `cargo bench -p loadline-proto --bench core` prints the time of one request and what it allocates.

mod request;

use loadline_proto::{ClientSession, Limits, Method, Received};

use request::{BROWSER, Sent, WRK, with_session};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

/// The head of nginx 1.22 for a small file, 238 bytes.
const NGINX: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
Content-Type: text/html\r\nContent-Length: 612\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
Connection: keep-alive\r\nETag: \"2ebc9f01-264\"\r\nAccept-Ranges: bytes\r\n\r\n";

fn main() {
    divan::main();
}

fn one_request(bencher: divan::Bencher<'_, '_>, sent: &Sent) {
    with_session(sent, |exchange| bencher.bench_local(exchange));
}

#[divan::bench]
fn wrk_request(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, &Sent::Http1(WRK));
}

#[divan::bench]
fn browser_request(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, &Sent::Http1(BROWSER));
}

#[divan::bench]
fn http2_request(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, &Sent::Http2(1));
}

#[divan::bench]
fn http2_requests_32_at_once(bencher: divan::Bencher<'_, '_>) {
    one_request(bencher, &Sent::Http2(32));
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
