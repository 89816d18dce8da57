//! Turns of a loop that always find the same: what they cost can be counted exactly.
//!
//! 64 connections to a server of cached files. In each round the loop is held up in a request for
//! `/gate` until a batch of others is there, so that its next turn finds all of them. What rounds
//! with a batch take more than as many with none is the cost of those turns.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_proto::{Context, Exchange, Handler, Outcome, SessionConfig};
use loadline_server::{Architecture, Config, ListenAddr, ServerConfig, ServerOptions, serve};

pub(crate) const CONNECTIONS: usize = 64;
const FILE_BYTES: usize = 600;

/// Holds the loop itself up. Pipes rather than a lock: a thread that waits for a lock spins first,
/// and how long is not the same twice.
pub(crate) struct Gate {
    came: PipeWriter,
    open: PipeReader,
    /// Who waits at it.
    thread: Arc<AtomicI32>,
}

impl Gate {
    /// A gate, and what opens it.
    pub(crate) fn new() -> (Self, Keys) {
        let (here_came, came) = pipe().expect("a pipe");
        let (open, here_open) = pipe().expect("a pipe");
        let thread = Arc::<AtomicI32>::default();
        let keys = Keys {
            came: here_came,
            open: here_open,
            thread: Arc::clone(&thread),
        };
        (Self { came, open, thread }, keys)
    }

    /// Its one call of gettid marks where a round begins.
    pub(crate) fn pass(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Relaxed);
        (&self.came).write_all(&[1]).expect("the client's side");
        (&self.open)
            .read_exact(&mut [0])
            .expect("the client's side");
    }
}

/// The other side of a gate.
pub(crate) struct Keys {
    came: PipeReader,
    open: PipeWriter,
    thread: Arc<AtomicI32>,
}

struct Gated {
    files: StaticFiles,
    gate: Gate,
}

impl Handler for Gated {
    type Local = <StaticFiles as Handler>::Local;

    fn local(&self) -> Self::Local {
        self.files.local()
    }

    #[inline]
    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        turn: &mut Context<'_>,
    ) -> Outcome {
        if exchange.request.path() == b"/gate" {
            self.gate.pass();
        }
        self.files.handle(local, exchange, turn)
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        self.files.handle_blocking(exchange);
    }
}

/// Starts a server with one loop, and has `use_it` meet it.
pub(crate) fn with_server(
    architecture: Architecture,
    latency_goal: Option<Duration>,
    use_it: impl FnOnce(&mut Client),
) {
    let folder = tempfile::tempdir().expect("a folder");
    let content = [b'x'; FILE_BYTES];
    std::fs::write(folder.path().join("small.html"), content).expect("a file");
    let options = StaticOptions {
        wall_clock: || SystemTime::now() + Duration::from_secs(60), // so that files have settled
        ..StaticOptions::default()
    };
    let files = StaticFiles::new(folder.path(), options).expect("files");
    let (gate, keys) = Gate::new();
    let config = ServerConfig {
        options: ServerOptions {
            architecture,
            loops: 1,
            workers: 0,
            latency_goal,
            ..ServerOptions::default()
        },
        ..ServerConfig::default()
    };
    let handle = serve(
        Config::new(
            Arc::new(Gated { files, gate }),
            Arc::new(SessionConfig::default()),
            vec![ListenAddr::Tcp(([127, 0, 0, 1], 0).into())],
        ),
        config,
    )
    .expect("a server");
    let mut client = Client::new(handle.tcp_address().expect("an address"), keys);
    use_it(&mut client);
    handle.drain(); // the server closes first, always in the same way
    handle.wait().expect("the end");
}

/// The client's side.
pub(crate) struct Client {
    keys: Keys,
    gate: TcpStream,
    streams: Vec<TcpStream>,
    /// Length of an answer with a file, and of that to `/gate`.
    file_len: usize,
    gate_len: usize,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, mut keys: Keys) -> Self {
        let mut gate = connect(address);
        ask(&mut gate, "/gate");
        keys.open.write_all(&[1]).expect("the loop");
        let gate_len = answer_len(&mut gate);
        keys.came.read_exact(&mut [0]).expect("the loop");
        let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(address)).collect();
        let mut file_len = 0;
        for stream in &mut streams {
            ask(stream, "/small.html");
            file_len = answer_len(stream);
        }
        Self {
            keys,
            gate,
            streams,
            file_len,
            gate_len,
        }
    }

    /// The loop's thread.
    pub(crate) fn loop_thread(&self) -> i32 {
        self.keys.thread.load(Relaxed)
    }

    /// Holds the loop up until `batch` requests are there, and takes their answers.
    pub(crate) fn round(&mut self, batch: usize) {
        let mut answer = [0; 2048];
        ask(&mut self.gate, "/gate");
        self.keys.came.read_exact(&mut [0]).expect("the loop");
        for stream in &mut self.streams[..batch] {
            ask(stream, "/small.html");
        }
        self.keys.open.write_all(&[1]).expect("the loop");
        for stream in &mut self.streams[..batch] {
            let answer = &mut answer[..self.file_len];
            stream.read_exact(answer).expect("an answer");
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "the file");
        }
        let answer = &mut answer[..self.gate_len];
        self.gate.read_exact(answer).expect("an answer");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).expect("a timeout");
    stream
}

fn ask(stream: &mut TcpStream, path: &str) {
    let request: &[u8] = match path {
        "/gate" => b"GET /gate HTTP/1.1\r\nHost: 127.0.0.1:21001\r\n\r\n",
        _ => b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1:21001\r\n\r\n",
    };
    stream.write_all(request).expect("a request sent");
}

/// Reads an answer whose length is not known yet.
fn answer_len(stream: &mut TcpStream) -> usize {
    let mut bytes = vec![0; 1 << 16];
    let mut len = 0;
    loop {
        len += match stream.read(&mut bytes[len..]).expect("an answer") {
            0 => panic!("closed"),
            count => count,
        };
        let text = String::from_utf8_lossy(&bytes[..len]).to_ascii_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let (_, field) = head.split_once("content-length: ").expect("a length");
        let digits = field.lines().next().unwrap_or_default();
        let whole = head.len() + 4 + digits.parse::<usize>().expect("a number");
        if len >= whole {
            return whole;
        }
    }
}
