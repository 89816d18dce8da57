//! Servers with threads that wait, and what their clients are asked besides.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadline_proto::{AccessFormat, Limits, SessionConfig};
use loadline_server::{
    AccessLogging, AccessSink, Architecture, Config, ListenAddr, ServerConfig, ServerOptions, serve,
};

pub(crate) use crate::shared::*;

/// Every architecture built on `parts/blocking`.
pub(crate) const BLOCKING: [Architecture; 3] = [
    Architecture::Sequential,
    Architecture::ThreadPerConnection,
    Architecture::ThreadPool,
];

pub(crate) fn options(architecture: Architecture) -> ServerOptions {
    ServerOptions {
        architecture,
        threads: 4,
        latency_goal: Some(Duration::from_secs(60)),
        defer_accept: false, // so that silent connections show at once
        ..ServerOptions::default()
    }
}

pub(crate) fn start(options: ServerOptions) -> Server {
    start_with(options, Limits::default())
}

pub(crate) fn start_with(options: ServerOptions, limits: Limits) -> Server {
    Server::start(options, TestHandler::default(), limits)
}

/// The access log of a server.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<u8>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits until an answered request for `path` is in it. By then its thread rests.
    pub(crate) fn await_request(&self, path: &str) {
        let logged = format!("\"GET {path} HTTP/1.1\" 200 ");
        eventually(|| self.text().contains(&logged));
    }
}

impl AccessSink for Lines {
    fn offer(&self, lines: &mut Vec<u8>) {
        assert!(lines.ends_with(b"\n"), "only whole lines");
        self.0.lock().unwrap().append(lines);
    }
}

/// A server that keeps an access log.
pub(crate) fn start_logging(options: ServerOptions) -> (Server, Arc<Lines>) {
    let (handler, lines) = (Arc::<TestHandler>::default(), Arc::<Lines>::default());
    let config = ServerConfig {
        options,
        memory: None,
        unix_mode: None,
        access_log: Some(AccessLogging {
            format: AccessFormat::Common,
            sink: lines.clone(),
        }),
        connection_log: None,
    };
    let handle = serve(
        Config::new(
            Arc::clone(&handler),
            Arc::new(SessionConfig::default()),
            vec![ListenAddr::Tcp(([127, 0, 0, 1], 0).into())],
        ),
        config,
    )
    .unwrap();
    let address = handle.tcp_address().unwrap();
    let server = Server {
        handle,
        handler,
        address,
    };
    (server, lines)
}

/// Connections that wait at a listener to be accepted, of whichever process it is.
pub(crate) fn backlog_len(listener: SocketAddr) -> u64 {
    const LISTENS: &str = "0A";
    let port = format!(":{:04X}", listener.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = sockets.lines().map(str::split_ascii_whitespace);
    let queues = lines.find_map(|mut fields| {
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        (local.ends_with(&port) && state == LISTENS).then(|| fields.next())?
    });
    let (_, waiting) = queues.unwrap().split_once(':').unwrap();
    u64::from_str_radix(waiting, 16).unwrap()
}

impl Client {
    /// Whether bytes or the end come within some time.
    pub(crate) fn is_answered_within(&self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        peeked.is_ok()
    }
}

impl Client<UnixStream> {
    pub(crate) fn connect_unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self::over(stream)
    }
}

impl Answer {
    pub(crate) fn says_close(&self) -> bool {
        self.says("connection: close")
    }
}
