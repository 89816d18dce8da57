//! The app on a server in this process, on a port that the kernel chooses.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use axum::Router;
use loadline_proto::{Handler, Limits, Protocol, SessionConfig};
use loadline_server::{
    Config, Counts, ListenerConfig, Server, ServerConfig, ServerHandle, ServerOptions, serve,
};
use loadline_tower::Tower;

use crate::app::{self, Shared};
use crate::client::{Client, TIMEOUT};
use crate::model::Model;
use crate::translated::Translated;

/// A running server. Dropping it drains it.
pub struct Running {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    handle: Option<ServerHandle>,
    is_http2: bool,
}

thread_local! {
    /// Whether clients of servers that this thread starts speak HTTP/2.
    static OVER_HTTP_2: Cell<bool> = const { Cell::new(false) };
}

/// A client of a server that this thread has started otherwise.
pub fn connect(address: SocketAddr) -> Client {
    connect_over(OVER_HTTP_2.get(), address)
}

fn connect_over(is_http2: bool, address: SocketAddr) -> Client {
    match is_http2 {
        true => Translated::connect(address),
        false => Client::connect(address),
    }
}

/// Whether those clients speak HTTP/2.
pub fn is_over_http2() -> bool {
    OVER_HTTP_2.get()
}

/// Whether a response is there whose length its head says.
pub fn is_whole(plain: &[u8]) -> bool {
    let text = String::from_utf8_lossy(plain);
    let Some((head, content)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    content.len() == length.unwrap().1.parse::<usize>().unwrap()
}

/// Runs a case over HTTP/2.
pub fn over_http2(case: fn(Model), model: Model) {
    OVER_HTTP_2.set(true);
    case(model);
}

impl Running {
    pub fn start(model: Model) -> Self {
        Self::start_with(model.options(), Limits::default())
    }

    pub fn start_with(options: ServerOptions, limits: Limits) -> Self {
        Self::start_mounted(options, limits, |app| app)
    }

    /// Whose app is notified of clients that half-close.
    pub fn start_notifying(model: Model) -> Self {
        Self::start_mounted(model.options(), Limits::default(), |app| {
            app.cancel_on_half_close(true)
        })
    }

    /// Whose app takes no more content than this.
    pub fn start_limited(model: Model, bytes: u64) -> Self {
        Self::start_mounted(model.options(), Limits::default(), |app| {
            app.body_bytes_max(bytes)
        })
    }

    /// With another app.
    pub fn start_tower<H: Handler>(model: Model, app: impl FnOnce(Arc<Shared>) -> H) -> Self {
        Self::start_app(model.options(), Limits::default(), app)
    }

    fn start_mounted(
        options: ServerOptions,
        limits: Limits,
        mount: impl Fn(Tower<Router>) -> Tower<Router>,
    ) -> Self {
        Self::start_app(options, limits, |shared| {
            mount(Tower::new(app::router(shared)).unwrap())
        })
    }

    /// The same with other options.
    pub fn start_app<H: Handler>(
        options: ServerOptions,
        limits: Limits,
        app: impl FnOnce(Arc<Shared>) -> H,
    ) -> Self {
        let shared = Arc::<Shared>::default();
        let handle = Server::new(app(Arc::clone(&shared)))
            .options(options)
            .limits(limits)
            .listen(([127, 0, 0, 1], 0))
            .start()
            .unwrap();
        Self {
            address: handle.tcp_address().unwrap(),
            shared,
            handle: Some(handle),
            is_http2: OVER_HTTP_2.get(),
        }
    }

    /// That speaks another protocol: TLS.
    pub fn start_tls(model: Model, protocol: Protocol) -> Self {
        let shared = Arc::<Shared>::default();
        let app = app::router(Arc::clone(&shared));
        let served = Config {
            handler: Arc::new(Tower::new(app).unwrap()),
            listeners: vec![ListenerConfig {
                address: ([127, 0, 0, 1], 0).into(),
                session: Arc::<SessionConfig>::default(),
                protocol,
            }],
        };
        let config = ServerConfig {
            options: model.options(),
            memory: None,
            unix_mode: None,
            access_log: None,
            connection_log: None,
        };
        let handle = serve(served, config).unwrap();
        Self {
            address: handle.tcp_address().unwrap(),
            shared,
            handle: Some(handle),
            is_http2: OVER_HTTP_2.get(),
        }
    }

    pub fn connect(&self) -> Client {
        connect_over(self.is_http2, self.address)
    }

    /// Waits until so many requests hang in the app.
    pub fn await_hanging(&self, count: u64) {
        eventually("so many hang", || self.shared.hanging.load(SeqCst) == count);
    }

    /// Waits until the server counts so many requests that an app has.
    pub fn await_in_progress(&self, count: u64) {
        eventually("so many are in progress", || {
            self.total().app_requests_in_progress == count
        });
    }

    /// Waits until so many requests are with the app or were refused for their time.
    pub fn await_decided(&self, count: u64) {
        eventually("so many are decided", || {
            let total = self.total();
            total.app_requests_in_progress + total.refused_late == count
        });
    }

    /// Waits until so many jobs wait for a worker.
    pub fn await_waiting(&self, count: u64) {
        eventually("so many wait", || self.total().queue_depth == count);
    }

    fn total(&self) -> Counts {
        let handle = self.handle.as_ref().expect("until it is dropped");
        handle.snapshot().total
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        if std::thread::panicking() {
            handle.stop_now();
            return;
        }
        handle.drain();
        assert!(handle.wait().unwrap().is_clean(), "a clean drain");
        assert_eq!(self.shared.hanging.load(SeqCst), 0, "a future left behind");
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
