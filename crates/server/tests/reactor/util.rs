//! A handler made for tests, servers with it, and a client that never waits for ever.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use loadline_base::{FileVersion, OpenFile};
use loadline_proto::{Body, Exchange, Handler, Limits, Outcome, SessionConfig, Status, Turn};
use loadline_server::{
    Architecture, Counts, ListenAddr, Role, ServerConfig, ServerHandle, ServerOptions, SocketIo,
    serve,
};

/// Longest wait for anything before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A gate that requests for `/gate` wait at, on a worker, until it is opened.
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
        eventually(|| self.waiting() >= count);
    }

    /// Requests that have come to the gate so far.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        let _open = self.opened.wait_while(open, |open| !*open).unwrap();
    }
}

/// | path | where | what |
/// |---|---|---|
/// | `/gate`, `/second-gate` | blocking | waits at the gate |
/// | `/spin` | on the loop | computes for 5 ms |
/// | `/blocking` | blocking | says the thread's name |
/// | `/nap` | blocking | the same after 2 ms |
/// | `/encoded` | blocking | has its answer encoded first |
/// | `/panic`, `/panic-blocking` | either | panics |
/// | `/shared` | on the loop | some MiB from memory |
/// | `/file` | on the loop | the file it was given |
/// | others | on the loop | the thread's name |
#[derive(Default)]
pub(crate) struct TestHandler {
    pub(crate) gate: Gate,
    pub(crate) second_gate: Gate,
    pub(crate) file: Option<Arc<OpenFile>>,
}

pub(crate) const SHARED_BYTES: usize = 4 << 20;

fn thread_name() -> Vec<u8> {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    name.into_bytes()
}

impl Handler for TestHandler {
    type Local = ();

    fn local(&self) {}

    fn handle(&self, _: &mut (), exchange: &mut Exchange, turn: &mut Turn<'_>) -> Outcome {
        match exchange.request.path() {
            b"/gate" | b"/second-gate" | b"/panic-blocking" | b"/blocking" | b"/nap" => {
                return Outcome::Blocking;
            }
            b"/encoded" => {
                exchange.answer_borrowed(Status::OK, b"X-Encoded: 1\r\n", b"encoded", turn);
                return Outcome::Blocking;
            }
            b"/panic" => panic!("on purpose"),
            b"/spin" => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
            }
            b"/shared" => {
                exchange.response.body = Body::Shared {
                    bytes: vec![b'x'; SHARED_BYTES].into(),
                    start: 0,
                    end: SHARED_BYTES,
                };
                return Outcome::Ready;
            }
            b"/file" => {
                let file = Arc::clone(self.file.as_ref().unwrap());
                let len = file.version.size;
                exchange.response.body = Body::File {
                    file,
                    offset: 0,
                    len,
                };
                return Outcome::Ready;
            }
            _ => {}
        }
        exchange.response.body = Body::Bytes(thread_name());
        Outcome::Ready
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        match exchange.request.path() {
            b"/panic-blocking" => panic!("on purpose"),
            b"/gate" => self.gate.pass(),
            b"/second-gate" => self.second_gate.pass(),
            b"/nap" => std::thread::sleep(Duration::from_millis(2)),
            b"/encoded" => {
                self.gate.pass();
                return;
            }
            _ => {}
        }
        exchange.response.body = Body::Bytes(thread_name());
    }
}

pub(crate) struct Server {
    pub(crate) handle: ServerHandle,
    pub(crate) handler: Arc<TestHandler>,
    pub(crate) address: SocketAddr,
}

/// Whether the architecture under test can have its sockets read and written by these.
pub(crate) fn offers(socket_io: SocketIo) -> bool {
    socket_io == SocketIo::Loop || crate::ARCHITECTURE == Architecture::Reactor
}

/// All that can.
pub(crate) fn socket_ios() -> impl Iterator<Item = &'static SocketIo> {
    SocketIo::ALL.iter().filter(|socket_io| offers(**socket_io))
}

/// Ends the whole program where the machine has no io_uring: none of its tests could run. Not by
/// `eprintln`, which nobody would see from a test.
fn skip_without_a_ring() {
    if crate::ARCHITECTURE == Architecture::Proactor
        && let Err(error) = loadline_sys::ring::available()
    {
        let _ = writeln!(
            io::stderr(),
            "\nskipped, all tests of the proactor: {error}"
        );
        std::process::exit(0);
    }
}

pub(crate) fn options(loops: usize, workers: usize) -> ServerOptions {
    ServerOptions {
        architecture: crate::ARCHITECTURE,
        loops,
        workers,
        ..ServerOptions::default()
    }
}

pub(crate) fn start(options: ServerOptions) -> Server {
    start_with(options, TestHandler::default(), Limits::default())
}

pub(crate) fn start_with(options: ServerOptions, handler: TestHandler, limits: Limits) -> Server {
    skip_without_a_ring();
    let handler = Arc::new(handler);
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

    /// A connection that the server has taken in, and the index of its loop.
    pub(crate) fn connect_seated(&self) -> (Client, usize) {
        let before = self.loops();
        let client = self.connect();
        let mut index = None;
        eventually(|| {
            let now = self.loops();
            index = (0..now.len()).find(|i| now[*i].accepted > before[*i].accepted);
            index.is_some()
        });
        (client, index.unwrap())
    }

    pub(crate) fn total(&self) -> Counts {
        self.handle.snapshot().total
    }

    pub(crate) fn loops(&self) -> Vec<Counts> {
        self.of(Role::Loop)
    }

    pub(crate) fn of(&self, role: Role) -> Vec<Counts> {
        let rows = self.handle.snapshot().rows;
        let of_role = rows.into_iter().filter(|row| row.role == role);
        of_role.map(|row| row.counts).collect()
    }

    /// Drains and waits for the end.
    pub(crate) fn end(self) -> loadline_server::Ending {
        self.handle.drain();
        self.handle.wait().unwrap()
    }
}

pub(crate) fn open_file(path: &std::path::Path) -> Arc<OpenFile> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    Arc::new(OpenFile {
        version: FileVersion {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
        },
        fd: file.into(),
    })
}

/// A client with a time limit on everything.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
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
    pub(crate) fn says(&self, field: &str) -> bool {
        self.head.to_ascii_lowercase().contains(field)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
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

    /// Whether the server closes within the time limit without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(0) => self.unread.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            Ok(_) => false,
        }
    }
}

/// Waits for what comes to be true by itself.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never came to be");
        std::thread::sleep(Duration::from_micros(500));
    }
}
