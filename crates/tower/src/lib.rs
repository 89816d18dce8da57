//! Any tower service as a handler: an axum app runs under every architecture of Loadline.
//!
//! [`Tower`] turns a `tower_service::Service<http::Request<`[`Body`]`>>`, whose response has an
//! `http_body::Body`, into a [`Handler`] for `loadline_server::Server`. Whichever worker is free polls the
//! service's future; an event loop, if it has no workers; or the connection's own thread, as the
//! architecture says. Content streams in both directions with backpressure.
//!
//! ```
//! use axum::{Router, routing::get};
//! use loadline_server::Server;
//! use loadline_tower::Tower;
//!
//! let app: Router = Router::new().route("/hello", get(|| async { "hello" }));
//! let server = Server::new(Tower::new(app)?).listen(([127, 0, 0, 1], 0)).start()?;
//! println!("serving at {:?}", server.addresses());
//! server.control().drain(); // or `server.wait()`, to serve until a drain
//! # server.wait()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! **The request.** Method, target and fields as the client sent them, with duplicates, in order.
//! [`Addresses`], an extension, has the client and both ends of the connection. Malformed requests are
//! refused before the service is called. Trailers follow the content as a frame of the body; those that
//! belong into the head are refused (400), so none of them can pass for a field of it. `Upgrade` is ignored.
//!
//! **The response.** Status, fields and content as the service gives them. Loadline adds Date and
//! Server where they are missing, and is responsible for the framing: it checks Content-Length against
//! the content, and sets Transfer-Encoding and Connection (but for `close`) itself. A service that
//! fails, panics or responds with 1xx becomes a 500 and a line in the log.
//!
//! **A client that leaves.** When a client leaves, or a time limit of
//! [`Limits`](loadline_proto::Limits) passes, the service's future is dropped, as in other servers.
//! Work that has to be finished in any case belongs into `tokio::spawn`. A client that half-closes has
//! not left, unless [`cancel_on_half_close`](Tower::cancel_on_half_close) says so, or its request has
//! waited for a worker or a thread for more than a tenth of the server's latency goal before the service
//! is called: then the answer is 503, and the service is not called.
//!
//! **Content** may have any length, unless [`body_bytes_max`](Tower::body_bytes_max) sets a limit. If its
//! length is known and at most 64 KiB, all of it is there when the service is called.
//!
//! **Compression.** [`compressed`](Tower::compressed) compresses text while it streams, off event loops:
//! `Tower::new(app)?.compressed()`.
//!
//! **The runtime.** Each poll is inside the context of a tokio runtime, so timers, sockets,
//! `tokio::spawn` and `spawn_blocking` work. This process has one ([`runtime`]), with one thread,
//! unless another is given ([`Tower::on`]).
//!
//! **Memory.** A request in progress holds at most one window (64 KiB) of content in each direction,
//! 128 KiB of input behind it, and what the service itself keeps: a frame of its response that is
//! larger than the window stays with the service until it is sent.
#![forbid(unsafe_code)]

/// What the README and the manual show is compiled, too.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/apps.md")]
    mod apps {}
}

mod answer;
mod body;
mod compressed;
mod context;
mod request;

use core::net::SocketAddr;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use http::{Request, Response};
use loadline_base::{MemoryBudget, limited};
use loadline_proto::{Context, Exchange, Handler, Outcome, Port, Status, Task, TaskOptions};
use tokio::runtime::Handle;
use tower_service::Service;

use compressed::PolledByLoop;

pub use body::Body;
pub use compressed::{Compressed, CompressedBody, CompressedData, CompressedFuture};
pub use context::runtime;
pub use loadline_proto::{Client, Security};

/// Who has sent the request, and both ends of the connection, as an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client: the one that a trusted proxy names, else the other end of the connection. `None`
    /// on a Unix socket, if no proxy names a client.
    pub client: Option<Client>,
    /// Whether the client has sent it by https: to this server, or as a trusted proxy says.
    pub is_secure: bool,
    /// The other end of the connection, perhaps a proxy's; `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The one that the client has connected to; `None` over a Unix socket.
    pub local: Option<SocketAddr>,
}

/// Lines of one kind in ten seconds about what goes wrong: clients may know how to cause them.
const FAILURES_MAX: u32 = 20;

type MapRequest = Arc<dyn Fn(&mut Request<Body>) + Send + Sync>;
type BoxError = Box<dyn Error + Send + Sync>;

/// A tower service as a handler.
pub struct Tower<S> {
    service: Arc<S>,
    runtime: Handle,
    map_request: Option<MapRequest>,
    is_compressed: bool,
    options: TaskOptions,
}

impl<S: fmt::Debug> fmt::Debug for Tower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tower").field(&self.service).finish()
    }
}

impl<S> Tower<S> {
    /// Mounts a service, within the process's own [`runtime`].
    ///
    /// # Errors
    /// The runtime cannot be started: no thread or no descriptor is to be had.
    pub fn new(service: S) -> io::Result<Self> {
        Ok(Self::on(runtime()?, service))
    }

    /// Mounts a service within a runtime that the caller keeps alive, `Handle::current()` say. It
    /// needs its drivers (`enable_all`) and a thread that runs them.
    pub fn on(runtime: Handle, service: S) -> Self {
        Self {
            service: Arc::new(service),
            runtime,
            map_request: None,
            is_compressed: false,
            options: TaskOptions::default(),
        }
    }

    /// Takes requests with up to this many bytes of content. One that announces more is answered with
    /// 413 before the service sees it; where chunked content grows beyond it, the service's future is
    /// dropped, and the answer is 413, or cut if it has begun. Without this there is no limit, but for
    /// those of the service itself (axum's `DefaultBodyLimit`, say).
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: u64) -> Self {
        self.options.body_bytes_max = bytes;
        self
    }

    /// Whether a client that half-closes its connection has left, so that the service's future is
    /// dropped. It has not by default: it gets its answer, if its request has not waited for more than a
    /// tenth of the server's latency goal before the service is called. A client that closes altogether
    /// looks the same until something is sent to it; so this is for services that should not work in
    /// vain and whose clients do not half-close.
    #[must_use]
    pub fn cancel_on_half_close(mut self, cancel: bool) -> Self {
        self.options.cancel_on_half_close = cancel;
        self
    }

    /// Has each request pass by before the service sees it, to add an extension in the form that
    /// an app expects, say: axum's `ConnectInfo`.
    #[must_use]
    pub fn map_request(mut self, map: impl Fn(&mut Request<Body>) + Send + Sync + 'static) -> Self {
        self.map_request = Some(Arc::new(map));
        self
    }
}

impl<S: Clone> Tower<S> {
    /// Compresses responses with zstd, brotli or gzip, as the client prefers, while they stream. What the
    /// service has written is flushed when it has nothing more for the moment.
    ///
    /// Text-like content is compressed, if it has 1 KiB or more, or an unknown length. `Vary` says so, and a
    /// strong `ETag` becomes weak. What has a `Content-Encoding`, ranges (`Accept-Ranges`, `Content-Range`), a
    /// digest (also announced by `Trailer`), or `Cache-Control: no-transform` stays as it is. Digests that come in
    /// the trailers of compressed content all the same are removed.
    ///
    /// So does what may have secrets of one client in it, since their compressed length tells of them (BREACH):
    /// responses to requests with `Cookie`, `Authorization` or a client certificate, and responses with
    /// `Set-Cookie`, unless they say `Cache-Control: public`; and those that say `private`.
    ///
    /// Compressing takes the time of a worker, or of the connection's own thread. Where an event loop polls the
    /// service (`workers(0)`), nothing is compressed. At most 128 responses of known length and as many others
    /// are compressed at a time, and no further one once they take 192 MiB of memory ([`memory`](Tower::memory)):
    /// those stay as they are.
    #[must_use]
    pub fn compressed(self) -> Tower<Compressed<S>> {
        self.compressing(false)
    }

    /// The same, also for what may have secrets in it: for a service that never sends a secret together with
    /// something that others can choose, or that masks its secrets anew in each response. `Cache-Control:
    /// no-transform` says of single responses that they are to stay as they are.
    #[must_use]
    pub fn compressed_with_credentials(self) -> Tower<Compressed<S>> {
        self.compressing(true)
    }

    fn compressing(self, with_credentials: bool) -> Tower<Compressed<S>> {
        let service = Arc::unwrap_or_clone(self.service);
        Tower {
            service: Arc::new(Compressed::new(service, with_credentials)),
            runtime: self.runtime,
            map_request: self.map_request,
            is_compressed: true,
            options: self.options,
        }
    }
}

impl<S: Clone> Tower<Compressed<S>> {
    /// Counts what compressing takes towards a budget in place of its own of 256 MiB, perhaps that of the server
    /// (`Server::memory`): about 0.4 MiB for each response with gzip, 1.3 MiB with zstd, and 1 MiB and five times the
    /// content with brotli. While three quarters of the budget or more are used, further responses stay as they are.
    #[must_use]
    pub fn memory(mut self, budget: Arc<MemoryBudget>) -> Self {
        let service = Arc::unwrap_or_clone(self.service);
        self.service = Arc::new(service.within(budget));
        self
    }
}

impl<S, B> Handler for Tower<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Local = ();

    fn local(&self) {}

    fn handle(&self, (): &mut (), _exchange: &mut Exchange, _cx: &mut Context<'_>) -> Outcome {
        Outcome::Later(self.options)
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        exchange.response.error(Status::INTERNAL_SERVER_ERROR); // `handle` never says `Blocking`
    }

    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        let service = Arc::clone(&self.service);
        let says_loop = self.is_compressed && exchange.is_done_by_loop;
        let task = serve(service, self.map_request.clone(), says_loop, exchange, port);
        Box::pin(context::Within::new(self.runtime.clone(), task))
    }
}

/// Everything happens within the runtime: a service may begin its work when it is cloned.
async fn serve<S, B>(
    service: Arc<S>,
    map_request: Option<MapRequest>,
    says_loop: bool,
    mut exchange: Box<Exchange>,
    port: Port,
) where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let request = match request::from_exchange(&exchange, &port) {
        Ok(mut request) => {
            if says_loop {
                request.extensions_mut().insert(PolledByLoop);
            }
            if let Some(map) = map_request {
                map(&mut request);
            }
            request
        }
        Err(unfit) => {
            limited!(FAILURES_MAX, Instant::now(), |more| tracing::debug!(
                "a request that no app can be given: {unfit}{more}"
            ));
            exchange.response.error(Status::BAD_REQUEST);
            return port.answer(exchange);
        }
    };
    let mut service = (*service).clone();
    let ready = core::future::poll_fn(|context| service.poll_ready(context)).await;
    let refusal: Option<BoxError> = ready.err().map(Into::into);
    let response = match refusal {
        None => service.call(request).await.map_err(Into::into),
        Some(error) => Err(error),
    };
    match response {
        Ok(response) => answer::give(response, exchange, &port).await,
        Err(error) => {
            limited!(FAILURES_MAX, Instant::now(), |more| tracing::error!(
                "an app failed: {error}{more}"
            ));
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            port.answer(exchange);
        }
    }
}
