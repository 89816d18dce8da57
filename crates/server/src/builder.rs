//! A server put together in code, one choice after the other.

use std::io;
use std::sync::Arc;

use loadline_proto::{ErrorPages, Handler, Limits, Protocol, SessionConfig, TrustedProxies};

use crate::{
    AccessLogging, Architecture, Config, ConnectionLogging, ListenAddr, ListenerConfig,
    MemoryBudget, ServerConfig, ServerHandle, ServerOptions, SizeRange, serve,
};

/// A server that is being put together; what is not chosen has its default. See the crate's
/// documentation for an example.
#[derive(Clone)]
pub struct Server<H> {
    handler: Arc<H>,
    options: ServerOptions,
    session: SessionConfig,
    listen: Vec<(ListenAddr, Protocol)>,
    memory: Option<Arc<MemoryBudget>>,
    unix_mode: Option<u32>,
    access_log: Option<AccessLogging>,
    connection_log: Option<ConnectionLogging>,
}

impl<H> std::fmt::Debug for Server<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.listen.iter().map(|(address, _)| address).collect();
        f.debug_struct("Server")
            .field("options", &self.options)
            .field("listen", &addresses)
            .finish_non_exhaustive()
    }
}

impl<H: Handler> Server<H> {
    /// A server of this handler. To keep an eye on the handler while it serves, give an `Arc` of it.
    pub fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            options: ServerOptions::default(),
            session: SessionConfig::default(),
            listen: Vec::new(),
            memory: None,
            unix_mode: None,
            access_log: None,
            connection_log: None,
        }
    }

    /// The same server with another handler, made of this one.
    #[must_use]
    pub fn wrap<G: Handler>(self, wrap: impl FnOnce(Arc<H>) -> G) -> Server<G> {
        Server {
            handler: Arc::new(wrap(self.handler)),
            options: self.options,
            session: self.session,
            listen: self.listen,
            memory: self.memory,
            unix_mode: self.unix_mode,
            access_log: self.access_log,
            connection_log: self.connection_log,
        }
    }

    /// Where to listen, as often as wanted: a `SocketAddr` (port 0: a free one), `([127, 0, 0, 1], 8080)`
    /// say, or `ListenAddr::Unix`. Without any it is `127.0.0.1:8080`.
    #[must_use]
    pub fn listen(mut self, address: impl Into<ListenAddr>) -> Self {
        self.listen.push((address.into(), Protocol::Http));
        self
    }

    /// Where to listen for https, as often as wanted, beside addresses without TLS or alone.
    /// `loadline_tls::TlsFiles` reads certificates and keys, and takes them up again when they change:
    ///
    /// ```no_run
    /// use axum::{Router, routing::get};
    /// use loadline_server::Server;
    /// use loadline_tls::TlsFiles;
    /// use loadline_tower::Tower;
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let app = Router::new().route("/", get(|| async { "hello" }));
    ///     let server = Server::new(Tower::new(app)?)
    ///         .listen_tls(([0, 0, 0, 0], 443), TlsFiles::new("c.pem", "k.pem").open()?)
    ///         .start()?;
    ///     server.wait()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Certificates from another source are a `loadline_tls::TlsServer`, whose `protocol()` is given here.
    #[must_use]
    pub fn listen_tls(mut self, address: impl Into<ListenAddr>, tls: impl Into<Protocol>) -> Self {
        self.listen.push((address.into(), tls.into()));
        self
    }

    /// Permissions of the files of Unix sockets; by the process's mask unless said.
    #[must_use]
    pub fn unix_mode(mut self, mode: u32) -> Self {
        self.unix_mode = Some(mode);
        self
    }

    /// Which threads serve, and how they wait.
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.options.architecture = architecture;
        self
    }

    /// Loops (reactor, proactor). No more than there are CPUs.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Self {
        self.options.loops = loops;
        self
    }

    /// Workers (reactor, proactor): so many app requests are in progress at once. With 0 the loops
    /// poll the apps themselves, as many as come.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self.options.workers_range = None;
        self
    }

    /// A number of workers that changes by what the handlers do, between these bounds (reactor,
    /// proactor).
    #[must_use]
    pub fn workers_between(mut self, min: usize, max: usize) -> Self {
        let range = SizeRange { min, max };
        self.options.workers = range.clamp(self.options.workers);
        self.options.workers_range = Some(range);
        self
    }

    /// Threads (thread-pool).
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = threads;
        self.options.threads_range = None;
        self
    }

    /// A number of threads that changes by what the handlers do, between these bounds (thread-pool with
    /// a latency goal).
    #[must_use]
    pub fn threads_between(mut self, min: usize, max: usize) -> Self {
        let range = SizeRange { min, max };
        self.options.threads = range.clamp(self.options.threads);
        self.options.threads_range = Some(range);
        self
    }

    /// All options of the architecture at once.
    #[must_use]
    pub fn options(mut self, options: ServerOptions) -> Self {
        self.options = options;
        self
    }

    /// What all connections, their buffers and the threads may use of memory, perhaps together with other
    /// servers of the process. Without it there is no limit.
    #[must_use]
    pub fn memory(mut self, budget: Arc<MemoryBudget>) -> Self {
        self.memory = Some(budget);
        self
    }

    /// The bounds of each connection: sizes, windows, times.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.session.limits = limits;
        self
    }

    /// Content of error answers that a handler leaves without any.
    #[must_use]
    pub fn error_pages(mut self, pages: ErrorPages) -> Self {
        self.session.error_pages = pages;
        self
    }

    /// Proxies whose word about their clients is taken. Without any, the other end of a connection is
    /// the client.
    #[must_use]
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.session.trusted_proxies = proxies;
        self
    }

    /// The access log.
    #[must_use]
    pub fn access_log(mut self, log: AccessLogging) -> Self {
        self.access_log = Some(log);
        self
    }

    /// The connection log.
    #[must_use]
    pub fn connection_log(mut self, log: ConnectionLogging) -> Self {
        self.connection_log = Some(log);
        self
    }

    /// Binds and starts; returns once connections can be served.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn start(mut self) -> io::Result<ServerHandle> {
        if self.listen.is_empty() {
            self = self.listen(([127, 0, 0, 1], 8080));
        }
        let session = Arc::new(self.session);
        let listener = |(address, protocol)| ListenerConfig {
            address,
            session: Arc::clone(&session),
            protocol,
        };
        let served = Config {
            handler: self.handler,
            listeners: self.listen.into_iter().map(listener).collect(),
        };
        let config = ServerConfig {
            options: self.options,
            memory: self.memory,
            unix_mode: self.unix_mode,
            access_log: self.access_log,
            connection_log: self.connection_log,
        };
        serve(served, config)
    }
}
