//! A handler made for tests, servers with it, and what their clients are asked besides.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use loadline_proto::{Body, Exchange, Handler, Limits, Outcome, Turn};
use loadline_server::{Architecture, ServerOptions};

pub(crate) use crate::shared::*;

/// Every architecture built on `parts/blocking`.
pub(crate) const BLOCKING: [Architecture; 3] = [
    Architecture::Sequential,
    Architecture::ThreadPerConnection,
    Architecture::ThreadPool,
];

/// `/gate` waits at the gate, `/panic` and `/panic-blocking` panic, `/big` is some MiB, others say
/// "hello".
#[derive(Default)]
pub(crate) struct TestHandler {
    pub(crate) gate: Gate,
}

pub(crate) const BIG_BYTES: usize = 8 << 20;

impl Handler for TestHandler {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, _: &mut (), exchange: &mut Exchange, _: &mut Turn<'_>) -> Outcome {
        match exchange.request.path() {
            b"/gate" | b"/panic-blocking" => Outcome::Blocking,
            b"/panic" => panic!("on purpose"),
            b"/big" => {
                let bytes: Arc<[u8]> = vec![b'x'; BIG_BYTES].into();
                exchange.response.body = Body::Shared {
                    bytes,
                    start: 0,
                    end: BIG_BYTES,
                };
                Outcome::Ready
            }
            _ => {
                exchange.response.body = Body::Bytes(b"hello".to_vec());
                Outcome::Ready
            }
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        if exchange.request.path() == b"/panic-blocking" {
            panic!("on purpose");
        }
        self.gate.pass();
        exchange.response.body = Body::Bytes(b"passed".to_vec());
    }
}

impl Gated for TestHandler {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

pub(crate) type Server = crate::shared::Server<TestHandler>;

pub(crate) fn options(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        architecture,
        threads: 4,
        ..ServerOptions::default()
    }
}

pub(crate) fn start(options: ServerOptions) -> Server {
    start_with(options, Limits::default())
}

pub(crate) fn start_with(options: ServerOptions, limits: Limits) -> Server {
    Server::start(options, TestHandler::default(), limits)
}

impl Client {
    /// Whether bytes or the end come within some time.
    pub(crate) fn is_answered_within(&self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        peeked.is_ok()
    }
}

impl Client<UnixStream> {
    pub(crate) fn connect_unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }
}

impl Answer {
    pub(crate) fn says_close(&self) -> bool {
        self.says("connection: close")
    }
}
