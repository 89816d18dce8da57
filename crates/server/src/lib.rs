//! Loadline as a library: serve files, axum and tower apps, or handlers of your own, under any of five
//! concurrency architectures.
//!
//! # A served app in five minutes
//!
//! In a new project, beside a clone of Loadline's repository:
//!
//! ```toml
//! [dependencies]
//! axum = "0.8"
//! loadline-server = { path = "../loadline/crates/server" }
//! loadline-tower = { path = "../loadline/crates/tower" } # apps
//! loadline-apps = { path = "../loadline/crates/apps" }   # files beside them
//! ```
//!
//! Put pages into a folder `public`, and this into `src/main.rs`. There is no `#[tokio::main]`:
//! Loadline's own threads poll the app.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use loadline_apps::{Mounts, StaticFiles, StaticOptions};
//! use loadline_server::{Architecture, Server};
//! use loadline_tower::Tower;
//!
//! fn main() -> std::io::Result<()> {
//!     let app = Router::new().route("/api/hello", get(|| async { "hello" }));
//!     let files = StaticFiles::new("public".as_ref(), StaticOptions::default())?;
//!     let server = Server::new(Mounts::new(files).mount("/api", Tower::new(app)?))
//!         .architecture(Architecture::Reactor)
//!         .listen(([127, 0, 0, 1], 8080))
//!         .start()?;
//!     println!("serving at {:?}", server.addresses());
//!     server.wait()?;
//!     Ok(())
//! }
//! ```
//!
//! `cargo run`, and in another terminal `curl http://127.0.0.1:8080/api/hello`. From there:
//!
//! - [`Server`]: addresses, loops, workers, limits, logs, trusted proxies.
//! - [`Architecture`]: which thread does what; `docs/architectures.md` helps to choose.
//! - [`Control`]: drain, stop and count from another thread.
//! - `loadline-tower`: what an app sees, what happens when a client leaves; `docs/apps.md` is the guide,
//!   and `crates/tower/examples/` has programs that run.
//! - [`Server::listen_tls`] and `loadline-tls`: https, with certificates from files that may change.
//! - `loadline-observe`: an access log, a status page, a live page and probes, in two lines.
//! - [`Handler`]: an app without a future and without an allocation for each request.
//!
//! # Stopping
//!
//! A drain finishes the requests that were accepted:
//!
//! ```
//! use axum::{Router, routing::get};
//! use loadline_server::Server;
//! use loadline_tower::Tower;
//!
//! fn main() -> std::io::Result<()> {
//!     let app = Router::new().route("/", get(|| async { "hello" }));
//!     let server = Server::new(Tower::new(app)?).listen(([127, 0, 0, 1], 0)).start()?;
//!
//!     let control = server.control(); // for another thread: a signal handler's, for example
//!     control.drain();
//!     let ending = server.wait()?;
//!     println!("{} requests, {ending:?}", control.snapshot().total.requests());
//!     Ok(())
//! }
//! ```
//!
//! # How it is built
//!
//! A session (`loadline-proto`) knows HTTP and no sockets; a [`Handler`] knows apps or files and no
//! threads; an [`Architecture`] knows threads and sockets and no HTTP: it decides which thread carries
//! out each order of the session, and how that thread waits. `ARCHITECTURE.md` is the map.
#![forbid(unsafe_code)]

mod accept {
    pub(crate) mod acceptor;
    pub(crate) mod adaptive;
    pub(crate) mod balance;
    pub(crate) mod listener;
    pub(crate) mod listener_set;
}
mod admission;
mod architecture;
/// Parts of the architectures whose threads block.
mod blocking {
    pub(crate) mod connection_queue;
    pub(crate) mod connection_slots;
    pub(crate) mod spare_threads;
}
mod builder;
mod clock;
mod config;
mod connection;
mod connection_thread;
mod event_loop;
mod fairness;
mod handle;
mod memory;
mod options;
mod overload;
mod shutdown;
#[cfg(test)]
mod simulation;
mod site;
mod sync;
mod task;
mod telemetry {
    pub(crate) mod connection_log;
    pub(crate) mod counters;
    pub(crate) mod log;
}
mod thread {
    pub(crate) mod context;
    pub(crate) mod group;
    pub(crate) mod time_slices;
}
mod transport;
mod worker {
    pub(crate) mod dispatcher;
    pub(crate) mod early_look;
    pub(crate) mod holding;
    pub(crate) mod job;
    pub(crate) mod job_queue;
    #[cfg(test)]
    mod job_queue_tests;
    pub(crate) mod mailbox;
    #[cfg(test)]
    mod mailbox_tests;
    pub(crate) mod meter;
    pub(crate) mod peaks;
    pub(crate) mod pool;
    mod queue_ends;
    pub(crate) mod resizer;
}

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use loadline_proto::{AccessFormat, Handler};
use loadline_sys::affinity::cpu_budget;

pub use architecture::fixed_memory_bytes;
pub use builder::Server;
pub use config::{Config, ConfigError, ListenerConfig, SharedConfig};
pub use handle::{Control, Ending, ServerHandle};
pub use loadline_base::MemoryBudget;
pub use loadline_proto::{
    ConnectionFormat, ErrorPages, ForwardedField, Limits, Protocol, TrustedProxies, TrustedProxy,
};
pub use loadline_sys::ListenAddr;
pub use options::{
    Accept, Architecture, BACKLOG_MAX, Balance, CONNECTIONS_MAX, DESCRIPTORS_RESERVED, FileIo,
    LOOPS_MAX, OptionError, Parsing, QUEUE_MAX, Queue, ServerOptions, SizeRange, SocketIo,
    THREADS_MAX, WorkerPools, check_offered,
};
pub use overload::AppCounts;
pub use telemetry::counters::{Counts, Role, Snapshot, ThreadSnapshot, Timings};

pub use accept::listener::ListenError;
pub(crate) use accept::listener::Listener;
use clock::Clock;
use overload::{AppRequests, InProgress};
use shutdown::Shutdown;
use site::{Site, Started};
use telemetry::connection_log::SharedConnectionLog;

/// Takes lines of a log from serving threads.
pub trait AccessSink: Send + Sync {
    /// Takes the lines away, all of them whole, leaving the vector empty (another's memory or its
    /// own). Never blocks: what there is no room for is dropped and counted.
    fn offer(&self, lines: &mut Vec<u8>);
}

/// Where log lines go, and in which form.
#[derive(Clone)]
pub struct AccessLogging {
    /// The form of a line.
    pub format: AccessFormat,
    /// Who takes them.
    pub sink: Arc<dyn AccessSink>,
}

/// Where the connection log goes, and in which form.
#[derive(Clone)]
pub struct ConnectionLogging {
    /// The form of a line.
    pub format: ConnectionFormat,
    /// Who takes them.
    pub sink: Arc<dyn AccessSink>,
}

/// What a server keeps for its life; what is served may be replaced ([`SharedConfig`]).
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// Architecture and numbers.
    pub options: ServerOptions,
    /// What connections, buffers and threads may use of memory, perhaps with others; `None`: without a
    /// limit.
    pub memory: Option<Arc<MemoryBudget>>,
    /// Permissions of the files of Unix sockets; `None`: by the process's mask.
    pub unix_mode: Option<u32>,
    /// The access log, if there is one.
    pub access_log: Option<AccessLogging>,
    /// The connection log, if there is one.
    pub connection_log: Option<ConnectionLogging>,
}

/// Binds, starts the threads of the architecture, and returns once connections can be served.
///
/// # Errors
/// The options contradict each other or the machine does not offer the architecture ([`OptionError`]
/// inside; nothing is bound then), an address cannot be bound (the message names it), or threads or
/// descriptors cannot be had.
pub fn serve<H: Handler>(
    served: impl Into<Arc<SharedConfig<H>>>,
    config: ServerConfig,
) -> io::Result<ServerHandle> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    config.options.validate().map_err(invalid)?;
    check_offered(config.options.architecture).map_err(invalid)?;
    let architecture = config.options.architecture;
    start(served, config, move |site, listeners, started| {
        architecture::run(architecture, site, listeners, started)
    })
}

/// Where threads share the CPUs. Those of a pool are as many as it was given, or as its sizes have found.
fn in_progress(options: &ServerOptions) -> Option<InProgress> {
    let goal = options.latency_goal?;
    let has_thread_each = options.architecture == Architecture::ThreadPerConnection;
    let cpus = has_thread_each.then(|| cpu_budget().cpu_seconds_per_second());
    Some(InProgress::new(goal, cpus))
}

/// The same with these threads.
fn start<H: Handler>(
    served: impl Into<Arc<SharedConfig<H>>>,
    config: ServerConfig,
    run: impl FnOnce(&Arc<Site<H>>, Vec<Listener>, Started) -> io::Result<()> + Send + 'static,
) -> io::Result<ServerHandle> {
    let served = served.into();
    if config.options.architecture.has_loops() && config.options.parse == Parsing::Worker {
        served.offload();
    }
    let addresses = served.current().addresses();
    let listeners = Listener::bind_all(&addresses, &config.options, config.unix_mode)?;
    let addresses = listeners.iter().map(|l| l.address().clone()).collect();
    let socket_buffers = listeners.iter().map(Listener::socket_buffer_bytes);
    let clock = Clock::new();
    let apps = (config.options.latency_goal).map(|goal| AppRequests::new(goal, clock));
    let site = Arc::new(Site {
        memory: config.memory.unwrap_or_else(|| MemoryBudget::new(None)),
        socket_buffer_bytes: socket_buffers.max().unwrap_or(0),
        in_progress: in_progress(&config.options),
        apps,
        config: served,
        clock,
        descriptor_log_after: accept::acceptor::LogAfter::default(),
        shutdown: Shutdown::new()?,
        registry: Arc::default(),
        local_addresses: Default::default(),
        warned_of_unnamed_proxy: Default::default(),
        failure: Default::default(),
        access: config.access_log.map(|access| (access.format, access.sink)),
        connection_log: config.connection_log.map(SharedConnectionLog::new),
        options: config.options.with_parts(),
    });
    let (started, starting) = sync_channel(1);
    let main = std::thread::Builder::new()
        .name("main loop".into())
        .spawn({
            let site = Arc::clone(&site);
            move || {
                // Inherited by every thread that is started from here. A refusal costs only precision.
                let _ = loadline_sys::usage::sleep_precisely();
                site.guarded("the main thread", || {
                    run(&site, listeners, Started(started))
                })
            }
        })?;
    if starting.recv().is_err() {
        let result = main.join().unwrap_or(Ok(()));
        return Err(result.err().unwrap_or_else(|| {
            io::Error::other("the architecture ended before it began to serve")
        }));
    }
    Ok(ServerHandle::new(site, addresses, main))
}
