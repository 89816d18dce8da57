//! A handler made for tests, servers with it, and a client that never waits for ever.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use loadline_proto::{Body, Exchange, Handler, Limits, Outcome, SessionConfig, Turn};
use loadline_server::{Architecture, ListenAddr, ServerConfig, ServerHandle, ServerOptions, serve};

/// Longest wait for an answer before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Every architecture built on `parts/blocking`.
pub(crate) const BLOCKING: [Architecture; 3] = [
    Architecture::Sequential,
    Architecture::ThreadPerConnection,
    Architecture::ThreadPool,
];

/// A gate that requests for `/gate` wait at until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Waits until `count` requests have come to the gate.
    pub(crate) fn await_waiting(&self, count: u64) {
        eventually(|| self.waiting.load(Ordering::SeqCst) >= count);
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        let _open = self.opened.wait_while(open, |open| !*open).unwrap();
    }
}

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

pub(crate) struct Server {
    pub(crate) handle: ServerHandle,
    pub(crate) handler: Arc<TestHandler>,
    pub(crate) address: SocketAddr,
}

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
    let handler = Arc::new(TestHandler::default());
    let config = ServerConfig {
        options,
        session: Arc::new(SessionConfig {
            limits,
            ..SessionConfig::default()
        }),
        listen: vec![ListenAddr::Tcp(([127, 0, 0, 1], 0).into())],
        unix_mode: None,
        access_log: None,
    };
    let handle = serve(Arc::clone(&handler), config).unwrap();
    let address = handle.tcp_address().unwrap();
    Server {
        handle,
        handler,
        address,
    }
}

impl Server {
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Drains and waits for the end.
    pub(crate) fn end(self) -> loadline_server::Ending {
        self.handle.drain();
        self.handle.wait().unwrap()
    }
}

/// A client over any stream, with a time limit on everything.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
}

impl Answer {
    pub(crate) fn says_close(&self) -> bool {
        self.head.to_ascii_lowercase().contains("connection: close")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

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

impl<S: Read + Write> Client<S> {
    fn over(stream: S) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(path);
        self.answer().unwrap()
    }

    /// The next answer, by its Content-Length.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head_len = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head: Vec<u8> = self.unread.drain(..head_len).collect();
        let head = String::from_utf8(head).unwrap();
        let lower = head.to_ascii_lowercase();
        let (_, after) = lower.split_once("content-length: ").unwrap();
        let len: usize = after.split("\r\n").next().unwrap().parse().unwrap();
        while self.unread.len() < len {
            self.read_more()?;
        }
        Ok(Answer {
            status: head[9..12].parse().unwrap(),
            content: self.unread.drain(..len).collect(),
            head,
        })
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }

    /// Whether the server has closed, or closes within the time limit; nothing else may come.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => self.unread.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            Ok(_) => false,
        }
    }
}

/// Waits for what comes to be true by itself.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let mut rest = PATIENCE;
    let step = Duration::from_millis(1);
    while !is_so() {
        assert!(!rest.is_zero(), "it never came to be");
        std::thread::sleep(step);
        rest = rest.saturating_sub(step);
    }
}
