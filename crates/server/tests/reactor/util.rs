//! A handler made for tests, servers with it, and what they and their clients are asked besides.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_base::{ContentVersion, OpenFile};
use loadline_proto::{Body, Context, Exchange, Fields, Handler, Limits, Outcome, Status};
use loadline_server::{Architecture, Counts, Role, ServerOptions, SocketIo};

pub(crate) use crate::shared::*;

/// | path | where | what |
/// |---|---|---|
/// | `/gate`, `/second-gate` | blocking | waits at the gate |
/// | `/spin` | on the loop | computes for 5 ms |
/// | `/blocking` | blocking | says the thread's name |
/// | `/compute` | blocking | the same after 1 ms of CPU time |
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

    fn handle(&self, _: &mut (), exchange: &mut Exchange, turn: &mut Context<'_>) -> Outcome {
        match exchange.request.path() {
            b"/gate" | b"/second-gate" | b"/panic-blocking" | b"/blocking" | b"/nap"
            | b"/compute" => {
                return Outcome::Blocking;
            }
            b"/encoded" => {
                let fields = Fields::default().with("X-Encoded", "1");
                exchange.answer_as_data = true;
                exchange.answer_borrowed(Status::OK, &fields, b"encoded", turn);
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
            b"/compute" => {
                let before = loadline_sys::usage::thread_cpu();
                while loadline_sys::usage::thread_cpu() - before < Duration::from_millis(1) {
                    std::hint::spin_loop();
                }
            }
            b"/encoded" => {
                self.gate.pass();
                return;
            }
            _ => {}
        }
        exchange.response.body = Body::Bytes(thread_name());
    }
}

impl Gated for TestHandler {
    fn gate(&self) -> &Gate {
        &self.gate
    }
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

pub(crate) type Server = crate::shared::Server<TestHandler>;

pub(crate) fn options(loops: usize, workers: usize) -> ServerOptions {
    ServerOptions {
        architecture: crate::ARCHITECTURE,
        loops,
        workers,
        latency_goal: Some(Duration::from_secs(60)),
        defer_accept: false, // so that silent connections show at once
        ..ServerOptions::default()
    }
}

pub(crate) fn start(options: ServerOptions) -> Server {
    start_with(options, TestHandler::default(), Limits::default())
}

pub(crate) fn start_with(options: ServerOptions, handler: TestHandler, limits: Limits) -> Server {
    skip_without_a_ring();
    Server::start(options, handler, limits)
}

impl Server {
    /// A connection that the server has taken in and counts as open, and the index of its loop.
    pub(crate) fn connect_seated(&self) -> (Client, usize) {
        let before = self.loops();
        let client = self.connect();
        let mut index = None;
        eventually(|| {
            let now = self.loops();
            index = (0..now.len()).find(|i| now[*i].accepted > before[*i].accepted);
            index = index.filter(|i| now[*i].connections + closed(&now[*i]) == now[*i].accepted);
            index.is_some()
        });
        (client, index.unwrap())
    }

    /// A client with this address of the machine.
    pub(crate) fn connect_from(&self, source: [u8; 4]) -> Client {
        Client::connect_from(source, self.address)
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
}

fn closed(counts: &Counts) -> u64 {
    counts.closed.iter().sum()
}

pub(crate) fn open_file(path: &std::path::Path) -> Arc<OpenFile> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    Arc::new(OpenFile {
        version: ContentVersion {
            size: meta.size(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
        },
        fd: file.into(),
        is_local: true,
    })
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}
