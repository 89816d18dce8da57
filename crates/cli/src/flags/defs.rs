//! The options as they are typed: names, groups, texts of the help. What they mean is in `high`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use loadline_apps::{CacheControlRule, MediaTypeRule, Probe, ServiceKind};
use loadline_proto::AccessFormat;
use loadline_server::{
    Accept, Architecture, AtCapacity, Balance, FileIo, ListenAddr, Queue, SocketIo, WorkerPools,
};

use super::accounts_defs::AccountsFlags;
use super::lab_defs::{LAB_EXIT_CODES, LabCommand};
use super::load_defs::{LOAD_EXIT_CODES, LOAD_MORE, LoadFlags};
use super::proxy_defs::ProxyFlags;
use super::values::{
    Auto, Timeout, address, auto_count_in, count_in, duration, file_name, on_off, one_of, size,
    timeout,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped by SIGTERM or SIGINT, every accepted request answered
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
      a thousand blocking threads, each request 0.5 ms of made-up work

Signals:
  SIGTERM, SIGINT  stop accepting, finish every accepted request, leave; a second one ends at once.
                   With --drain-delay: say 503 at /-/ready, serve as ever for so long, then stop
                   accepting; a second one does so at once, a third one ends at once
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
    Serve(Box<ServeFlags>),
    /// Send requests and measure how they fare.
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

/// The options of `loadline serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeFlags {
    /// The directory to serve.
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,

    /// Where to listen: IP:PORT, [IPV6]:PORT or unix:PATH; may be given several times. Port 0 takes
    /// a free one. [::]:PORT takes IPv4 too, unless an IPv4 address of that port is given beside it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080",
        value_parser = address)]
    pub(crate) listen: Vec<ListenAddr>,

    #[command(flatten)]
    pub(crate) architecture: ArchitectureFlags,
    #[command(flatten)]
    pub(crate) connections: ConnectionFlags,
    #[command(flatten)]
    pub(crate) requests: RequestFlags,
    #[command(flatten)]
    pub(crate) proxy: ProxyFlags,
    #[command(flatten)]
    pub(crate) content: ContentFlags,
    #[command(flatten)]
    pub(crate) accounts: AccountsFlags,
    #[command(flatten)]
    pub(crate) work: WorkFlags,
    #[command(flatten)]
    pub(crate) running: RunningFlags,
}

/// Which thread does what.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Architecture")]
pub(crate) struct ArchitectureFlags {
    /// Which thread does what; auto is the proactor, or the reactor where there is no io_uring.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = architecture())]
    pub(crate) architecture: Auto<Architecture>,

    /// Event loops that serve connections (reactor, proactor); auto is one for each CPU.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = auto_count_in(1..=1024))]
    pub(crate) loops: Auto<usize>,

    /// Threads beside the loops for what may block (reactor, proactor); 0 has the loops do it
    /// themselves, auto is one for each CPU and at least 2.
    #[arg(long, value_name = "M", default_value = "auto", value_parser = auto_count_in(0..=16384))]
    pub(crate) workers: Auto<usize>,

    /// Threads that serve a connection each (thread-pool); auto is 256, or what descriptors allow.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = auto_count_in(1..=16384))]
    pub(crate) threads: Auto<usize>,

    /// One pool of M workers for all loops, or M workers for each loop (reactor, proactor) [default:
    /// shared].
    #[arg(long, value_name = "HOW",
        value_parser = one_of(WorkerPools::ALL, WorkerPools::name))]
    pub(crate) worker_pools: Option<WorkerPools>,

    /// How connections reach the loops (reactor, proactor): a main loop accepts and hands over, the
    /// loops share one listener, or each has its own [default: shared].
    #[arg(long, value_name = "HOW", value_parser = one_of(Accept::ALL, Accept::name))]
    pub(crate) accept: Option<Accept>,

    /// To which loop the main loop hands a connection (with --accept handoff) [default:
    /// round-robin].
    #[arg(long, value_name = "RULE",
        value_parser = one_of(Balance::ALL, Balance::name))]
    pub(crate) balance: Option<Balance>,

    /// How jobs reach the workers (reactor, proactor) [default: shared].
    #[arg(long, value_name = "KIND", value_parser = one_of(Queue::ALL, Queue::name))]
    pub(crate) queue: Option<Queue>,

    /// Jobs (reactor, proactor) or connections (thread-pool) that may wait for a thread; auto is 1024,
    /// or what descriptors allow.
    #[arg(long, value_name = "N", default_value = "auto",
        value_parser = auto_count_in(1..=1 << 20))]
    pub(crate) queue_max: Auto<usize>,

    /// Who reads and writes the sockets (reactor) [default: loop].
    #[arg(long, value_name = "WHO",
        value_parser = one_of(SocketIo::ALL, SocketIo::name))]
    pub(crate) socket_io: Option<SocketIo>,

    /// How large files leave (reactor, proactor): through a buffer, which readers on this machine take
    /// fastest, by sendfile, which costs the server least, or auto, which is copy for loopback addresses
    /// and Unix sockets, and sendfile for others [default: auto].
    #[arg(long, value_name = "HOW",
        value_parser = one_of(FileIo::ALL, FileIo::name))]
    pub(crate) file_io: Option<FileIo>,

    /// Connections that one loop takes (reactor, proactor) [default: no bound but --connections-max].
    #[arg(long, value_name = "C", value_parser = count_in(1..=1 << 20))]
    pub(crate) capacity_per_loop: Option<usize>,

    /// What happens to a newcomer of a loop at its capacity: close it at its first read, without an
    /// answer [default: close].
    #[arg(long, value_name = "WHAT", requires = "capacity_per_loop",
        value_parser = one_of(AtCapacity::ALL, AtCapacity::name))]
    pub(crate) at_capacity: Option<AtCapacity>,
}

/// How many connections, and for how long.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionFlags {
    /// Connections of the whole server (reactor, proactor, thread-per-connection); beyond it the
    /// oldest idle one makes room. auto is what the descriptor limit allows.
    #[arg(long, value_name = "N", default_value = "auto",
        value_parser = auto_count_in(1..=1 << 20))]
    pub(crate) connections_max: Auto<usize>,

    /// Connections that the kernel keeps for us before they are accepted.
    #[arg(long, value_name = "N", default_value = "4096", value_parser = count_in(1..=1 << 20))]
    pub(crate) backlog: usize,

    /// Have the kernel hold a connection back until its first bytes come.
    #[arg(long)]
    pub(crate) defer_accept: bool,

    /// Whether a connection may carry more than one request: on or off.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_off,
        action = clap::ArgAction::Set)]
    pub(crate) keep_alive: bool,

    /// Close a connection that has been idle for so long; off: only to make room, or in a drain.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = timeout)]
    pub(crate) idle_timeout: Timeout,

    /// The same for connections of those that --trust-proxy names: longer than they keep them
    /// [default: 620s, or --idle-timeout if that is longer].
    #[arg(long, value_name = "TIME", requires = "trust_proxy", value_parser = timeout)]
    pub(crate) proxy_idle_timeout: Option<Timeout>,
}

/// What a request may cost.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestFlags {
    /// A request's head must be whole after so long, however it drips in.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) head_timeout: Duration,

    /// Time for a request's content; every --body-rate-min bytes buy another second.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) body_timeout: Duration,

    /// The slowest upload, in bytes a second.
    #[arg(long, value_name = "SIZE", default_value = "500", value_parser = size)]
    pub(crate) body_rate_min: u64,

    /// Time for a client to take an answer; every --write-rate-min bytes buy another second.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub(crate) write_timeout: Duration,

    /// The slowest download, in bytes a second.
    #[arg(long, value_name = "SIZE", default_value = "1000", value_parser = size)]
    pub(crate) write_rate_min: u64,

    /// The longest head: request line and fields (431 beyond it).
    #[arg(long, value_name = "SIZE", default_value = "32k", value_parser = size)]
    pub(crate) head_max: u64,

    /// The longest request target (414 beyond it).
    #[arg(long, value_name = "SIZE", default_value = "8000", value_parser = size)]
    pub(crate) target_max: u64,

    /// The most fields of one request (431 beyond it).
    #[arg(long, value_name = "N", default_value = "100", value_parser = count_in(1..=10_000))]
    pub(crate) fields_max: usize,

    /// The largest content of a request for files or of a form (413 beyond it). Apps have limits of
    /// their own: accounts take 16 KiB.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size)]
    pub(crate) body_max: u64,
}

/// Which files, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Content")]
pub(crate) struct ContentFlags {
    /// A file that stands for its directory; may be given several times, the first that is there
    /// counts [default: index.html].
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub(crate) index: Vec<String>,

    /// List directories that have no index file.
    #[arg(long)]
    pub(crate) listing: bool,

    /// Answer what is not there with this file of DIR (single-page apps).
    #[arg(long, value_name = "FILE")]
    pub(crate) spa: Option<String>,

    /// A directory of pages for error answers: 404.html, 403.html and so on.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) error_pages: Option<PathBuf>,

    /// Follow symbolic links that leave DIR.
    #[arg(long)]
    pub(crate) follow_symlinks: bool,

    /// Serve files whose name begins with a dot (.well-known always is).
    #[arg(long)]
    pub(crate) hidden: bool,

    /// The media type of files with an extension, such as .wasm=application/wasm; may be given
    /// several times. Text is UTF-8 unless a charset is given with it.
    #[arg(long, value_name = "EXT=TYPE")]
    pub(crate) media_type: Vec<MediaTypeRule>,

    /// Cache-Control of files: a value for all, or for an extension (.css:max-age=3600), a media
    /// type (text/html:no-cache) or a family of them (image/*:max-age=86400); may be given several
    /// times, the first that fits decides.
    #[arg(long, value_name = "[WHAT:]VALUE")]
    pub(crate) cache_control: Vec<CacheControlRule>,

    /// Whether .br, .zst and .gz neighbours of a file go to clients that accept them: on or off.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_off,
        action = clap::ArgAction::Set)]
    pub(crate) precompressed: bool,

    /// Memory of the file cache; 0 turns it off.
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = size)]
    pub(crate) cache_bytes: u64,

    /// Files that the cache remembers.
    #[arg(long, value_name = "N", default_value = "16384", value_parser = count_in(1..=1 << 24))]
    pub(crate) cache_entries: usize,

    /// Files that the cache keeps open; auto is an eighth of the descriptors, at most 4096.
    #[arg(long, value_name = "N", default_value = "auto",
        value_parser = auto_count_in(0..=1 << 20))]
    pub(crate) cache_open_files: Auto<usize>,
}

/// The papers' business processing time.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Made-up work")]
pub(crate) struct WorkFlags {
    /// Work added to each request, on a worker where there is one, else in place.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) service_time: Option<Duration>,

    /// Whether that time is slept, or spent computing: so much CPU time [default: sleep].
    #[arg(long, value_name = "KIND", requires = "service_time",
        value_parser = one_of(SERVICE_KINDS, service_kind_name))]
    pub(crate) service_kind: Option<ServiceKind>,
}

/// What it says about itself, and how it ends.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunningFlags {
    /// Write a line for each request to a file, or to standard output with -.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) access_log: Option<PathBuf>,

    /// Write a line for each connection when it is accepted and one when it is closed, to a file, or
    /// to standard output with -.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) connection_log: Option<PathBuf>,

    /// The form of these lines; the connection log has two: json, and text with any other [default:
    /// combined].
    #[arg(long, value_name = "FORM",
        value_parser = one_of(LOG_FORMATS, log_format_name))]
    pub(crate) log_format: Option<AccessFormat>,

    /// Show counters under this path, as JSON, and as Prometheus text with ?format=prometheus. Its
    /// folder is that of the probes: health and ready, which are in /-/ otherwise.
    #[arg(long, value_name = "PATH", value_parser = status_path)]
    pub(crate) status_path: Option<String>,

    /// Permissions of the file of a Unix socket, in octal [default: by the umask].
    #[arg(long, value_name = "MODE", value_parser = unix_mode)]
    pub(crate) unix_mode: Option<u32>,

    /// Behind a load balancer: how long to serve on after SIGTERM, while /-/ready says 503, before
    /// the drain begins.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) drain_delay: Duration,

    /// How long a drain may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,

    /// The least weight of what is said on standard error.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "LOADLINE_LOG",
        value_parser = one_of(LOG_LEVELS, log_level_name))]
    pub(crate) log_level: tracing::Level,
}

const SERVICE_KINDS: &[ServiceKind] = &[ServiceKind::Sleep, ServiceKind::Spin];

fn service_kind_name(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Sleep => "sleep",
        ServiceKind::Spin => "spin",
    }
}

const LOG_FORMATS: &[AccessFormat] = &[
    AccessFormat::Common,
    AccessFormat::Combined,
    AccessFormat::Json,
];

fn log_format_name(format: AccessFormat) -> &'static str {
    match format {
        AccessFormat::Common => "common",
        AccessFormat::Combined => "combined",
        AccessFormat::Json => "json",
    }
}

const LOG_LEVELS: &[tracing::Level] = &[
    tracing::Level::ERROR,
    tracing::Level::WARN,
    tracing::Level::INFO,
    tracing::Level::DEBUG,
    tracing::Level::TRACE,
];

fn log_level_name(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
    }
}

fn status_path(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let dots = text.split('/').any(|part| part == "." || part == "..");
    if text.len() > 1 && text.starts_with('/') && text.bytes().all(is_plain) && !dots {
        let last = text.rsplit('/').next();
        if let Some(probe) = Probe::ALL.iter().find(|it| last == Some(it.name())) {
            let name = probe.name();
            return Err(format!(
                "this is where the probe {name} would be; right would be another name, such as \
                 /-/status"
            ));
        }
        return Ok(text.to_owned());
    }
    Err("right would be a path of letters, digits and -_.~ such as /-/status".to_owned())
}

fn unix_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && text.len() >= 3 => Ok(mode),
        _ => Err("right would be three octal digits such as 660".to_owned()),
    }
}

fn architecture() -> impl TypedValueParser<Value = Auto<Architecture>> {
    let names = Architecture::ALL
        .iter()
        .map(|architecture| architecture.name());
    PossibleValuesParser::new(std::iter::once("auto").chain(names))
        .map(|name| Architecture::parse(&name).map_or(Auto::Auto, Auto::Given))
}
