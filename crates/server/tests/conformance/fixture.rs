//! A server in this process, on a port that the kernel chooses, over a folder of its own.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_proto::{
    Body, Context, Exchange, Fields, Handler, Http2, Limits, Outcome, Pace, Port, Protocol,
    RequestBody, SessionConfig, Task,
};
use loadline_server::{
    Config, ConnectionLogging, Control, ListenAddr, ListenerConfig, ServerConfig, ServerHandle,
    ServerOptions, serve,
};
use loadline_tls::{
    Authorities, Certificates, Profile, TlsClient, TlsOptions, TlsServer, self_signed,
};
use tempfile::TempDir;

use crate::client::{Client, TIMEOUT};
use crate::later;
pub use crate::model::Model;
use crate::translated::Translated;
use crate::translated_tls;

/// What blocking steps for `/-/gate` wait at.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Gate {
    pub fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    /// Whoever comes from now on waits. Says how many have come before.
    pub fn close(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.0 = false;
        state.1
    }

    /// Waits until `count` requests stand before it.
    pub fn await_waiting(&self, count: u64) {
        let state = self.state.lock().unwrap();
        let (_state, timeout) = self
            .changed
            .wait_timeout_while(state, TIMEOUT, |state| state.1 < count)
            .unwrap();
        assert!(!timeout.timed_out(), "nobody came to the gate");
    }

    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.0).unwrap());
    }
}

/// `/-/…` is answered here, all else from the folder.
pub struct TestSite {
    files: StaticFiles,
    pub gate: Gate,
    /// Tasks that have begun and not ended.
    pub at_work: Arc<AtomicU64>,
}

impl TestSite {
    fn echo(exchange: &mut Exchange) {
        let mut body = format!("{} ", exchange.request.method.as_str()).into_bytes();
        body.extend_from_slice(exchange.request.target());
        if let RequestBody::Whole(content) = &exchange.request.body {
            body.push(b' ');
            body.extend_from_slice(content);
        }
        if let Some(trailers) = &exchange.request.trailers {
            body.extend(trailers_of(trailers));
        }
        exchange.response.body = Body::Bytes(body);
    }
}

/// How trailers are said, behind content that is sent back.
pub fn trailers_of(trailers: &Fields) -> Vec<u8> {
    let lines = trailers.iter().map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        [&b"\n"[..], &name, b"=", value].concat()
    });
    lines.collect::<Vec<_>>().concat()
}

impl Handler for TestSite {
    type Local = <StaticFiles as Handler>::Local;

    fn local(&self) -> Self::Local {
        self.files.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        turn: &mut Context<'_>,
    ) -> Outcome {
        match exchange.request.path() {
            b"/-/echo" | b"/-/echo-blocking" => match exchange.request.body {
                RequestBody::Pending { .. } => Outcome::Collect {
                    bytes_max: u64::MAX,
                },
                _ if exchange.request.path() == b"/-/echo-blocking" => Outcome::Blocking,
                _ => {
                    Self::echo(exchange);
                    Outcome::Ready
                }
            },
            path if path.starts_with(b"/-/later/") => Outcome::Later(later::options(path)),
            b"/-/panic" => panic!("on purpose"),
            b"/-/panic-blocking" | b"/-/gate" => Outcome::Blocking,
            _ => self.files.handle(local, exchange, turn),
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        match exchange.request.path() {
            b"/-/panic-blocking" => panic!("on purpose"),
            b"/-/echo-blocking" => Self::echo(exchange),
            b"/-/gate" => {
                self.gate.pass();
                Self::echo(exchange);
            }
            _ => self.files.handle_blocking(exchange),
        }
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        later::task(exchange, port, &self.at_work)
    }
}

/// A running server. Dropping it drains it and checks its books.
pub struct Server {
    pub root: TempDir,
    pub site: Arc<TestSite>,
    pub address: SocketAddr,
    pub control: Control,
    handle: Option<ServerHandle>,
    /// Both ends, if it speaks TLS.
    pub tls: Option<(TlsServer, TlsClient)>,
    is_http2: bool,
}

/// What is in the folder besides what a test adds: the length tells the name.
pub const FILES: [(&str, usize); 5] = [
    ("empty.txt", 0),
    ("index.html", 600),
    ("style.css", 5_000),
    ("middle.bin", 100_000),
    ("big.bin", 3_000_001),
];

/// Bytes in which every place is different from its neighbourhood. They come again after a prime
/// number of bytes, so that no buffer's size is a whole number of times as long.
pub fn pattern(len: usize) -> Vec<u8> {
    static PERIOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..65_521_u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect()
    });
    let mut bytes = PERIOD.repeat(len.div_ceil(PERIOD.len()));
    bytes.truncate(len);
    bytes
}

pub fn limits() -> Limits {
    Limits {
        // Soon enough to see it, late enough never to meet it where nobody is slow.
        linger_pace: Pace {
            grace_ms: 1_000,
            bytes_per_second_min: 1 << 20,
            total_max_ms: 20_000,
        },
        ..Limits::default()
    }
}

/// Twice as long as a busy machine may keep a thread from running.
pub const PATIENCE_MS: u64 = 600;

/// Deadlines that a test can wait for.
pub fn impatient() -> Limits {
    let pace = Pace {
        grace_ms: PATIENCE_MS,
        bytes_per_second_min: 100_000,
        total_max_ms: 2 * PATIENCE_MS,
    };
    Limits {
        idle_timeout_ms: PATIENCE_MS,
        head_pace: pace,
        body_pace: pace,
        write_pace: pace,
        ..limits()
    }
}

thread_local! {
    /// Whether servers and clients that this thread makes speak TLS.
    static OVER_TLS: Cell<bool> = const { Cell::new(false) };
    /// Whether clients of servers that this thread makes speak HTTP/2.
    static OVER_HTTP_2: Cell<bool> = const { Cell::new(false) };
    /// Which versions of HTTP such servers speak.
    static HTTP_2: Cell<Http2> = const { Cell::new(Http2::On) };
}

/// Connects to a server without TLS.
#[derive(Clone, Copy)]
pub struct Connector {
    address: SocketAddr,
    is_http2: bool,
}

impl Connector {
    /// To a server that this thread has started by itself.
    pub fn new(address: SocketAddr) -> Self {
        Self::to(address, OVER_HTTP_2.get())
    }

    fn to(address: SocketAddr, is_http2: bool) -> Self {
        Self { address, is_http2 }
    }

    pub fn connect(self) -> Client {
        match self.is_http2 {
            true => Translated::connect(self.address),
            false => Client::connect(self.address),
        }
    }
}

/// Runs a case over HTTP/2.
pub fn over_http2(case: fn(Model), model: Model) {
    OVER_HTTP_2.set(true);
    case(model);
}

/// Runs a case over TLS.
pub fn over_tls(case: fn(Model), model: Model) {
    OVER_TLS.set(true);
    case(model);
}

/// Runs a case over HTTP/2 and TLS.
pub fn over_http2_and_tls(case: fn(Model), model: Model) {
    OVER_TLS.set(true);
    over_http2(case, model);
}

/// Both ends of TLS, for one certificate: of the handshake's name, and of the host in requests, which would be
/// misdirected over HTTP/2.
pub fn tls_ends(options: &TlsOptions) -> (TlsServer, TlsClient) {
    let certificate = self_signed(&["localhost".to_owned(), "h".to_owned()]).unwrap();
    let trusted = Authorities::one(certificate.der()).unwrap();
    let client = TlsClient::new(&trusted, Profile::Intermediate).unwrap();
    let certificates = Arc::new(Certificates::new(vec![certificate]));
    (TlsServer::new(&certificates, options).unwrap(), client)
}

/// A client over TLS.
pub fn connect_by(client: &TlsClient, address: SocketAddr) -> Client {
    translated_tls::connect(client, address, OVER_HTTP_2.get())
}

/// A folder with `FILES` in it.
fn folder() -> TempDir {
    /// Made once: thousands of servers have a folder each.
    static LONGEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let lens = FILES.iter().map(|(_, len)| *len);
        pattern(lens.max().unwrap_or_default())
    });
    let root = TempDir::new().unwrap();
    for (name, len) in FILES {
        std::fs::write(root.path().join(name), &LONGEST[..len]).unwrap();
    }
    std::fs::create_dir(root.path().join("folder")).unwrap();
    std::fs::write(root.path().join("folder/index.html"), "in a folder").unwrap();
    root
}

impl Server {
    pub fn start(model: Model) -> Self {
        Self::start_with(model.options(), limits())
    }

    pub fn start_with(options: ServerOptions, limits: Limits) -> Self {
        Self::start_over(options, limits, StaticOptions::default())
    }

    /// The same with other versions of HTTP.
    pub fn start_of(http2: Http2, options: ServerOptions, limits: Limits) -> Self {
        HTTP_2.set(http2);
        let server = Self::start_with(options, limits);
        HTTP_2.set(Http2::On);
        server
    }

    pub fn start_over(options: ServerOptions, limits: Limits, files: StaticOptions) -> Self {
        let root = folder();
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        Self::start_files_at(root, options, limits, any_port, files, None)
    }

    pub fn start_at(
        root: TempDir,
        options: ServerOptions,
        limits: Limits,
        listen: ListenAddr,
    ) -> Self {
        Self::start_logging(root, options, limits, listen, None)
    }

    /// The same with a connection log.
    pub fn start_logging(
        root: TempDir,
        options: ServerOptions,
        limits: Limits,
        listen: ListenAddr,
        connection_log: Option<ConnectionLogging>,
    ) -> Self {
        let files = StaticOptions::default();
        Self::start_files_at(root, options, limits, listen, files, connection_log)
    }

    fn start_files_at(
        root: TempDir,
        options: ServerOptions,
        limits: Limits,
        listen: ListenAddr,
        files: StaticOptions,
        connection_log: Option<ConnectionLogging>,
    ) -> Self {
        Self::start_protocol_at(
            root,
            options,
            (limits, Protocol::Http),
            listen,
            files,
            connection_log,
        )
    }

    /// The same that speaks another protocol.
    pub fn start_speaking(options: ServerOptions, protocol: Protocol) -> Self {
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let files = StaticOptions::default();
        Self::start_protocol_at(
            folder(),
            options,
            (limits(), protocol),
            any_port,
            files,
            None,
        )
    }

    /// The same that speaks TLS.
    pub fn start_tls(options: ServerOptions, limits: Limits, tls: (TlsServer, TlsClient)) -> Self {
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let files = StaticOptions::default();
        let protocol = tls.0.protocol();
        let limits = (limits, protocol);
        let mut server = Self::start_protocol_at(folder(), options, limits, any_port, files, None);
        server.tls = Some(tls);
        server
    }

    fn start_protocol_at(
        root: TempDir,
        options: ServerOptions,
        (limits, protocol): (Limits, Protocol),
        listen: ListenAddr,
        files: StaticOptions,
        connection_log: Option<ConnectionLogging>,
    ) -> Self {
        let tls = OVER_TLS.get().then(|| tls_ends(&TlsOptions::default()));
        let protocol = match &tls {
            Some((server, _)) => server.protocol(),
            None => protocol,
        };
        let files = StaticOptions {
            compress: files.compress && !options.blocks_on_loops(), // as the program has it
            ..files
        };
        let files = StaticFiles::new(root.path(), files).unwrap();
        let site = Arc::new(TestSite {
            files,
            gate: Gate::default(),
            at_work: Arc::default(),
        });
        let config = ServerConfig {
            options,
            memory: None,
            unix_mode: None,
            access_log: None,
            connection_log,
        };
        let listener = ListenerConfig {
            address: listen,
            session: Arc::new(SessionConfig {
                limits,
                http2: HTTP_2.get(),
                ..SessionConfig::default()
            }),
            protocol,
        };
        let served = Config {
            handler: Arc::clone(&site),
            listeners: vec![listener],
        };
        let handle = serve(served, config).unwrap();
        Self {
            root,
            site,
            address: handle.tcp_address().unwrap(),
            control: handle.control(),
            handle: Some(handle),
            tls,
            is_http2: OVER_HTTP_2.get(),
        }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn connect(&self) -> Client {
        match &self.tls {
            Some((_, client)) => translated_tls::connect(client, self.address, self.is_http2),
            None => self.connector().connect(),
        }
    }

    /// What connects from other threads. (Not over TLS.)
    pub fn connector(&self) -> Connector {
        Connector::to(self.address, self.is_http2)
    }

    /// Waits until nobody is connected any more.
    pub fn await_no_connections(&self) {
        eventually("every connection is closed", || {
            let total = self.control.snapshot().total;
            // A close is counted a moment before the connection leaves its thread's gauge.
            total.accepted == total.closed.iter().sum::<u64>() && total.connections == 0
        });
    }

    /// Drains it; says how many connections had to be cut.
    pub fn end(mut self) -> u64 {
        let handle = self.handle.take().unwrap();
        handle.drain();
        handle.wait().unwrap().connections_cut
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        self.site.gate.open();
        if std::thread::panicking() {
            handle.stop_now();
            return;
        }
        let control = handle.control();
        handle.drain();
        let ending = handle.wait().unwrap();
        assert_eq!(ending.connections_cut, 0, "a clean drain");
        let total = control.snapshot().total;
        assert_eq!(total.accepted, total.closed.iter().sum::<u64>(), "closes");
        assert_eq!(total.connections, 0, "connections left in the books");
    }
}

/// Waits for what comes about on another thread.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came about that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
