//! What the tests of the architectures have in common: a gate, servers, and waiting that ends.

mod app;
mod child;
mod client;
mod handler;
mod http2;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loadline_base::MemoryBudget;
use loadline_proto::{ForwardedField, Limits, SessionConfig, TrustedProxies};
use loadline_server::{
    Architecture, Config, Ending, ListenAddr, ServerConfig, ServerHandle, ServerOptions, serve,
};

pub(crate) use app::PIECES_MAX;
pub(crate) use child::{ChildServer, as_child, log_lines_max, test_in};
pub(crate) use client::{Answer, Client, reset};
pub(crate) use handler::{BIG_BYTES, SHARED_BYTES, TestHandler, UPLOAD_BYTES, time_slice};
pub(crate) use http2::{Http2Client, request as request_by_stream};

/// The address of a proxy that a server may trust.
pub(crate) const PROXY: [u8; 4] = [127, 0, 0, 99];

/// What a slow client and an idle one have sent, and what each sends to complete a request.
pub(crate) const SLOW_AND_IDLE: [[&str; 2]; 2] = [
    ["GET / HTTP/1.1\r\nX: ", "1\r\nHost: h\r\n\r\n"],
    ["", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"],
];

/// What that proxy says of a request that this client has sent it.
pub(crate) fn forwarded_for(client: [u8; 4]) -> String {
    format!("X-Forwarded-For: {}\r\n", IpAddr::from(client))
}

/// Longest wait for anything before a test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// A gate that requests for `/gate` wait at, in their blocking step, until it is opened.
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

    pub(crate) fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        let _open = self.opened.wait_while(open, |open| !*open).unwrap();
    }
}

pub(crate) struct Server {
    pub(crate) handle: ServerHandle,
    pub(crate) handler: Arc<TestHandler>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(options: ServerOptions, handler: TestHandler, limits: Limits) -> Self {
        let session = SessionConfig {
            limits,
            ..SessionConfig::default()
        };
        Self::start_speaking(options, handler, session, None)
    }

    /// The same that trusts [`PROXY`], with this budget of memory.
    pub(crate) fn start_behind_proxy(
        options: ServerOptions,
        limits: Limits,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Self {
        let proxy = IpAddr::from(PROXY).to_string();
        let proxies = [proxy.parse().unwrap()];
        let session = SessionConfig {
            limits,
            trusted_proxies: TrustedProxies::new(&proxies, ForwardedField::XForwardedFor),
            ..SessionConfig::default()
        };
        Self::start_speaking(options, TestHandler::default(), session, memory)
    }

    fn start_speaking(
        options: ServerOptions,
        handler: TestHandler,
        session: SessionConfig,
        memory: Option<&Arc<MemoryBudget>>,
    ) -> Self {
        let handler = Arc::new(handler);
        let config = ServerConfig {
            options,
            memory: memory.cloned(),
            ..ServerConfig::default()
        };
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let served = Config::new(Arc::clone(&handler), Arc::new(session), vec![any_port]);
        let handle = serve(served, config).unwrap();
        let address = handle.tcp_address().unwrap();
        Self {
            handle,
            handler,
            address,
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client with this address of the loopback network.
    pub(crate) fn connect_from(&self, source: [u8; 4]) -> Client {
        Client::connect_from(source, self.address)
    }

    /// Drains and waits for the end.
    pub(crate) fn end(self) -> Ending {
        self.handle.drain();
        self.handle.wait().unwrap()
    }
}

/// Whether this machine offers an architecture; says so visibly if not.
pub(crate) fn is_offered(architecture: Architecture) -> bool {
    let offered = loadline_server::check_offered(architecture);
    if let Err(error) = &offered {
        say_skipped(&format!("{}: {error}", architecture.name()));
    }
    offered.is_ok()
}

/// Says that something was not tested. Not by `eprintln`, which nobody would see from a test.
pub(crate) fn say_skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nskipped, {why}");
}

/// For cases that take most of the process's descriptors or of the machine's CPUs: they run beside
/// others, but not beside each other.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes if one of some tries does. For what a busy machine may spoil once or twice, while a defect
/// shows in every try.
#[track_caller]
pub(crate) fn once_in(tries: usize, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut failures = Vec::new();
    for _ in 0..tries {
        match attempt() {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("in {tries} tries: {failures:?}");
}

/// Waits for what comes to be true by itself.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "it never came to be");
        std::thread::sleep(Duration::from_micros(500));
    }
}
