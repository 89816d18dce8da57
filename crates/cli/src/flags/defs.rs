//! The options as they are typed: names, groups, texts of the help. What they mean is in `high`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use loadline_apps::{CacheControlRule, MediaTypeRule, ServiceKind};
use loadline_proto::AccessFormat;
use loadline_server::{
    Accept, Architecture, AtCapacity, BACKLOG_MAX, Balance, CONNECTIONS_MAX, FileIo, LOOPS_MAX,
    QUEUE_MAX, Queue, SocketIo, THREADS_MAX, WorkerPools,
};
use loadline_spec::field::Preset;
use loadline_spec::values::{AnyTime, Auto, Count, FilePath, OnOff, OrOff, Size};
use loadline_spec::{spec, whole};
use tracing::Level;

use super::accounts_defs::AccountsSpec;
use super::lab_defs::{LAB_EXIT_CODES, LabCommand};
use super::load_defs::{LOAD_EXIT_CODES, LOAD_MORE, LoadFlags};
use super::proxy_defs::ProxySpec;
use super::values::{FileName, Listen, Named, StatusPath, UnixMode, Worded, named};

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped by SIGTERM or SIGINT; every accepted request was answered
  1  something failed while running
  2  bad usage: an option, a value, a directory, or options that do not fit together; or an
     architecture that this machine does not offer
  3  an address cannot be listened on
  4  stopped before every accepted request was answered: --grace ran out, or a second signal came";

const SERVE_MORE: &str = "\
Examples:
  loadline serve
      the current directory on http://127.0.0.1:8080/
  loadline serve public --listen 0.0.0.0:80 --listen '[::]:80' --access-log /var/log/loadline.log
      a site for everyone, with a log that SIGHUP reopens
  loadline serve public --listen unix:/run/loadline.sock --trust-proxy unix
      behind a proxy on the same machine
  loadline serve app/dist --spa index.html --cache-control max-age=3600
      a single-page app
  loadline serve --architecture thread-pool --threads 1000 --service-time 500us
      a thousand blocking threads, and 0.5 ms of made-up work for each request

Signals:
  SIGTERM, SIGINT  drain: stop accepting, finish every accepted request, exit; a second signal
                   exits at once. With --drain-delay: respond 503 at /-/ready and keep serving
                   for the delay, then drain; a second signal drains at once, a third one exits
  SIGHUP           reopen the access log and the connection log";

/// A web server for Linux that knows how much load it can carry.
#[derive(Debug, Parser)]
#[command(name = "loadline", version, disable_help_subcommand = true,
    after_help = format!("{}\n\n{}\n\n{}", of("serve", EXIT_CODES), of("load", LOAD_EXIT_CODES),
        of("lab", LAB_EXIT_CODES)))]
pub(crate) struct Loadline {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Exit codes under a heading that says whose they are.
fn of(command: &str, codes: &str) -> String {
    codes.replacen("Exit codes:", &format!("Exit codes of {command}:"), 1)
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the files of a directory.
    #[command(after_help = format!("{SERVE_MORE}\n\n{EXIT_CODES}"))]
    Serve(Box<ServeSpec>),
    /// Send requests and measure how the server responds.
    #[command(after_help = format!("{LOAD_MORE}\n\n{LOAD_EXIT_CODES}"))]
    Load(Box<LoadFlags>),
    /// Run experiments: plans of many trials, with any server.
    Lab(LabFlags),
    /// Print a completion script for a shell.
    Completions {
        /// The shell to print it for.
        shell: clap_complete::Shell,
    },
}

/// The commands of `loadline lab`.
#[derive(Args, Debug)]
pub(crate) struct LabFlags {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

spec! {
    /// The options of `loadline serve`.
    #[derive(Args, Clone, Debug, PartialEq)]
    pub(crate) struct ServeSpec {
        /// The directory to serve.
        #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
        pub(crate) root: Preset<FilePath>,

        /// Where to listen: IP:PORT, [IPV6]:PORT or unix:PATH; may be given several times. Port 0 takes
        /// a free one. [::]:PORT takes IPv4 too, unless an IPv4 address of that port is given beside it.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        pub(crate) listen: Vec<Listen>,

        #[command(flatten)]
        pub(crate) architecture: ArchitectureSpec,
        #[command(flatten)]
        pub(crate) connections: ConnectionSpec,
        #[command(flatten)]
        pub(crate) requests: RequestSpec,
        #[command(flatten)]
        pub(crate) proxy: ProxySpec,
        #[command(flatten)]
        pub(crate) content: ContentSpec,
        #[command(flatten)]
        pub(crate) accounts: AccountsSpec,
        #[command(flatten)]
        pub(crate) work: WorkSpec,
        #[command(flatten)]
        pub(crate) running: RunningSpec,
    }
}

spec! {
    /// Which thread does what.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Architecture")]
    pub(crate) struct ArchitectureSpec {
        /// How connections are divided among threads; auto is the proactor, or the reactor without
        /// io_uring.
        #[arg(long, value_name = "NAME", default_value = "auto", value_parser = architecture())]
        pub(crate) architecture: Preset<Auto<Named<Architecture>>>,

        /// Event loops that serve connections (reactor, proactor); auto is one for each CPU.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub(crate) loops: Preset<Auto<Count<1, LOOPS_MAX>>>,

        /// Threads for steps that may block (reactor, proactor). 0: the loops run them; auto is one
        /// for each CPU and at least 2.
        #[arg(long, value_name = "M", default_value = "auto")]
        pub(crate) workers: Preset<Auto<Count<0, THREADS_MAX>>>,

        /// Threads, each with one connection at a time (thread-pool); auto is 256, or what
        /// descriptors allow.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub(crate) threads: Preset<Auto<Count<1, THREADS_MAX>>>,

        /// One pool of M workers for all loops, or M workers for each loop (reactor, proactor) [default:
        /// shared].
        #[arg(long, value_name = "HOW",
            value_parser = named::<WorkerPools>())]
        pub(crate) worker_pools: Option<Named<WorkerPools>>,

        /// How connections reach the loops (reactor, proactor): a main loop accepts and hands over, the
        /// loops share one listener, or each has its own [default: shared].
        #[arg(long, value_name = "HOW", value_parser = named::<Accept>())]
        pub(crate) accept: Option<Named<Accept>>,

        /// How the main loop chooses a loop for a connection (with --accept handoff) [default:
        /// round-robin].
        #[arg(long, value_name = "RULE",
            value_parser = named::<Balance>())]
        pub(crate) balance: Option<Named<Balance>>,

        /// How jobs reach the workers (reactor, proactor) [default: shared].
        #[arg(long, value_name = "KIND", value_parser = named::<Queue>())]
        pub(crate) queue: Option<Named<Queue>>,

        /// Jobs (reactor, proactor) or connections (thread-pool) that may wait for a thread; auto
        /// is 1024, or what descriptors allow.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub(crate) queue_max: Preset<Auto<Count<1, QUEUE_MAX>>>,

        /// Which threads read and write the sockets (reactor) [default: loop].
        #[arg(long, value_name = "WHO",
            value_parser = named::<SocketIo>())]
        pub(crate) socket_io: Option<Named<SocketIo>>,

        /// How large files are sent (reactor, proactor): copied through a buffer, which is fastest
        /// to readers on this machine; by sendfile, which costs the server least; auto is copy for
        /// loopback addresses and Unix sockets, and sendfile for others [default: auto].
        #[arg(long, value_name = "HOW",
            value_parser = named::<FileIo>())]
        pub(crate) file_io: Option<Named<FileIo>>,

        /// Connections that one loop takes (reactor, proactor) [default: no bound but --connections-max].
        #[arg(long, value_name = "C")]
        pub(crate) capacity_per_loop: Option<Count<1, CONNECTIONS_MAX>>,

        /// What happens to a new connection of a loop at its capacity: it is closed at its first
        /// read, without a response [default: close].
        #[arg(long, value_name = "WHAT",
            value_parser = named::<AtCapacity>())]
        pub(crate) at_capacity: Option<Named<AtCapacity>>,
    }
}

spec! {
    /// How many connections, and for how long.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Connections")]
    pub(crate) struct ConnectionSpec {
        /// Connections of the whole server (reactor, proactor, thread-per-connection); beyond it
        /// the one that has been idle longest makes room. auto is what the descriptor limit allows.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub(crate) connections_max: Preset<Auto<Count<1, CONNECTIONS_MAX>>>,

        /// Connections that the kernel queues before they are accepted.
        #[arg(long, value_name = "N", default_value = "4096")]
        pub(crate) backlog: Preset<Count<1, { BACKLOG_MAX as usize }>>,

        /// Let the kernel hold a connection back until its first bytes arrive.
        #[arg(long)]
        pub(crate) defer_accept: bool,

        /// Whether a connection may carry more than one request: on or off.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub(crate) keep_alive: OnOff,

        /// Close a connection after this time without a request. off: close it only to make room, or
        /// in a drain.
        #[arg(long, value_name = "TIME", default_value = "15s")]
        pub(crate) idle_timeout: Preset<OrOff<AnyTime>>,

        /// The same for connections from trusted proxies (--trust-proxy). It should be longer than the
        /// proxies keep idle connections [default: 620s, or --idle-timeout if that is longer].
        #[arg(long, value_name = "TIME")]
        pub(crate) proxy_idle_timeout: Option<OrOff<AnyTime>>,
    }
}

spec! {
    /// What a request may cost.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Requests")]
    pub(crate) struct RequestSpec {
        /// Time allowed to receive a whole request head, at any speed.
        #[arg(long, value_name = "TIME", default_value = "30s")]
        pub(crate) head_timeout: Preset<AnyTime>,

        /// Time allowed to receive a request body; extended by one second per --body-rate-min bytes
        /// received.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        pub(crate) body_timeout: Preset<AnyTime>,

        /// The slowest upload, in bytes a second.
        #[arg(long, value_name = "SIZE", default_value = "500")]
        pub(crate) body_rate_min: Preset<Size<1>>,

        /// Time allowed to send a response; extended by one second per --write-rate-min bytes sent.
        #[arg(long, value_name = "TIME", default_value = "20s")]
        pub(crate) write_timeout: Preset<AnyTime>,

        /// The slowest download, in bytes a second.
        #[arg(long, value_name = "SIZE", default_value = "1000")]
        pub(crate) write_rate_min: Preset<Size<1>>,

        /// The longest head: request line and fields (431 beyond it).
        #[arg(long, value_name = "SIZE", default_value = "32k")]
        pub(crate) head_max: Preset<Size<256, { 16 << 20 }>>,

        /// The longest request target (414 beyond it).
        #[arg(long, value_name = "SIZE", default_value = "8000")]
        pub(crate) target_max: Preset<Size<16, { 16 << 20 }>>,

        /// The most fields of one request (431 beyond it).
        #[arg(long, value_name = "N", default_value = "100")]
        pub(crate) fields_max: Preset<Count<1, 10_000>>,

        /// The largest content of a request for files or of a form (413 beyond it). Apps have their own
        /// limits: accounts take 16 KiB.
        #[arg(long, value_name = "SIZE", default_value = "1M")]
        pub(crate) body_max: Preset<Size>,
    }
}

spec! {
    /// Which files, and how.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Content")]
    pub(crate) struct ContentSpec {
        /// A file that is served for its directory; may be given several times, the first that
        /// exists counts [default: index.html].
        #[arg(long, value_name = "NAME")]
        pub(crate) index: Vec<FileName>,

        /// List directories that have no index file.
        #[arg(long)]
        pub(crate) listing: bool,

        /// Serve this file of DIR for paths that do not exist (single-page apps).
        #[arg(long, value_name = "FILE")]
        pub(crate) spa: Option<String>,

        /// A directory of pages for error responses: 404.html, 403.html and so on.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        pub(crate) error_pages: Option<FilePath>,

        /// Follow symbolic links that leave DIR.
        #[arg(long)]
        pub(crate) follow_symlinks: bool,

        /// Serve files whose name begins with a dot (.well-known always is).
        #[arg(long)]
        pub(crate) hidden: bool,

        /// The media type of files with an extension, such as .wasm=application/wasm; may be given
        /// several times. Text is UTF-8 unless a charset is given with it.
        #[arg(long, value_name = "EXT=TYPE")]
        pub(crate) media_type: Vec<Worded<MediaTypeRule>>,

        /// Cache-Control of files: a value for all, or for an extension (.css:max-age=3600), a media
        /// type (text/html:no-cache) or a family of them (image/*:max-age=86400); may be given several
        /// times, the first that fits decides.
        #[arg(long, value_name = "[WHAT:]VALUE")]
        pub(crate) cache_control: Vec<Worded<CacheControlRule>>,

        /// Whether .br, .zst and .gz files beside the original go to clients that accept them: on
        /// or off.
        #[arg(long, value_name = "on|off", default_value = "on")]
        pub(crate) precompressed: OnOff,

        /// Memory of the file cache; 0 turns it off.
        #[arg(long, value_name = "SIZE", default_value = "128M")]
        pub(crate) cache_bytes: Preset<Size>,

        /// Files that the cache remembers.
        #[arg(long, value_name = "N", default_value = "16384")]
        pub(crate) cache_entries: Preset<Count<1, { 1 << 24 }>>,

        /// Files that the cache keeps open; auto is an eighth of the descriptors, at most 4096.
        #[arg(long, value_name = "N", default_value = "auto")]
        pub(crate) cache_open_files: Preset<Auto<Count<0, { 1 << 20 }>>>,
    }
}

spec! {
    /// The papers' business processing time.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Made-up work")]
    pub(crate) struct WorkSpec {
        /// Made-up work added to each request, on a worker if there is one.
        #[arg(long, value_name = "TIME")]
        pub(crate) service_time: Option<AnyTime>,

        /// How that time passes: asleep, or computing, as CPU time [default: sleep].
        #[arg(long, value_name = "KIND",
            value_parser = named::<ServiceKind>())]
        pub(crate) service_kind: Option<Named<ServiceKind>>,
    }
}

spec! {
    /// What it says about itself, and how it ends.
    #[derive(Args, Clone, Debug, PartialEq)]
    #[command(next_help_heading = "Running")]
    pub(crate) struct RunningSpec {
        /// Write a line for each request to a file, or to standard output with -.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub(crate) access_log: Option<FilePath>,

        /// Write a line for each connection when it is accepted and one when it is closed, to a file, or
        /// to standard output with -.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        pub(crate) connection_log: Option<FilePath>,

        /// The form of the access log. The connection log has two: json, and text for any other value
        /// [default: combined].
        #[arg(long, value_name = "FORM",
            value_parser = named::<AccessFormat>())]
        pub(crate) log_format: Option<Named<AccessFormat>>,

        /// Show counters under this path, as JSON, and as Prometheus text with ?format=prometheus.
        /// The probes health and ready move into its folder; without this option they are in /-/.
        #[arg(long, value_name = "PATH")]
        pub(crate) status_path: Option<StatusPath>,

        /// Permissions of the file of a Unix socket, in octal [default: by the umask].
        #[arg(long, value_name = "MODE")]
        pub(crate) unix_mode: Option<UnixMode>,

        /// Time to keep serving after SIGTERM, while /-/ready responds 503, before the drain begins:
        /// for a load balancer to notice.
        #[arg(long, value_name = "TIME", default_value = "0s")]
        pub(crate) drain_delay: Preset<AnyTime>,

        /// How long a drain may take.
        #[arg(long, value_name = "TIME", default_value = "10s")]
        pub(crate) grace: Preset<AnyTime>,

        /// The least severe messages that are printed on standard error.
        #[arg(long, value_name = "LEVEL", default_value = "info", env = "LOADLINE_LOG",
            value_parser = named::<Level>().map(Preset))]
        pub(crate) log_level: Preset<Named<Level>>,
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
