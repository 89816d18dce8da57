//! What the tests of the architectures have in common: a gate, servers, and waiting that ends.

mod child;
mod client;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use loadline_proto::{Handler, Limits, SessionConfig};
use loadline_server::{
    Config, Ending, ListenAddr, ServerConfig, ServerHandle, ServerOptions, serve,
};

pub(crate) use child::{ChildServer, as_child};
pub(crate) use client::{Answer, Client};

/// Longest wait for anything before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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

/// A handler with a gate.
pub(crate) trait Gated: Handler {
    fn gate(&self) -> &Gate;
}

pub(crate) struct Server<H> {
    pub(crate) handle: ServerHandle,
    pub(crate) handler: Arc<H>,
    pub(crate) address: SocketAddr,
}

impl<H: Handler> Server<H> {
    pub(crate) fn start(options: ServerOptions, handler: H, limits: Limits) -> Self {
        let handler = Arc::new(handler);
        let config = ServerConfig {
            options,
            ..ServerConfig::default()
        };
        let handle = serve(
            Config::new(
                Arc::clone(&handler),
                Arc::new(SessionConfig {
                    limits,
                    ..SessionConfig::default()
                }),
                vec![ListenAddr::Tcp(([127, 0, 0, 1], 0).into())],
            ),
            config,
        )
        .unwrap();
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

    /// Drains and waits for the end.
    pub(crate) fn end(self) -> Ending {
        self.handle.drain();
        self.handle.wait().unwrap()
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
