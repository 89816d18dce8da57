//! What the command line means: every `auto` worked out, every contradiction refused.
//!
//! Pure: what the machine has comes in as [`Machine`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use loadline_accounts::Database;
use loadline_apps::{CacheControlRule, MediaTypeRule, MediaTypes};
use loadline_proto::{Limits, TrustedProxies};
use loadline_server::{
    Architecture, DESCRIPTORS_RESERVED, QUEUE_MAX, ServerOptions, SizeRange, SocketIo, THREADS_MAX,
    WorkerPools,
};
use loadline_spec::serve::{ArchitectureSpec, Listen, ProxySpec, ServeSpec};
use loadline_spec::values::{Auto, Count};
use loadline_spec::{SpecError, Value, ValueError, given};
use loadline_sys::affinity::CpuBudget;
use loadline_sys::memory_limit::MemoryLimit;

use super::fit;
use super::limits::limits;
use super::memory::memory;
use crate::failure::Failure;

/// What was found about the machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// CPUs by affinity and quota.
    pub(crate) budget: CpuBudget,
    /// Descriptors that the process may have.
    pub(crate) descriptors_max: usize,
    /// Memory that the process may have; `None`: nothing was found.
    pub(crate) memory: Option<MemoryLimit>,
    /// Why there is no io_uring here; `None`: there is.
    pub(crate) refuses_io_uring: Option<String>,
}

impl Machine {
    /// Looks around; raises the descriptor limit as far as it goes.
    pub(crate) fn find() -> Self {
        let limit = loadline_sys::usage::raise_descriptor_limit();
        Self {
            budget: loadline_sys::affinity::cpu_budget(),
            descriptors_max: usize::try_from(limit.soft).unwrap_or(usize::MAX),
            memory: loadline_sys::memory_limit::memory_limit(),
            refuses_io_uring: why_no_io_uring(),
        }
    }
}

/// Why there is no io_uring on this machine; `None`: there is.
pub(crate) fn why_no_io_uring() -> Option<String> {
    let refused = loadline_sys::ring::available().err();
    refused.map(|why| why.to_string())
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// As typed, for what needs no working out.
    pub(crate) flags: Arc<ServeSpec>,
    /// Architecture and numbers.
    pub(crate) options: ServerOptions,
    /// Why it is not the architecture that `auto` would rather have.
    pub(crate) fallback: Option<String>,
    /// Bounds of a connection.
    pub(crate) limits: Limits,
    /// Memory for connections, buffers, threads and the file cache; `None`: without a limit.
    pub(crate) memory_bytes_max: Option<u64>,
    /// The file cache's part of it.
    pub(crate) cache_bytes_max: u64,
    /// Why there may be too little memory, and how much would do.
    pub(crate) memory_warning: Option<String>,
    /// Files that the cache keeps open.
    pub(crate) open_files_max: usize,
    /// Who is trusted to name clients.
    pub(crate) trusted_proxies: TrustedProxies,
    /// Media types by extension.
    pub(crate) media_types: MediaTypes,
    /// Cache-Control of files.
    pub(crate) cache_control: Vec<CacheControlRule>,
    /// Where accounts are stored.
    pub(crate) database: Option<Database>,
}

/// Where a server listens that has a certificate of its own, if nothing else is said.
const HTTPS_AUTO: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);
/// Workers by `auto`, at least: one slow job must not stop the next.
const WORKERS_LEAST: usize = 2;
/// Workers by `auto`, at most, all pools together: sleeping handlers of 100 ms take 2500 requests a
/// second by them.
const WORKERS_MOST: usize = 256;
/// Threads of the thread pool by `auto`: each idle keep-alive client holds one.
const THREADS_AUTO: usize = 256;
/// Jobs or connections in a queue by `auto`.
const QUEUE_AUTO: usize = 1024;
/// Connections by `auto`, at most. Descriptors may be without limit, memory is not.
const CONNECTIONS_AUTO: usize = 100_000;
/// Threads that `auto` grants to thread-per-connection: some ten KiB each, once used.
const THREAD_CONNECTIONS_AUTO: usize = 4096;
/// Files that the cache keeps open by `auto`, at most.
const OPEN_FILES_AUTO: usize = 4096;

/// Works out a plan.
pub(crate) fn plan(mut flags: ServeSpec, machine: &Machine) -> Result<Plan, Failure> {
    if flags.tls.tls.is_some() && !given(&flags).contains_key("listen") {
        flags.listen = vec![Listen::Https(HTTPS_AUTO.into())];
    }
    let trusted_proxies = trusted_proxies(&flags.proxy)?;
    let media_types = all::<MediaTypeRule>("media-type", &flags.content.media_type)?;
    let cache_control = all("cache-control", &flags.content.cache_control)?;
    let accounts = flags.accounts.accounts.as_ref();
    let database = accounts
        .map(|text| parsed("accounts", &text.0))
        .transpose()?;
    let (architecture, fallback) = choose(&flags.architecture, machine);
    fit::check(&flags, architecture)?;
    let options = options(&flags, architecture, machine);
    fit::check_chosen(&flags, &options)?;
    options.validate().map_err(Failure::usage)?;
    let open_files_max = open_files_max(&flags, machine);
    options
        .validate_descriptors(machine.descriptors_max, open_files_max)
        .map_err(Failure::usage)?;
    let memory = memory(&flags, &options, machine.memory)?;
    Ok(Plan {
        memory_bytes_max: memory.budget_bytes,
        cache_bytes_max: memory.cache_bytes,
        memory_warning: memory.warning,
        limits: limits(&flags)?,
        flags: Arc::new(flags),
        options,
        fallback,
        open_files_max,
        trusted_proxies,
        media_types: media_types.into_iter().collect(),
        cache_control,
        database,
    })
}

/// A text that only a part of the server can read.
fn parsed<T: FromStr<Err: fmt::Display>>(option: &str, text: &str) -> Result<T, SpecError> {
    text.parse()
        .map_err(|error: T::Err| ValueError::from(error.to_string()).of(option, &Value::from(text)))
}

fn all<T: FromStr<Err: fmt::Display>>(option: &str, texts: &[String]) -> Result<Vec<T>, SpecError> {
    texts.iter().map(|text| parsed(option, text)).collect()
}

fn trusted_proxies(spec: &ProxySpec) -> Result<TrustedProxies, SpecError> {
    let named = all("trust-proxy", &spec.trust_proxy)?;
    let field = spec.trust_proxy_field.map(|field| field.0);
    Ok(TrustedProxies::new(&named, field.unwrap_or_default()))
}

/// The proactor by `auto`, since it costs no more than the reactor (docs/hot-path.md), unless the
/// machine or another option does not allow it; then says which of them.
fn choose(typed: &ArchitectureSpec, machine: &Machine) -> (Architecture, Option<String>) {
    match typed.architecture.0 {
        Auto::Given(architecture) => (architecture.0, None),
        Auto::Auto if typed.socket_io.is_some_and(|it| it.0 == SocketIo::Worker) => {
            (Architecture::Reactor, None)
        }
        Auto::Auto => match &machine.refuses_io_uring {
            None => (Architecture::Proactor, None),
            Some(why) => (Architecture::Reactor, Some(why.clone())),
        },
    }
}

/// Files that the cache may hold open: an eighth of the descriptors.
fn open_files_max(flags: &ServeSpec, machine: &Machine) -> usize {
    let auto = || (machine.descriptors_max / 8).clamp(16, OPEN_FILES_AUTO);
    or_auto(&flags.content.cache_open_files, auto)
}

fn options(flags: &ServeSpec, architecture: Architecture, machine: &Machine) -> ServerOptions {
    let defaults = ServerOptions::default();
    let typed = &flags.architecture;
    let cpus = machine.budget.cpus();
    let loops = or_auto(&typed.loops, || cpus);
    // One for a main loop, one for each other listener beside a loop's own.
    let descriptors_of_loops = 4 * loops + flags.listen.len();
    let room = machine
        .descriptors_max
        .saturating_sub(DESCRIPTORS_RESERVED + open_files_max(flags, machine))
        .saturating_sub(descriptors_of_loops)
        .max(2);
    let threads_max = or_auto(&typed.threads, || THREADS_AUTO.min(room / 2));
    let queue_room = match architecture {
        Architecture::ThreadPool => room.saturating_sub(threads_max).max(1),
        _ => QUEUE_AUTO,
    };
    let latency_goal = flags.requests.latency_goal.0.0.map(|goal| *goal);
    let connections_most = match architecture {
        Architecture::ThreadPerConnection => THREAD_CONNECTIONS_AUTO,
        _ => CONNECTIONS_AUTO,
    };
    // A thread of a pool with a latency goal needs a descriptor of its own.
    let connections_room = match architecture {
        Architecture::ThreadPool => room.saturating_sub(threads_max).max(1),
        _ => room,
    };
    let connections_max = or_auto(&flags.connections.connections_max, || {
        connections_room.min(connections_most)
    });
    let has_jobs = architecture.has_loops() || architecture == Architecture::ThreadPool;
    let queue_auto = match has_jobs && latency_goal.is_some() {
        true => connections_max.min(QUEUE_MAX), // the goal bounds it
        false => QUEUE_AUTO.min(queue_room),
    };
    let workers_auto = cpus.max(WORKERS_LEAST);
    let shares_threads = architecture == Architecture::ThreadPool && latency_goal.is_some();
    let threads_range = range(&typed.threads, threads_max).filter(|_| shares_threads);
    let worker_pools = typed.worker_pools.map_or(defaults.worker_pools, |it| it.0);
    let is_per_loop = worker_pools == WorkerPools::PerLoop;
    let pools = if is_per_loop { loops } else { 1 };
    ServerOptions {
        architecture,
        loops,
        workers: or_auto(&typed.workers, || workers_auto),
        workers_range: range(&typed.workers, workers_auto.max(WORKERS_MOST / pools)),
        threads: threads_range.map_or(threads_max, |range| range.clamp(workers_auto)),
        threads_range,
        worker_pools,
        accept: typed.accept.map_or(defaults.accept, |it| it.0),
        balance: typed.balance.map_or(defaults.balance, |it| it.0),
        queue: typed.queue.map_or(defaults.queue, |it| it.0),
        queue_max: or_auto(&typed.queue_max, || queue_auto),
        socket_io: typed.socket_io.map_or(defaults.socket_io, |it| it.0),
        parse: typed.parse.map_or(defaults.parse, |it| it.0),
        file_io: typed.file_io.map_or(defaults.file_io, |it| it.0),
        capacity_per_loop: typed.capacity_per_loop.map(|count| *count),
        latency_goal,
        fairness: flags.requests.fairness.0,
        connections_max,
        backlog: flags.connections.backlog.saturating_u32(),
        socket_buffer_bytes: match *flags.memory.socket_buffer {
            Auto::Auto => None,
            Auto::Given(size) => usize::try_from(*size).ok(),
        },
        defer_accept: flags.connections.defer_accept.0,
        grace: **flags.running.grace,
        sizing_interval: defaults.sizing_interval,
    }
}

/// Between which a number of threads changes, if it is not given.
fn range<const LEAST: usize>(
    count: &Auto<Count<LEAST, THREADS_MAX>>,
    max: usize,
) -> Option<SizeRange> {
    let min = WORKERS_LEAST.min(max);
    matches!(count, Auto::Auto).then_some(SizeRange { min, max })
}

/// A count as given, or as it is worked out.
fn or_auto<const LEAST: usize, const MOST: usize>(
    count: &Auto<Count<LEAST, MOST>>,
    auto: impl FnOnce() -> usize,
) -> usize {
    count.map(Count::get).or_else(auto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::serve_spec;
    use loadline_apps::CacheLimits;

    const MACHINE: Machine = Machine {
        budget: CpuBudget {
            affinity: 8,
            quota_milli: Some(3500),
        },
        descriptors_max: 20_000,
        memory: Some(MemoryLimit {
            machine_bytes: 16 << 30,
            group_bytes: Some(1 << 30),
        }),
        refuses_io_uring: None,
    };

    fn planned(line: &str, machine: &Machine) -> Result<Plan, Failure> {
        plan(serve_spec(line)?, machine)
    }

    #[test]
    fn auto_is_a_proactor_or_else_a_reactor() {
        let refusing = Machine {
            refuses_io_uring: Some("no".into()),
            ..MACHINE
        };
        for (line, machine, architecture, fallback) in [
            ("", &MACHINE, Architecture::Proactor, None),
            ("--loops 3", &MACHINE, Architecture::Proactor, None),
            ("--socket-io worker", &MACHINE, Architecture::Reactor, None),
            ("--parse worker", &MACHINE, Architecture::Proactor, None),
            (
                "--architecture reactor",
                &refusing,
                Architecture::Reactor,
                None,
            ),
            ("", &refusing, Architecture::Reactor, Some("no")),
        ] {
            let plan = planned(line, machine).unwrap();
            assert_eq!(plan.options.architecture, architecture, "{line}");
            assert_eq!(plan.fallback.as_deref(), fallback, "{line}");
        }
    }

    #[test]
    fn auto_is_by_what_was_found() {
        let plan = planned("", &MACHINE).unwrap();
        let options = &plan.options;
        let right = ServerOptions {
            architecture: Architecture::Proactor,
            loops: 4,
            workers: 4,
            workers_range: Some(SizeRange { min: 2, max: 256 }),
            connections_max: options.connections_max,
            queue_max: options.connections_max, // the goal bounds it
            ..ServerOptions::default()
        };
        assert_eq!(*options, right);
        assert_eq!(plan.open_files_max, 2500);
        assert!(
            (17_000..20_000).contains(&options.connections_max),
            "{options:?}"
        );
        assert_eq!(plan.limits, Limits::default());
        let (content, cache) = (&plan.flags.content, CacheLimits::default());
        assert_eq!(**content.cache_bytes, cache.bytes_max as u64);
        assert_eq!(content.cache_entries.get(), cache.entries_max);
    }

    #[test]
    fn a_proactor_takes_what_a_reactor_takes_but_its_sockets_stay_its_own() {
        for line in [
            "--loops 2 --workers 4 --worker-pools per-loop",
            "--accept handoff --balance least-busy",
            "--loops 2 --balance adaptive",
            "--accept reuse-port --queue work-stealing --queue-max 10",
            "--capacity-per-loop 5 --connections-max 7",
        ] {
            let of = |name: &str| planned(&format!("--architecture {name} {line}"), &MACHINE);
            let (reactor, proactor) = (of("reactor").unwrap(), of("proactor").unwrap());
            let same = ServerOptions {
                architecture: Architecture::Reactor,
                ..proactor.options
            };
            assert_eq!(format!("{same:?}"), format!("{:?}", reactor.options));
        }
    }

    #[test]
    fn numbers_of_threads_change_where_none_was_given() {
        let range = |max| Some(SizeRange { min: 2, max });
        for (line, size, sizes) in [
            ("--workers 3", 3, None),
            ("--workers 0", 0, None),
            ("", 4, range(256)),
            ("--loops 8 --worker-pools per-loop", 4, range(32)),
            ("--architecture thread-pool --threads 300", 300, None),
            ("--architecture thread-pool", 4, range(256)),
            ("--architecture thread-pool --latency-goal off", 256, None),
        ] {
            let options = planned(line, &MACHINE).unwrap().options;
            let found = match options.architecture {
                Architecture::ThreadPool => options.threads,
                _ => options.workers,
            };
            assert_eq!((found, options.changing_sizes()), (size, sizes), "{line}");
        }
    }

    #[test]
    fn auto_never_chooses_no_workers() {
        for affinity in [1, 2, 64] {
            let budget = CpuBudget {
                affinity,
                ..MACHINE.budget
            };
            let machine = Machine { budget, ..MACHINE };
            let cpus = budget.cpus();
            for line in ["", "--loops 1", "--architecture reactor", "--loops 50"] {
                let workers = planned(line, &machine).unwrap().options.workers;
                assert_eq!(workers, cpus.max(2), "{line}");
            }
        }
    }

    #[test]
    fn auto_fits_any_descriptor_limit() {
        for descriptors_max in [256, 1024, 4096, 1 << 20, usize::MAX] {
            let machine = Machine {
                descriptors_max,
                ..MACHINE
            };
            for architecture in Architecture::ALL {
                let line = format!("--architecture {}", architecture.name());
                let plan = planned(&line, &machine);
                let options = plan
                    .unwrap_or_else(|it| panic!("{descriptors_max}: {it}"))
                    .options;
                assert!(
                    options.threads >= 1 && options.queue_max >= 1,
                    "{options:?}"
                );
                assert!(options.connections_max > 64, "{options:?}");
            }
        }
    }

    #[test]
    fn the_papers_models() {
        let fifty = "--loops 50 --workers 50 --worker-pools per-loop --accept handoff";
        let options = planned(fifty, &MACHINE).unwrap().options;
        assert_eq!((options.loops, options.workers), (50, 50));
        assert_eq!(options.worker_pools, WorkerPools::PerLoop);
        let thousand = planned("--architecture thread-pool --threads 1000", &MACHINE);
        assert_eq!(thousand.unwrap().options.threads, 1000);
        let two = planned("--capacity-per-loop 10 --keep-alive off", &MACHINE);
        assert_eq!(two.unwrap().options.capacity_per_loop, Some(10));
    }

    #[test]
    fn hsts_fits_where_somebody_says_it() {
        for line in [
            "--tls self-signed --hsts 1",
            "--accounts sqlite:a.db --trust-proxy 127.0.0.1 --hsts 0",
        ] {
            planned(line, &MACHINE).unwrap_or_else(|it| panic!("{line}: {it}"));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_one_line() {
        // Options, and what the message names.
        let cases = "\
            --architecture sequential --loops 2 => --loops 2 sequential reactor
            --architecture thread-pool --workers 2 => --workers 2 thread-pool reactor
            --threads 4 => --threads 4 proactor thread-pool
            --architecture sequential --queue-max 4 => --queue-max 4 reactor, proactor or thread-pool
            --architecture proactor --socket-io worker => --socket-io worker proactor has no use for it; it goes with reactor
            --architecture thread-pool --latency-goal off --connections-max 4 => --connections-max 4 --latency-goal
            --balance least-busy => --balance least-busy --accept handoff
            --workers 0 --queue work-stealing => --queue work-stealing --workers 1
            --workers 0 --socket-io worker => --socket-io worker --workers 1
            --workers 0 --worker-pools per-loop => --worker-pools per-loop --workers 1
            --workers 0 --parse worker => --parse worker --workers 1
            --architecture thread-pool --parse worker => --parse worker thread-pool reactor or proactor
            --socket-io worker --parse worker => --parse worker --socket-io worker leave out
            --socket-io worker --parse loop => --parse loop --socket-io worker leave out
            --parse worker --http2 only => --parse worker --http2 only HTTP/1
            --parse worker --tls self-signed => --parse worker TLS --parse loop
            --connections-max 50000 => --connections-max 50000 17420
            --architecture thread-pool --threads 16000 --latency-goal off --queue-max 9000 => --threads 16000
            --listen 127.0.0.1:80 --listen 127.0.0.1:80 => --listen 127.0.0.1:80 twice
            --listen https://127.0.0.1:1 => --listen https://127.0.0.1:1 no certificate --tls-cert --tls self-signed
            --tls-cert c.pem => --tls-cert goes with --tls-key
            --tls-cert c.pem --tls-key k.pem => --tls-cert no address --listen https://
            --tls-cert c --tls-key k --tls-key l --listen https://127.0.0.1:1 => --tls-key 1 certificates and 2 keys
            --tls self-signed --tls-cert c --tls-key k => --tls-cert excludes --tls
            --tls signed => --tls signed self-signed
            --hsts 365 => --hsts no address of the site speaks TLS
            --listen 127.0.0.1:2 --admin-listen https://127.0.0.1:1 --tls self-signed --hsts 1 => --hsts no address of the site
            --accounts sqlite:a.db --hsts 1 => --hsts no address of the site
            --unix-mode 660 => --unix-mode 660 no address is a Unix socket --listen unix:
            --http2 off --streams-max 7 => --streams-max 7 --http2 off
            --tls-early-data on => --tls-early-data no address speaks TLS
            --tls-handshakes-max 7 => --tls-handshakes-max no address speaks TLS
            --tls-handshake-timeout 1s => --tls-handshake-timeout no address speaks TLS
            --tls self-signed --https-redirect => --https-redirect no http address --listen
            --admin-listen https://127.0.0.1:1 => --admin-listen https://127.0.0.1:1 no certificate --tls self-signed
            --listen 127.0.0.1:2 --admin-listen https://127.0.0.1:1 --tls self-signed --https-redirect => --https-redirect no https address --listen https://
            --listen unix:/a --admin-listen https://127.0.0.1:1 --acme a@example.org --acme-domain example.org => --acme no address --listen 0.0.0.0:80
            --listen 127.0.0.1:80 --listen https://127.0.0.1:1 --http2 only --tls-client-ca ca --acme a@example.org --acme-domain a.example.org => --acme no client certificate without --http2 only
            --tls self-signed --tls-client-cert optional => --tls-client-cert --tls-client-ca
            --idle-timeout 0 => --idle-timeout 0s 1ms
            --idle-timeout never => --idle-timeout never off
            --proxy-idle-timeout 60s => --trust-proxy
            --trust-proxy 10.0.0.1 --proxy-idle-timeout 60s --idle-timeout 61s => --proxy-idle-timeout 1m --idle-timeout
            --log-format common --connection-log a => --log-format common --access-log
            --connection-log - --access-log - => --connection-log - access log
            --body-rate-min 0 => --body-rate-min 0 least
            --head-max 1 => --head-max 1 256
            --target-max 32k => --target-max 32768 --head-max
            --balance fastest => --balance fastest round-robin least-busy
            --architecture reactr => reactr did you mean reactor
            --architekture reactor => --architekture did you mean --architecture
            --loops 0 => --loops 0 1 to 1024 auto
            --loops => --loops missing
            --loops 1 --loops 2 => --loops once
            --at-capacity close => --at-capacity close any more --capacity-per-loop alone
            --log-format json => --access-log
            --keep-alive maybe => --keep-alive maybe on off
            --grace 10 => --grace 10 10s
            --architecture thread-pool --threads 1000 --memory-max 16M => --memory-max 16777216 threads least
            --memory-max 1M => --memory-max 1M auto off
            --socket-buffer 1 => --socket-buffer 1 8192 auto
            --trust-proxy nobody => --trust-proxy nobody: right would be
            --media-type wasm => --media-type wasm: EXT=TYPE
            --cache-control 1 => --cache-control 1: max-age=3600
            --accounts oracle:secret => --accounts: not a database; sqlite:FILE
            --listen 8080 => --listen 8080 127.0.0.1:8080
            --status-path status => --status-path status /-/status
            one two => two one directory";
        for case in cases.lines() {
            let (line, words) = case.trim().split_once(" => ").unwrap();
            let message = planned(line, &MACHINE).expect_err(line).message;
            println!("{message}");
            assert!(!message.contains('\n'), "{line}: {message}");
            assert!(!message.contains("secret"), "{message}");
            for word in words.split_ascii_whitespace() {
                assert!(
                    message.contains(word),
                    "{line}: {word} is not in: {message}"
                );
            }
        }
    }
}
