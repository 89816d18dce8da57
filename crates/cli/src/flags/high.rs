//! What the command line means: every `auto` worked out, every contradiction refused.
//!
//! Pure: what the machine has comes in as [`Machine`].

use std::sync::Arc;

use loadline_proto::{AccessFormat, Limits};
use loadline_server::{
    Accept, Architecture, DESCRIPTORS_RESERVED, ListenAddr, OptionError, Queue, ServerOptions,
    SocketIo, WorkerPools,
};

use super::defs::{ArchitectureFlags, RunningFlags, ServeFlags};
use super::limits::limits;
use super::values::Auto;
use crate::failure::Failure;

/// What was found about the machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// CPUs in the affinity mask.
    pub(crate) affinity: usize,
    /// Quota of the control group, in thousandths of a CPU.
    pub(crate) quota_milli: Option<u64>,
    /// Threads that can run at once by both.
    pub(crate) cpus: usize,
    /// Descriptors that the process may have.
    pub(crate) descriptors_max: usize,
    /// Why there is no io_uring here; `None`: there is.
    pub(crate) refuses_io_uring: Option<String>,
}

impl Machine {
    /// Looks around; raises the descriptor limit as far as it goes.
    pub(crate) fn find() -> Self {
        let budget = loadline_sys::affinity::cpu_budget();
        let limit = loadline_sys::usage::raise_descriptor_limit();
        Self {
            affinity: budget.affinity,
            quota_milli: budget.quota_milli,
            cpus: budget.cpus(),
            descriptors_max: usize::try_from(limit.soft).unwrap_or(usize::MAX),
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
    pub(crate) flags: Arc<ServeFlags>,
    /// Architecture and numbers.
    pub(crate) options: ServerOptions,
    /// Why it is not the architecture that `auto` would rather have.
    pub(crate) fallback: Option<String>,
    /// Bounds of a connection.
    pub(crate) limits: Limits,
    /// Files that the cache keeps open.
    pub(crate) open_files_max: usize,
}

/// Workers by `auto`, at least: one slow job must not stop the next.
const WORKERS_LEAST: usize = 2;
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
pub(crate) fn plan(flags: ServeFlags, machine: &Machine) -> Result<Plan, Failure> {
    let (architecture, fallback) = choose(&flags.architecture, machine);
    refuse_foreign(&flags, architecture)?;
    let options = options(&flags, architecture, machine);
    refuse_contradictions(&flags, &options)?;
    options.validate().map_err(refused)?;
    let open_files_max = open_files_max(&flags, machine);
    let room = machine.descriptors_max.saturating_sub(open_files_max);
    options.validate_descriptors(room).map_err(|error| {
        let files = match open_files_max {
            0 => String::new(),
            files => format!(" less {files} for the file cache"),
        };
        let limit = format!("the limit of {} open files{files}", machine.descriptors_max);
        let expected = error
            .expected
            .replace(&format!("the limit of {room} open files"), &limit);
        refused(OptionError { expected, ..error })
    })?;
    Ok(Plan {
        limits: limits(&flags.requests, &flags.connections)?,
        flags: Arc::new(flags),
        options,
        fallback,
        open_files_max,
    })
}

/// The proactor by `auto`, since it costs no more than the reactor (docs/hot-path.md), unless the
/// machine or another option does not allow it; then says which of them.
fn choose(typed: &ArchitectureFlags, machine: &Machine) -> (Architecture, Option<String>) {
    match typed.architecture {
        Auto::Given(architecture) => (architecture, None),
        Auto::Auto if typed.socket_io == Some(SocketIo::Worker) => (Architecture::Reactor, None),
        Auto::Auto => match &machine.refuses_io_uring {
            None => (Architecture::Proactor, None),
            Some(why) => (Architecture::Reactor, Some(why.clone())),
        },
    }
}

fn refused(error: OptionError) -> Failure {
    Failure::usage(error.to_string())
}

/// Files that the cache may hold open: an eighth of the descriptors.
fn open_files_max(flags: &ServeFlags, machine: &Machine) -> usize {
    let auto = || (machine.descriptors_max / 8).clamp(16, OPEN_FILES_AUTO);
    flags.content.cache_open_files.or_else(auto)
}

fn options(flags: &ServeFlags, architecture: Architecture, machine: &Machine) -> ServerOptions {
    let defaults = ServerOptions::default();
    let typed = &flags.architecture;
    let loops = typed.loops.or_else(|| machine.cpus);
    // One for a main loop, one for each other listener beside a loop's own.
    let descriptors_of_loops = 4 * loops + flags.listen.len();
    let room = machine
        .descriptors_max
        .saturating_sub(DESCRIPTORS_RESERVED + open_files_max(flags, machine))
        .saturating_sub(descriptors_of_loops)
        .max(2);
    let threads = typed.threads.or_else(|| THREADS_AUTO.min(room / 2));
    let queue_room = match architecture {
        Architecture::ThreadPool => room.saturating_sub(threads).max(1),
        _ => QUEUE_AUTO,
    };
    let connections_most = match architecture {
        Architecture::ThreadPerConnection => THREAD_CONNECTIONS_AUTO,
        _ => CONNECTIONS_AUTO,
    };
    ServerOptions {
        architecture,
        loops,
        workers: typed.workers.or_else(|| machine.cpus.max(WORKERS_LEAST)),
        threads,
        worker_pools: typed.worker_pools.unwrap_or(defaults.worker_pools),
        accept: typed.accept.unwrap_or(defaults.accept),
        balance: typed.balance.unwrap_or(defaults.balance),
        queue: typed.queue.unwrap_or(defaults.queue),
        queue_max: typed.queue_max.or_else(|| QUEUE_AUTO.min(queue_room)),
        socket_io: typed.socket_io.unwrap_or(defaults.socket_io),
        file_io: typed.file_io.unwrap_or(defaults.file_io),
        capacity_per_loop: typed.capacity_per_loop,
        at_capacity: typed.at_capacity.unwrap_or(defaults.at_capacity),
        connections_max: flags
            .connections
            .connections_max
            .or_else(|| room.min(connections_most)),
        backlog: u32::try_from(flags.connections.backlog).unwrap_or(u32::MAX),
        defer_accept: flags.connections.defer_accept,
        grace: flags.running.grace,
    }
}

/// Refuses options that the architecture has no use for: they would silently do nothing.
fn refuse_foreign(flags: &ServeFlags, architecture: Architecture) -> Result<(), Failure> {
    use Architecture::{Proactor, Reactor, ThreadPerConnection, ThreadPool};
    let typed: &ArchitectureFlags = &flags.architecture;
    let loops: &[Architecture] = &[Reactor, Proactor];
    let given: [(&str, Option<String>, &[Architecture]); 12] = [
        ("--loops", number(typed.loops), loops),
        ("--workers", number(typed.workers), loops),
        ("--threads", number(typed.threads), &[ThreadPool]),
        (
            "--worker-pools",
            typed.worker_pools.map(|it| it.name().to_owned()),
            loops,
        ),
        (
            "--accept",
            typed.accept.map(|it| it.name().to_owned()),
            loops,
        ),
        (
            "--balance",
            typed.balance.map(|it| it.name().to_owned()),
            loops,
        ),
        ("--queue", typed.queue.map(|it| it.name().to_owned()), loops),
        (
            "--queue-max",
            number(typed.queue_max),
            &[Reactor, Proactor, ThreadPool],
        ),
        (
            "--socket-io",
            typed.socket_io.map(|it| it.name().to_owned()),
            &[Reactor],
        ),
        (
            "--file-io",
            typed.file_io.map(|it| it.name().to_owned()),
            loops,
        ),
        (
            "--capacity-per-loop",
            typed.capacity_per_loop.map(|it| it.to_string()),
            loops,
        ),
        (
            "--connections-max",
            number(flags.connections.connections_max),
            &[Reactor, Proactor, ThreadPerConnection],
        ),
    ];
    for (option, value, useful) in given {
        let Some(value) = value else { continue };
        if !useful.contains(&architecture) {
            let useful: Vec<_> = useful.iter().map(|useful| useful.name()).collect();
            return Err(Failure::usage(format!(
                "{option} {value}: --architecture {} has no use for it; it goes with {}",
                architecture.name(),
                in_words(&useful),
            )));
        }
    }
    Ok(())
}

fn in_words(names: &[&str]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        _ => names.concat(),
    }
}

fn number(typed: Auto<usize>) -> Option<String> {
    typed.given().map(|number| number.to_string())
}

/// Refuses options that go with another choice than the one made.
fn refuse_contradictions(flags: &ServeFlags, options: &ServerOptions) -> Result<(), Failure> {
    let typed = &flags.architecture;
    let refuse = |message: String| Err(Failure::usage(message));
    if let Some(balance) = typed.balance
        && options.accept != Accept::Handoff
    {
        let (balance, accept) = (balance.name(), options.accept.name());
        return refuse(format!(
            "--balance {balance}: with --accept {accept} nobody hands over; right would be \
             --accept handoff"
        ));
    }
    if options.workers == 0 && options.architecture.has_loops() {
        let idle = [
            (
                "--queue work-stealing",
                options.queue == Queue::WorkStealing,
            ),
            (
                "--worker-pools per-loop",
                options.worker_pools == WorkerPools::PerLoop,
            ),
            ("--socket-io worker", options.socket_io == SocketIo::Worker),
        ];
        if let Some((option, _)) = idle.iter().find(|(_, given)| *given) {
            return refuse(format!(
                "{option}: there are no workers; right would be --workers 1 or more"
            ));
        }
    }
    refuse_logs(&flags.running)?;
    let mut listen = flags.listen.clone();
    while let Some(address) = listen.pop() {
        let fixed = !matches!(&address, ListenAddr::Tcp(tcp) if tcp.port() == 0);
        if fixed && listen.contains(&address) {
            return refuse(format!("--listen {address}: given twice; once is enough"));
        }
    }
    Ok(())
}

/// Refuses logs that would do nothing, or tear each other's lines apart.
fn refuse_logs(running: &RunningFlags) -> Result<(), Failure> {
    let has_access = running.access_log.is_some();
    if let Some(format) = running.log_format {
        let (name, right) = match format {
            AccessFormat::Json => ("json", "--access-log or --connection-log"),
            AccessFormat::Common => ("common", "--access-log"),
            AccessFormat::Combined => ("combined", "--access-log"),
        };
        let is_of_use =
            has_access || (format == AccessFormat::Json && running.connection_log.is_some());
        if !is_of_use {
            return Err(Failure::usage(format!(
                "--log-format {name}: there is no log of that form; it goes with {right}"
            )));
        }
    }
    if let Some(path) = &running.connection_log
        && has_access
        && running.access_log == running.connection_log
    {
        return Err(Failure::usage(format!(
            "--connection-log {}: the access log goes there; right would be a file of its own",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Typed, defs::Command, read};

    const MACHINE: Machine = Machine {
        affinity: 8,
        quota_milli: Some(3500),
        cpus: 4,
        descriptors_max: 20_000,
        refuses_io_uring: None,
    };

    fn planned(line: &str, machine: &Machine) -> Result<Plan, Failure> {
        let words = ["loadline", "serve"]
            .into_iter()
            .chain(line.split_ascii_whitespace());
        match read(words.map(Into::into))? {
            Typed::Command(Command::Serve(flags)) => plan(*flags, machine),
            other => panic!("{other:?}"),
        }
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
        assert_eq!((options.loops, options.workers), (4, 4));
        assert_eq!(plan.open_files_max, 2500);
        assert!(
            (17_000..20_000).contains(&options.connections_max),
            "{options:?}"
        );
        assert_eq!(plan.limits, Limits::default());
    }

    #[test]
    fn a_proactor_takes_what_a_reactor_takes_but_its_sockets_stay_its_own() {
        for line in [
            "--loops 2 --workers 4 --worker-pools per-loop",
            "--accept handoff --balance least-busy",
            "--accept reuse-port --queue work-stealing --queue-max 10",
            "--capacity-per-loop 5 --at-capacity close --connections-max 7",
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
    fn auto_never_chooses_no_workers() {
        for cpus in [1, 2, 64] {
            let machine = Machine { cpus, ..MACHINE };
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
        let two = planned(
            "--capacity-per-loop 10 --at-capacity close --keep-alive off",
            &MACHINE,
        );
        assert_eq!(two.unwrap().options.capacity_per_loop, Some(10));
    }

    #[test]
    fn what_does_not_fit_is_refused_in_one_line() {
        for (line, words) in [
            (
                "--architecture sequential --loops 2",
                "--loops 2 sequential reactor",
            ),
            (
                "--architecture thread-pool --workers 2",
                "--workers 2 thread-pool reactor",
            ),
            ("--threads 4", "--threads 4 proactor thread-pool"),
            (
                "--architecture sequential --queue-max 4",
                "--queue-max 4 reactor, proactor or thread-pool",
            ),
            (
                "--architecture proactor --socket-io worker",
                "--socket-io worker proactor has no use for it; it goes with reactor",
            ),
            (
                "--architecture thread-pool --connections-max 4",
                "--connections-max 4",
            ),
            (
                "--balance least-busy",
                "--balance least-busy --accept handoff",
            ),
            (
                "--workers 0 --queue work-stealing",
                "--queue work-stealing --workers 1",
            ),
            (
                "--workers 0 --socket-io worker",
                "--socket-io worker --workers 1",
            ),
            (
                "--workers 0 --worker-pools per-loop",
                "--worker-pools per-loop --workers 1",
            ),
            ("--connections-max 50000", "--connections-max 50000 17420"),
            (
                "--architecture thread-pool --threads 16000 --queue-max 9000",
                "--threads 16000",
            ),
            (
                "--listen 127.0.0.1:80 --listen 127.0.0.1:80",
                "--listen 127.0.0.1:80 twice",
            ),
            ("--idle-timeout 0", "--idle-timeout 0ns 1ms"),
            ("--idle-timeout never", "--idle-timeout never off"),
            ("--proxy-idle-timeout 60s", "--trust-proxy"),
            (
                "--trust-proxy 10.0.0.1 --proxy-idle-timeout 60s --idle-timeout 61s",
                "--proxy-idle-timeout 60000ms --idle-timeout",
            ),
            (
                "--log-format common --connection-log a",
                "--log-format common --access-log",
            ),
            (
                "--connection-log - --access-log -",
                "--connection-log - access log",
            ),
            ("--body-rate-min 0", "--body-rate-min 0 least"),
            ("--head-max 1", "--head-max 1 256"),
            ("--target-max 32k", "--target-max 32768 --head-max"),
            (
                "--balance fastest",
                "--balance fastest round-robin least-busy",
            ),
            ("--architecture reactr", "reactr did you mean reactor"),
            (
                "--architekture reactor",
                "--architekture did you mean --architecture",
            ),
            ("--loops 0", "--loops 0 1 to 1024 auto"),
            ("--loops", "--loops missing"),
            ("--loops 1 --loops 2", "--loops once"),
            ("--at-capacity close", "--capacity-per-loop"),
            ("--log-format json", "--access-log"),
            ("--keep-alive maybe", "--keep-alive maybe on off"),
            ("--grace 10", "--grace 10 10s"),
            ("--listen 8080", "--listen 8080 127.0.0.1:8080"),
            ("--status-path status", "--status-path status /-/status"),
            ("one two", "two one directory"),
        ] {
            let message = planned(line, &MACHINE).expect_err(line).message;
            println!("{message}");
            assert!(!message.contains('\n'), "{line}: {message}");
            for word in words.split_ascii_whitespace() {
                assert!(
                    message.contains(word),
                    "{line}: {word} is not in: {message}"
                );
            }
        }
    }
}
