//! A keep-alive request costs no allocation through whole turns of a loop, of a reactor and of a proactor without
//! workers: from the readable socket to the answer in the client's hands, over HTTP/1.1 and HTTP/2 in plain text.
//! Every thread of the process is counted; the client's side reads into memory of its own that is there beforehand.

use std::alloc::System;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_proto::hpack::{Encoder, Indexing};
use loadline_proto::http2::frame::{
    FrameHead, HEAD_BYTES, Kind, PAYLOAD_BYTES_MAX, PREFACE, flags, write_frame,
};
use loadline_proto::{Context, Exchange, Fields, Handler, Outcome, SessionConfig, Status};
use loadline_server::{
    Architecture, Config, ListenAddr, ServerConfig, ServerOptions, check_offered, serve,
};
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

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).expect("a timeout");
    stream
}

/// A connection of HTTP/2. Its requests name nothing that the server would have to keep.
struct Http2Client {
    stream: BufReader<TcpStream>,
    block: Vec<u8>,
    next_stream: u32,
    frames: Vec<u8>,
    payload: [u8; PAYLOAD_BYTES_MAX],
}

impl Http2Client {
    fn connect(address: SocketAddr) -> Self {
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", "/small"),
        ] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            Encoder::default().field(name, value, Indexing::Not, &mut block);
        }
        let mut frames = PREFACE.to_vec();
        write_frame(Kind::Settings, 0, 0, &[], &mut frames);
        Self {
            stream: BufReader::new(connect(address)),
            block,
            next_stream: 1,
            frames,
            payload: [0; PAYLOAD_BYTES_MAX],
        }
    }

    /// Sends so many requests at once, with the window for their answers, and reads those.
    fn exchange(&mut self, count: u32) {
        let window = count * CONTENT.len() as u32;
        let frames = &mut self.frames;
        write_frame(Kind::WindowUpdate, 0, 0, &window.to_be_bytes(), frames);
        for _ in 0..count {
            let flag = flags::END_HEADERS | flags::END_STREAM;
            write_frame(Kind::Headers, flag, self.next_stream, &self.block, frames);
            self.next_stream += 2;
        }
        let stream = self.stream.get_mut();
        stream.write_all(&self.frames).expect("requests sent");
        self.frames.clear();
        let mut answers = 0;
        while answers < count {
            answers += u32::from(self.ends_stream());
        }
    }

    /// Reads a frame, and says whether a stream has ended by it.
    fn ends_stream(&mut self) -> bool {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head).expect("a frame");
        let head = FrameHead::parse(&head);
        let payload = &mut self.payload[..head.len];
        self.stream.read_exact(payload).expect("its payload");
        let is_error = matches!(head.kind, Kind::RstStream | Kind::GoAway);
        assert!(!is_error, "{head:?}");
        matches!(head.kind, Kind::Headers | Kind::Data) && head.has(flags::END_STREAM)
    }
}

/// The first answer of a second has a new date, for which the connection's table of fields may have to grow:
/// nothing else may allocate.
fn assert_none_over_http2(address: SocketAddr, architecture: Architecture) {
    const AT_ONCE: [u32; 3] = [1, 100, 128];
    let mut client = Http2Client::connect(address);
    let mut rounds = |count: usize| {
        for at_once in AT_ONCE.iter().cycle().take(count * AT_ONCE.len()) {
            client.exchange(*at_once);
        }
    };
    rounds(20);
    let (began, mut with_any) = (Instant::now(), 0);
    for _ in 0..100 {
        let region = Region::new(COUNTING);
        rounds(1);
        let change = region.change();
        with_any += u64::from(change.allocations + change.reallocations > 0);
    }
    let dates_max = began.elapsed().as_secs() + 1;
    assert!(
        with_any <= dates_max,
        "{architecture:?}: {with_any} rounds, {dates_max} s"
    );
}

/// Sends `request` and reads the answers until `len` bytes have come.
fn exchange(stream: &mut TcpStream, request: &[u8], len: usize, memory: &mut [u8]) {
    stream.write_all(request).expect("a request sent");
    stream.read_exact(&mut memory[..len]).expect("an answer");
}

/// One after the other: each counts all threads.
#[test]
fn whole_turns_of_the_loop_allocate_nothing() {
    for architecture in [Architecture::Reactor, Architecture::Proactor] {
        match check_offered(architecture) {
            Ok(()) => assert_none_under(architecture),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "\nskipped: {error}");
            }
        }
    }
}

fn assert_none_under(architecture: Architecture) {
    let config = ServerConfig {
        options: ServerOptions {
            architecture,
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
    let mut streams: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
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
    assert_eq!(change.allocations, 0, "{architecture:?}: {change:?}");
    assert_eq!(change.reallocations, 0, "{architecture:?}: {change:?}");
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(region.change().allocations, 1, "the counter counts");
    drop(streams);
    assert_none_over_http2(address, architecture);
    handle.drain();
    assert!(handle.wait().expect("the end").is_clean());
}
