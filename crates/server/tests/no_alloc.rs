//! A keep-alive request costs no allocation through whole turns of a reactor's loop: from the
//! readable socket to the answer in the client's hands. Every thread of the process is counted;
//! the client's side reads into memory of its own that is there beforehand.

use std::alloc::System;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use loadline_proto::{Context, Exchange, Fields, Handler, Outcome, SessionConfig, Status};
use loadline_server::{Config, ListenAddr, ServerConfig, ServerOptions, serve};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CONTENT: [u8; 600] = [b'x'; 600];
const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";

struct Small(Fields);

impl Handler for Small {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, _: &mut (), exchange: &mut Exchange, turn: &mut Context<'_>) -> Outcome {
        exchange.answer_borrowed(Status::OK, &self.0, &CONTENT, turn);
        Outcome::Ready
    }

    fn handle_blocking(&self, _: &mut Exchange) {}
}

/// Sends `request` and reads the answers until `len` bytes have come.
fn exchange(stream: &mut TcpStream, request: &[u8], len: usize, memory: &mut [u8]) {
    stream.write_all(request).expect("a request sent");
    stream.read_exact(&mut memory[..len]).expect("an answer");
}

#[test]
fn whole_turns_of_the_loop_allocate_nothing() {
    let config = ServerConfig {
        options: ServerOptions {
            workers: 0,
            ..ServerOptions::default()
        },
        ..ServerConfig::default()
    };
    let fields = Fields::default().with("Content-Type", "text/plain");
    let handle = serve(
        Config::new(
            Arc::new(Small(fields)),
            Arc::new(SessionConfig::default()),
            vec![ListenAddr::Tcp(([127, 0, 0, 1], 0).into())],
        ),
        config,
    )
    .expect("a server");
    let address = handle.tcp_address().expect("an address");
    let mut memory = vec![0; 1 << 16];
    let mut streams: Vec<TcpStream> = (0..8)
        .map(|_| {
            let stream = TcpStream::connect(address).expect("a connection");
            let timeout = Some(Duration::from_secs(20));
            stream.set_nodelay(true).expect("no delay");
            stream.set_read_timeout(timeout).expect("a timeout");
            stream
        })
        .collect();
    // The length of an answer, by the end of its head.
    streams[0].write_all(GET).expect("a request sent");
    let mut len = 0;
    let head_len = loop {
        len += streams[0].read(&mut memory[len..]).expect("an answer");
        if let Some(at) = memory[..len].windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let answer_len = head_len + CONTENT.len();
    while len < answer_len {
        len += streams[0].read(&mut memory[len..]).expect("an answer");
    }
    let pipelined = GET.repeat(16);
    let mut rounds = |count: usize| {
        for _ in 0..count {
            for stream in &mut streams {
                exchange(stream, GET, answer_len, &mut memory);
                exchange(stream, &pipelined, 16 * answer_len, &mut memory);
                // A head in two pieces.
                stream.write_all(&GET[..20]).expect("half a request sent");
                exchange(stream, &GET[20..], answer_len, &mut memory);
            }
        }
    };
    rounds(20);
    let region = Region::new(COUNTING);
    rounds(100);
    let change = region.change();
    assert_eq!(change.allocations, 0, "{change:?}");
    assert_eq!(change.reallocations, 0, "{change:?}");
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(region.change().allocations, 1, "the counter counts");
    drop(streams);
    handle.drain();
    assert!(handle.wait().expect("the end").is_clean());
}
