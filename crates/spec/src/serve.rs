//! A server as typed data: which threads, connections, files and accounts `loadline serve` has.
//!
//! Each option is declared once, here, as those of a load are. What only a part of the server can read
//! (a media type, a database) is a text here; that part says what is wrong with it when the server is
//! planned.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments are help texts, too: brackets stand for themselves"
)]

mod acme;
mod tls;
mod values;

pub use acme::{AcmeSpec, DirectoryUrl, DomainName, Email, LETS_ENCRYPT};
pub use tls::{CertificateSource, ClientCertificate, TlsProfile, TlsSpec};
pub use values::{FileName, Listen, LogLevel, Named, Secret, StatusPath, UnixMode};

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use loadline_base::choices::{
    Accept, AccessFormat, Architecture, BACKLOG_MAX, Balance, CONNECTIONS_MAX, FileIo,
    ForwardedField, Http2, LOOPS_MAX, Parsing, QUEUE_MAX, Queue, ServiceKind, SocketIo,
    THREADS_MAX, WorkerPools,
};

use crate::field::Preset;
use crate::values::{AnyTime, Auto, Count, FilePath, OnOff, OrOff, Size};
use crate::{spec, whole};
use values::named;

spec! {
    /// The options of `loadline serve`.
    pub struct ServeSpec {
        /// The directory to serve.
        #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
        pub root: Preset<FilePath>,

        /// Where to listen: IP:PORT, [IPV6]:PORT, https://IP:PORT or unix:PATH; may be given several
        /// times. Port 0 takes a free one. [::]:PORT takes IPv4 too, unless an IPv4 address of that port is given beside it.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        pub listen: Vec<Listen>,

        /// How it speaks TLS.
        #[command(flatten)]
        pub tls: TlsSpec,
        /// Where its certificates come from, if that is automatic.
        #[command(flatten)]
        pub acme: AcmeSpec,
        /// Which thread does what.
        #[command(flatten)]
        pub architecture: ArchitectureSpec,
        /// How many connections, and for how long.
        #[command(flatten)]
        pub connections: ConnectionSpec,
        /// How much memory.
        #[command(flatten)]
        pub memory: MemorySpec,
        /// What a request may cost.
        #[command(flatten)]
        pub requests: RequestSpec,
        /// Which connections come from proxies.
        #[command(flatten)]
        pub proxy: ProxySpec,
        /// Which files, and how.
        #[command(flatten)]
        pub content: ContentSpec,
        /// Accounts, and what they may cost.
        #[command(flatten)]
        pub accounts: AccountsSpec,
        /// Made-up work.
        #[command(flatten)]
        pub work: WorkSpec,
        /// What it says about itself, and how it ends.
        #[command(flatten)]
        pub running: RunningSpec,
    }
}

spec! {
    /// Which thread does what.
    #[command(next_help_heading = "Architecture")]
    pub struct ArchitectureSpec {
        /// How connections are divided among threads; auto is the proactor, or the reactor without
        /// io_uring.
        #[arg(long, value_name = "NAME", default_value = "auto", value_parser = architecture())]
        pub architecture: Preset<Auto<Named<Architecture>>>,

        /// Event loops that serve connections (reactor, proactor); auto is one for each CPU.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub loops: Preset<Auto<Count<1, LOOPS_MAX>>>,

        /// Threads for steps that may block (reactor, proactor). 0: the loops run them; auto begins with
        /// one for each CPU, and grows and shrinks between 2 and 256 by what the handlers do.
        #[arg(long, value_name = "M", default_value = "auto")]
        pub workers: Preset<Auto<Count<0, THREADS_MAX>>>,

        /// Threads, each with one connection at a time (thread-pool); auto begins with one for each CPU,
        /// and grows and shrinks between 2 and 256 by what the handlers do; with --latency-goal off
        /// it is 256. Fewer if descriptors are few.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub threads: Preset<Auto<Count<1, THREADS_MAX>>>,

        /// One pool of M workers for all loops, or M workers for each loop (reactor, proactor) [default:
        /// shared].
        #[arg(long, value_name = "HOW",
            value_parser = named::<WorkerPools>())]
        pub worker_pools: Option<Named<WorkerPools>>,

        /// How connections reach the loops (reactor, proactor): a main loop accepts and hands over, the
        /// loops share one listener, or each has its own [default: shared].
        #[arg(long, value_name = "HOW", value_parser = named::<Accept>())]
        pub accept: Option<Named<Accept>>,

        /// How the main loop chooses a loop for a connection (with --accept handoff); adaptive, with any
        /// --accept: the least busy loop, and connections move by what they cost [default:
        /// round-robin].
        #[arg(long, value_name = "RULE",
            value_parser = named::<Balance>())]
        pub balance: Option<Named<Balance>>,

        /// How jobs reach the workers (reactor, proactor) [default: shared].
        #[arg(long, value_name = "KIND", value_parser = named::<Queue>())]
        pub queue: Option<Named<Queue>>,

        /// Jobs (reactor, proactor) or connections (thread-pool) that may wait for a thread, with --queue
        /// work-stealing of files, apps and handshakes each; auto is one for each connection with a
        /// --latency-goal, otherwise 1024, or what descriptors allow.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub queue_max: Preset<Auto<Count<1, QUEUE_MAX>>>,

        /// Which threads read and write the sockets (reactor) [default: loop].
        #[arg(long, value_name = "WHO",
            value_parser = named::<SocketIo>())]
        pub socket_io: Option<Named<SocketIo>>,

        /// Which threads parse HTTP/1 without TLS (reactor, proactor): the loop, which hands on what may block;
        /// or a worker, which also carries requests out and encodes responses, while the loop receives and sends
        /// [default: loop].
        #[arg(long, value_name = "WHO",
            value_parser = named::<Parsing>())]
        pub parse: Option<Named<Parsing>>,

        /// How large files are sent (reactor, proactor): copied through a buffer, which is fastest
        /// to readers on this machine; by sendfile, which costs the server least; auto is copy for
        /// loopback addresses and Unix sockets, and sendfile for others [default: auto].
        #[arg(long, value_name = "HOW",
            value_parser = named::<FileIo>())]
        pub file_io: Option<Named<FileIo>>,

        /// Connections that one loop takes; it closes further ones at their first read, without a
        /// response (reactor, proactor) [default: no bound but --connections-max].
        #[arg(long, value_name = "C")]
        pub capacity_per_loop: Option<Count<1, CONNECTIONS_MAX>>,

        /// Removed: there was one way.
        #[arg(long, hide = true, value_name = "WHAT")]
        at_capacity: Vec<values::RemovedAtCapacity>,
    }
}

spec! {
    /// How many connections, and for how long.
    #[command(next_help_heading = "Connections")]
    pub struct ConnectionSpec {
        /// Connections of the whole server (reactor, proactor, thread-per-connection, thread-pool if it
        /// has a --latency-goal); beyond it the one that has been idle longest makes room. auto is what the descriptor limit
        /// allows, at most 100000 (thread-per-connection: 4096).
        #[arg(long, value_name = "N", default_value = "auto")]
        pub connections_max: Preset<Auto<Count<1, CONNECTIONS_MAX>>>,

        /// Connections that the kernel queues before they are accepted.
        #[arg(long, value_name = "N", default_value = "4096")]
        pub backlog: Preset<Count<1, { BACKLOG_MAX as usize }>>,

        /// Whether the kernel holds a connection back until its first bytes arrive, some seconds at
        /// most: on or off.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub defer_accept: OnOff,

        /// Whether a connection may carry more than one request: on or off.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub keep_alive: OnOff,

        /// Close a connection after this time without a request. off: close it only to make room, or
        /// in a drain.
        #[arg(long, value_name = "TIME", default_value = "15s")]
        pub idle_timeout: Preset<OrOff<AnyTime>>,

        /// The same for connections from trusted proxies (--trust-proxy). It should be longer than the
        /// proxies keep idle connections [default: 620s, or --idle-timeout if that is longer].
        #[arg(long, value_name = "TIME")]
        pub proxy_idle_timeout: Option<OrOff<AnyTime>>,
    }
}

spec! {
    /// How much memory all of it may take.
    #[command(next_help_heading = "Memory")]
    pub struct MemorySpec {
        /// Memory for connections, their buffers, threads and the file cache. When it runs short, idle
        /// connections are closed, then connections that wait for their clients; then new connections
        /// and large request content are refused (503). Apps, databases and password hashing come on top. auto is half of what the program itself leaves of the control group's or the machine's memory; off: no limit.
        #[arg(long, value_name = "SIZE", default_value = "auto")]
        pub memory_max: Preset<OrOff<Auto<Size<MEMORY_LEAST>>>>,

        /// Memory that the kernel may use for a connection in either direction, to send and to receive
        /// (SO_SNDBUF, SO_RCVBUF). Half of it is the largest window: 64k allow 6 Mbit/s at a round-trip
        /// time of 40 ms. auto: the kernel decides.
        #[arg(long, value_name = "SIZE", default_value = "auto")]
        pub socket_buffer: Preset<Auto<Size<SOCKET_BUFFER_LEAST, SOCKET_BUFFER_MOST>>>,
    }
}

/// The least that the threads of a small server and some connections need.
pub const MEMORY_LEAST: u64 = 16 << 20;
/// What the kernel takes as the least itself, about.
const SOCKET_BUFFER_LEAST: u64 = 8 << 10;
const SOCKET_BUFFER_MOST: u64 = 1 << 30;

spec! {
    /// What a request may cost.
    #[command(next_help_heading = "Requests")]
    pub struct RequestSpec {
        /// Accepted requests get their response within this time. Requests that would take longer are
        /// refused at once (503, with Retry-After). off: no request is refused for this reason.
        #[arg(long, value_name = "TIME", default_value = "1s")]
        pub latency_goal: Preset<OrOff<AnyTime>>,

        /// When connections, workers or memory run short, take from the client that holds most, and share
        /// workers between files and apps: on or off. A client is an IPv4 address or a /64 network of
        /// IPv6; behind a trusted proxy it is the client that the proxy names. off: also, beyond
        /// --connections-max no connection makes room for a new one, which is refused.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub fairness: OnOff,

        /// Whether HTTP/2 is served, too: over TLS to clients that ask for it (ALPN), in plain text to
        /// clients that begin with it; only: HTTP/1 is not served [default: on].
        #[arg(long, value_name = "USE", value_parser = named::<Http2>())]
        pub http2: Option<Named<Http2>>,

        /// The most requests in progress on one HTTP/2 connection; further ones are refused
        /// (REFUSED_STREAM).
        #[arg(long, value_name = "N", default_value = "128")]
        pub streams_max: Preset<Count<1, 10_000>>,

        /// Time allowed to receive a whole request head; after 10 s of it, at 500 bytes a second at least.
        #[arg(long, value_name = "TIME", default_value = "30s")]
        pub head_timeout: Preset<AnyTime>,

        /// Time allowed to receive a request body; extended by one second per --body-rate-min bytes
        /// of content received.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        pub body_timeout: Preset<AnyTime>,

        /// The slowest upload, in bytes a second.
        #[arg(long, value_name = "SIZE", default_value = "500")]
        pub body_rate_min: Preset<Size<1>>,

        /// Time allowed to send a response; extended by one second per --write-rate-min bytes sent.
        #[arg(long, value_name = "TIME", default_value = "20s")]
        pub write_timeout: Preset<AnyTime>,

        /// The slowest download, in bytes a second.
        #[arg(long, value_name = "SIZE", default_value = "1000")]
        pub write_rate_min: Preset<Size<1>>,

        /// The longest head: request line and fields (431 beyond it).
        #[arg(long, value_name = "SIZE", default_value = "32k")]
        pub head_max: Preset<Size<256, { 16 << 20 }>>,

        /// The longest request target (414 beyond it).
        #[arg(long, value_name = "SIZE", default_value = "8000")]
        pub target_max: Preset<Size<16, { 16 << 20 }>>,

        /// The most fields of one request (431 beyond it).
        #[arg(long, value_name = "N", default_value = "100")]
        pub fields_max: Preset<Count<1, 10_000>>,

        /// The largest content of a request for files or of a form (413 beyond it). Apps have their own
        /// limits: accounts take 16 KiB.
        #[arg(long, value_name = "SIZE", default_value = "1M")]
        pub body_max: Preset<Size>,
    }
}

spec! {
    /// Which files, and how.
    #[command(next_help_heading = "Content")]
    pub struct ContentSpec {
        /// A file that is served for its directory; may be given several times, the first that
        /// exists counts [default: index.html].
        #[arg(long, value_name = "NAME")]
        pub index: Vec<FileName>,

        /// List directories that have no index file.
        #[arg(long)]
        pub listing: bool,

        /// Serve this file of DIR for paths that do not exist (single-page apps).
        #[arg(long, value_name = "FILE")]
        pub spa: Option<String>,

        /// A directory of pages for error responses: 404.html, 403.html and so on.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        pub error_pages: Option<FilePath>,

        /// Follow symbolic links that leave DIR.
        #[arg(long)]
        pub follow_symlinks: bool,

        /// Serve files whose name begins with a dot (.well-known always is).
        #[arg(long)]
        pub hidden: bool,

        /// The media type of files with an extension, such as .wasm=application/wasm; may be given
        /// several times. Text is UTF-8 unless a charset is given with it.
        #[arg(long, value_name = "EXT=TYPE")]
        pub media_type: Vec<String>,

        /// Cache-Control of files: a value for all, or for an extension (.css:max-age=3600), a media
        /// type (text/html:no-cache) or a family of them (image/*:max-age=86400); may be given several
        /// times, the first that fits decides.
        #[arg(long, value_name = "[WHAT:]VALUE")]
        pub cache_control: Vec<String>,

        /// Whether .br, .zst and .gz files beside the original go to clients that accept them: on
        /// or off.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub precompressed: OnOff,

        /// Compress text-like files of 1 KiB to 4 MiB when requested: on or off. A worker, or the
        /// connection's own thread, compresses each file once for the file cache; --workers 0 and
        /// --cache-bytes 0 turn it off. Accounts are never compressed.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub compress: OnOff,

        /// Memory of the file cache, but at most a quarter of --memory-max; 0 turns it off.
        #[arg(long, value_name = "SIZE", default_value = "128M")]
        pub cache_bytes: Preset<Size>,

        /// Files that the cache remembers.
        #[arg(long, value_name = "N", default_value = "16384")]
        pub cache_entries: Preset<Count<1, { 1 << 24 }>>,

        /// Files that the cache keeps open; auto is an eighth of the descriptors, at most 4096.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub cache_open_files: Preset<Auto<Count<0, { 1 << 20 }>>>,
    }
}

spec! {
    /// The papers' business processing time.
    #[command(next_help_heading = "Made-up work")]
    pub struct WorkSpec {
        /// Made-up work added to each request, on a worker if there is one.
        #[arg(long, value_name = "TIME")]
        pub service_time: Option<AnyTime>,

        /// How that time passes: asleep, or computing (CPU time) [default: sleep].
        #[arg(long, value_name = "KIND",
            value_parser = named::<ServiceKind>())]
        pub service_kind: Option<Named<ServiceKind>>,
    }
}

spec! {
    /// What it says about itself, and how it ends.
    #[command(next_help_heading = "Running")]
    pub struct RunningSpec {
        /// Write a line for each request to a file, or to standard output with -.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub access_log: Option<FilePath>,

        /// Write a line for each connection when it is accepted and one when it is closed, to a file, or
        /// to standard output with -.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub connection_log: Option<FilePath>,

        /// The form of the access log. The connection log has two: json, and text for any other value
        /// [default: combined].
        #[arg(long, value_name = "FORM",
            value_parser = named::<AccessFormat>())]
        pub log_format: Option<Named<AccessFormat>>,

        /// Show counters under this path, as JSON, and as Prometheus text with ?format=prometheus.
        /// A live page, live, is beside it. The probes health and ready move into its folder; without
        /// this option they are in /-/.
        #[arg(long, value_name = "PATH")]
        pub status_path: Option<StatusPath>,

        /// Serve the status page, the live page and the probes only here: an address as for --listen; may
        /// be given several times. They have a thread, connections and limits of their own, and are no
        /// longer served at --listen. Without --status-path the status page is /-/status.
        #[arg(long, value_name = "ADDRESS")]
        pub admin_listen: Vec<Listen>,

        /// Permissions of the file of a Unix socket, in octal [default: by the umask].
        #[arg(long, value_name = "MODE")]
        pub unix_mode: Option<UnixMode>,

        /// Time to keep serving after SIGTERM, while /-/ready responds 503, before the drain begins:
        /// for a load balancer to notice.
        #[arg(long, value_name = "TIME", default_value = "0s")]
        pub drain_delay: Preset<AnyTime>,

        /// How long a drain may take.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        pub grace: Preset<AnyTime>,

        /// The least severe messages that are printed on standard error. LOADLINE_LOG is the same as an
        /// environment variable.
        #[arg(long, value_name = "LEVEL", default_value = "info", env = "LOADLINE_LOG",
            value_parser = named::<LogLevel>().map(Preset))]
        pub log_level: Preset<Named<LogLevel>>,
    }
}

spec! {
    /// Which connections come from proxies, and how these name their clients.
    #[command(next_help_heading = "Behind a proxy")]
    pub struct ProxySpec {
        /// A proxy that is trusted to name its clients: an address, a network (10.0.0.0/8), or unix
        /// for all connections on Unix sockets; may be given several times.
        #[arg(long, value_name = "ADDRESS")]
        pub trust_proxy: Vec<String>,

        /// The header field in which proxies name their clients; the other one is ignored [default:
        /// x-forwarded-for].
        #[arg(long, value_name = "FIELD",
            value_parser = named::<ForwardedField>())]
        pub trust_proxy_field: Option<Named<ForwardedField>>,

        /// Removed: what it did is done for all parts.
        #[arg(long, hide = true, value_name = "ADDRESS")]
        accounts_proxy: Vec<values::RemovedAccountsProxy>,
    }
}

spec! {
    /// Accounts, and what they may cost.
    #[command(next_help_heading = "Accounts")]
    pub struct AccountsSpec {
        /// Serve accounts under /accounts/, stored in sqlite:FILE, mysql://USER:PASSWORD@HOST/NAME
        /// (MariaDB, which is tested, or MySQL) or postgres://USER:PASSWORD@HOST/NAME. A URL with a
        /// password is better given in the environment, as LOADLINE_ACCOUNTS.
        #[arg(long, value_name = "URL", env = "LOADLINE_ACCOUNTS", hide_env = true)]
        pub accounts: Option<Secret>,

        /// Connections to the database, at most; auto begins with 8, and grows and shrinks between 2 and
        /// 64 by what statements wait for [default: auto].
        #[arg(long, value_name = "N")]
        pub accounts_pool: Option<Auto<Count<1, 1024>>>,

        /// Connections to the database that are opened before the server listens, and kept; others are
        /// opened when needed [default: 0].
        #[arg(long, value_name = "N")]
        pub accounts_pool_min: Option<Count<0, 1024>>,

        /// How long a request waits for a connection to the database [default: 2s].
        #[arg(long, value_name = "TIME")]
        pub accounts_pool_wait: Option<AnyTime>,

        /// Passwords that are hashed at the same time, with 19 MiB each; auto is one for every two CPUs
        /// [default: auto].
        #[arg(long, value_name = "N")]
        pub accounts_hashes: Option<Auto<Count<1, 1024>>>,

        /// End a session after this time without use [default: 30m].
        #[arg(long, value_name = "TIME")]
        pub accounts_idle: Option<AnyTime>,

        /// End a session after this time, used or not [default: 12h].
        #[arg(long, value_name = "TIME")]
        pub accounts_session: Option<AnyTime>,
    }
}

whole!(ServeSpec, positional: "root");

fn architecture() -> impl TypedValueParser<Value = Preset<Auto<Named<Architecture>>>> {
    let names = Architecture::ALL
        .iter()
        .map(|architecture| architecture.name());
    PossibleValuesParser::new(std::iter::once("auto").chain(names))
        .try_map(|name| name.parse().map(Preset))
}

#[cfg(test)]
mod tests;
