//! What a load comes to on a machine: every number worked out, every file read.

mod http2;
mod pace;
mod requests;
mod tls;
mod user_groups;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use loadline_load::Plan;
use loadline_load::run::{Demand, Division, Machine, Run, divide};
use loadline_load::watch::Target;
use loadline_spec::load::values::Pid;
use loadline_spec::load::{
    ClientSpec, LoadSpec, MachineSpec, SERVER, mask_table, mask_url, masked_words,
};
use loadline_spec::values::Count;
use loadline_spec::{SpecError, given};

use crate::scenario::Scenario;
use pace::{nanos, own_schedules, pace, replay_pace, retries};
use requests::Sent;
use tls::HTTP_1;
use user_groups::Counts;

/// A run, ready to be started.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The run.
    pub run: Run,
    /// What users do, if there are any; it counts how each step fares in this process.
    pub scenario: Option<Scenario>,
    /// What is worth knowing before it begins, in sentences.
    pub remarks: Vec<String>,
}

/// Of how many answers the content is hashed, unless said otherwise: one in a hundred costs next to
/// nothing, and finds what is wrong in more than a few.
const CONTENT_SAMPLE: u32 = 100;

/// Refuses addresses that are not this machine's: every connection from one would fail.
fn refuse_foreign_sources(sources: &[IpAddr]) -> Result<(), SpecError> {
    // Nothing is sent, and nothing waits for it.
    let is_ours = |source: &IpAddr| UdpSocket::bind((*source, 0)).is_ok();
    match sources.iter().find(|source| !is_ours(source)) {
        None => Ok(()),
        Some(source) => Err(SpecError::new(
            "sources",
            "not an address of this machine",
            "one that `ip address` lists, or 127.0.0.2, say, for a server on loopback",
        )
        .with_value(source)),
    }
}

/// Refuses addresses of another family than a server's: no connection leads from one to the other.
fn refuse_other_families(sources: &[IpAddr], servers: &[SocketAddr]) -> Result<(), SpecError> {
    for server in servers {
        let family = if server.is_ipv4() { "IPv4" } else { "IPv6" };
        if let Some(source) = sources.iter().find(|it| it.is_ipv4() != server.is_ipv4()) {
            return Err(SpecError::new(
                "sources",
                format!("no connection leads from there to {server}"),
                format!("{family} addresses alone"),
            )
            .with_value(source));
        }
    }
    Ok(())
}

/// A connection goes to one server: a process with fewer of them than servers has no request for some.
fn refuse_unvisited(
    servers: &[SocketAddr],
    connections: u32,
    processes: u32,
) -> Result<(), SpecError> {
    let each = (connections / processes.max(1)) as usize;
    if connections == 0 || each >= servers.len() {
        return Ok(());
    }
    let unvisited = servers[each];
    let of_processes = match processes {
        0 | 1 => String::new(),
        _ => format!(" for each of {processes} processes"),
    };
    Err(SpecError::new(
        "connections",
        format!("{unvisited} would get no request: each connection goes to one server"),
        format!("at least {}{of_processes}", servers.len()),
    )
    .with_value(connections))
}

/// Refuses several servers with a schedule for each connection: a connection goes to one server, so the
/// weights of requests would not be kept.
fn refuse_several(spec: &LoadSpec, servers: &[SocketAddr]) -> Result<(), SpecError> {
    match servers.len() {
        0 | 1 => Ok(()),
        _ if !own_schedules(spec) => Ok(()),
        several => Err(SpecError::new(
            "schedule",
            format!("the URLs have {several} servers"),
            "shared, or URLs of one server",
        )
        .with_value("per-connection")),
    }
}

/// Refuses servers that do not go with these clients.
fn refuse_servers(
    spec: &LoadSpec,
    servers: &[SocketAddr],
    connections: u32,
) -> Result<(), SpecError> {
    refuse_unvisited(servers, connections, 1)?;
    refuse_other_families(sources(&spec.machine), servers)?;
    refuse_several(spec, servers)
}

/// The source addresses that are named.
fn sources(machine: &MachineSpec) -> &[IpAddr] {
    machine.sources.as_ref().map_or(&[], |list| &list.0)
}

/// What a load comes to on this machine.
///
/// # Errors
/// Says which option does not fit, which file cannot be read or which host is not known.
pub fn resolve(spec: &LoadSpec, limits: &Machine) -> Result<Planned, SpecError> {
    spec.check()?;
    refuse_foreign_sources(sources(&spec.machine))?;
    let counts = user_groups::count(spec)?;
    let Sent {
        mix,
        servers: destinations,
        timing,
        remarks,
    } = requests::prepared(spec)?;
    let servers: Vec<SocketAddr> = destinations.iter().map(|one| one.address).collect();
    let (load, phases) = match timing {
        Some(timing) => replay_pace(spec, timing),
        None => pace(spec)?,
    };
    refuse_servers(spec, &servers, counts.plain)?;
    let http2 = http2::plan(spec, &mix, &destinations, counts)?;
    let division = divide(&demand(spec, counts, &servers), limits)?;
    refuse_unvisited(&servers, counts.plain, division.processes)?;
    let (clients, machine) = (&spec.clients, &spec.machine);
    let sample = spec.expect.content_sample;
    let mut plan = Plan {
        servers,
        connectors: match http2 {
            Some(_) => Vec::new(), // it has its own
            None => tls::connectors(&spec.tls, &destinations, HTTP_1)?,
        },
        http2,
        mix,
        load,
        phases,
        connections: counts.plain,
        requests_max: clients.requests.map(|count| *count as u64),
        requests_per_connection: requests_per_connection(clients),
        timeout_ns: nanos(**clients.timeout),
        closes_on_timeout: clients.close_on_timeout,
        deadline_ns: clients.deadline.map(|time| nanos(*time)),
        latency_goal_ns: clients.latency_goal.map(|time| nanos(*time)),
        own_schedules: own_schedules(spec),
        retries: retries(spec),
        content_sample: sample.map_or(CONTENT_SAMPLE, Count::saturating_u32),
        spins: spec.machine.spin,
        sources: division.sources.clone(),
        groups: Vec::new(),
        seed: machine.seed.map_or_else(random_seed, |seed| seed.0),
    };
    let (user_groups, scenario) = user_groups::add(spec, counts, &mut plan)?;
    let http2_thread = http2::divided(spec, &mut plan, &destinations, division.processes)?;
    let division = Division {
        threads: threads(&division, &plan),
        ..division
    };
    let extra = http2_thread.or_else(|| crate::thread(user_groups));
    refuse_spinning_in_turns(machine, &division, u32::from(extra.is_some()), limits)?;
    let run = Run {
        plan,
        division,
        extra,
        cpus: machine.cpus.clone().map_or_else(Vec::new, |list| list.0),
        watched: watched(spec),
        command: typed(),
        spec: mask_table(given(spec)),
        urls: spec.url.iter().map(|url| mask_url(url)).collect(),
    };
    Ok(Planned {
        run,
        scenario,
        remarks,
    })
}

fn requests_per_connection(clients: &ClientSpec) -> Option<u32> {
    match clients.new_connection {
        true => Some(1),
        false => clients.requests_per_connection.map(Count::saturating_u32),
    }
}

/// A thread that spins keeps another from its CPU, also the one of each process that sleeps (`extra`).
fn refuse_spinning_in_turns(
    machine: &MachineSpec,
    division: &Division,
    extra: u32,
    limits: &Machine,
) -> Result<(), SpecError> {
    let named = machine.cpus.as_ref();
    let cpus = named.map_or(limits.cpus, |list| list.0.len());
    let (processes, threads) = (division.processes, division.threads);
    let all = u64::from(processes) * (u64::from(threads) + u64::from(extra));
    if !machine.spin || all <= cpus as u64 {
        return Ok(());
    }
    let problem =
        format!("each thread needs a CPU of its own, and there would be {all} for {cpus} of them");
    let right = match (cpus as u32 / processes).saturating_sub(extra) {
        0 => "more CPUs, or without --spin".to_owned(),
        each => format!("--threads {each}, or without --spin"),
    };
    Err(SpecError::new("spin", problem, right))
}

fn demand<'d>(spec: &'d LoadSpec, counts: Counts, servers: &'d [SocketAddr]) -> Demand<'d> {
    let machine = &spec.machine;
    Demand {
        clients: counts.total(),
        is_churning: requests_per_connection(&spec.clients).is_some()
            || spec.hostile.vanishing.is_some(),
        servers,
        sources: sources(machine),
        source_per_client: spec.users.source_per_client,
        processes: machine.processes.given().map(Count::get),
        threads: machine.threads.given().map(Count::get),
        cpus: machine.cpus.as_ref().map(|list| list.0.len()),
    }
}

/// No more threads than there are connections for them: each has one to each server.
fn threads(division: &Division, plan: &Plan) -> u32 {
    let servers = u32::try_from(plan.servers.len()).unwrap_or(u32::MAX);
    let each = plan.connections / division.processes.max(1) / servers.max(1);
    division.threads.min(each.max(1))
}

fn watched(spec: &LoadSpec) -> Vec<Target> {
    let target = |name: &str, pid: Pid| Target {
        name: name.to_owned(),
        pid: pid.0,
    };
    let server = spec.machine.server_pid.map(|pid| target(SERVER, pid));
    let named = spec.machine.watch.iter();
    let named = named.map(|watched| target(&watched.name, watched.pid));
    server.into_iter().chain(named).collect()
}

/// The command line of this process, without passwords.
fn typed() -> Vec<String> {
    masked_words(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// Another one each time; short enough to be typed again.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use loadline_load::Loop;

    const MACHINE: Machine = Machine {
        descriptors_max: 20_000,
        ports: 28_232,
        cpus: 8,
    };

    /// A load of plain words.
    pub(super) fn typed(options: &str) -> LoadSpec {
        let words = std::iter::once("http://127.0.0.1:9/").chain(options.split_ascii_whitespace());
        let command = LoadSpec::augment_args(clap::Command::new("load").no_binary_name(true));
        LoadSpec::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    fn planned(options: &str) -> Run {
        resolve(&typed(options), &MACHINE).unwrap().run
    }

    #[test]
    fn what_nothing_is_said_about() {
        let Run { plan, division, .. } = planned("");
        assert_eq!(
            plan.load,
            Loop::Closed {
                think_ns: 0,
                coalesces: true
            }
        );
        assert_eq!((plan.connections, plan.requests_per_connection), (64, None));
        assert_eq!(plan.duration_ns(), 10_000_000_000);
        assert_eq!(plan.timeout_ns, 2_000_000_000);
        assert_eq!(plan.groups[0], "clients");
        assert_eq!((division.processes, division.threads), (1, 4));
        assert_ne!(plan.seed, planned("").plan.seed);
    }

    #[test]
    fn the_papers_commands() {
        let webbench = planned("--connections 10000 --duration 5s --new-connection");
        assert_eq!(webbench.plan.requests_per_connection, Some(1));
        assert_eq!(webbench.plan.sources.len(), 8);
        // The same in other words.
        let webbench = planned("--connections 10000 --duration 5s --requests-per-connection 1");
        assert_eq!(webbench.plan.sources.len(), 8);
        let wrk2 = planned("--rate 20000 --connections 2000 --duration 30s");
        assert!(matches!(wrk2.plan.load, Loop::Open { .. }));
        assert_eq!(wrk2.plan.phases[0].rate, Some(20_000.0));
        let vegeta = planned("--steps 100..2500/100 --warm-up 1s").plan;
        assert_eq!(vegeta.phases.len(), 26);
        assert_eq!(vegeta.duration_ns(), 251_000_000_000);
        let weighttp = planned("-n 100000 -c 20000 --seed 7");
        assert_eq!(weighttp.plan.requests_max, Some(100_000));
        assert_eq!((weighttp.division.processes, weighttp.plan.seed), (2, 7));
        let hour = u64::try_from(Duration::from_secs(3600).as_nanos()).unwrap();
        assert!(weighttp.plan.duration_ns() > hour);
    }

    /// What was due beyond them waited for a connection that was to be opened again.
    #[test]
    fn streams_of_an_open_loop_are_no_more_than_requests_of_a_connection() {
        for (options, streams) in [
            ("--rate 100", 100),
            ("--rate 100 --requests-per-connection 7", 7),
            ("--rate 100 --requests-per-connection 1000", 100),
            ("--rate 100 --requests-per-connection 7 --streams 50", 7),
            ("--requests-per-connection 7 --streams 50", 50),
            ("--rate 100 --new-connection", 1),
            ("", 1),
        ] {
            let plan = planned(&format!("--http2 {options}")).plan;
            let found = plan.http2.as_ref().map(|http2| http2.streams);
            assert_eq!(found, Some(streams), "{options}");
        }
    }

    #[test]
    fn who_spins_has_a_cpu() {
        assert!(planned("--spin --threads 8").plan.spins);
        assert!(planned("--spin --cpus 1 --threads 1").plan.spins);
        assert!(!planned("--threads 9").plan.spins);
        let spec = typed("--spin --cpus 0,1 --threads 3");
        let message = resolve(&spec, &MACHINE).unwrap_err().to_string();
        assert!(message.contains("3 for 2 of them"), "{message}");
    }

    /// One that spins kept it from its CPU.
    #[test]
    fn a_thread_beside_those_that_spin_has_a_cpu() {
        for beside in ["--http2 --http2-share 50%", "--idle-connections 3"] {
            let run = planned(&format!("{beside} --spin --cpus 0,1 --threads 1"));
            assert!(run.plan.spins && run.extra.is_some());
            for (cpus, parts) in [
                ("0,1 --threads 2", ["3 for 2 of them", "--threads 1, or"]),
                ("0 --threads 1", ["2 for 1 of them", "more CPUs, or"]),
            ] {
                let spec = typed(&format!("{beside} --spin --cpus {cpus}"));
                let message = resolve(&spec, &MACHINE).unwrap_err().to_string();
                for part in parts {
                    assert!(message.contains(part), "{message}");
                }
            }
        }
    }

    #[test]
    fn no_thread_is_without_a_connection() {
        assert_eq!(planned("-c 2 --threads 8").division.threads, 2);
        let divided = planned("-c 9 --threads 8 --processes 3").division;
        assert_eq!(divided.threads, 3);
        // To each of two servers.
        let two = "http://127.0.0.1:10/";
        assert_eq!(
            planned(&format!("{two} -c 5 --threads 8")).division.threads,
            2
        );
        let spec = typed(&format!("{two} -c 3 --processes 2"));
        let message = resolve(&spec, &MACHINE).unwrap_err().to_string();
        assert!(
            message.contains("at least 2 for each of 2 processes"),
            "{message}"
        );
    }

    #[test]
    fn connections_of_both_kinds_go_to_each_server() {
        let shared = "http://127.0.0.1:10/ --http2 --http2-share 25%";
        assert_eq!(planned(&format!("{shared} -c 8")).plan.connections, 6);
        for (more, part) in [
            ("-c 4", "1 of 4 connections"),
            ("-c 12 --processes 2", "3 of 12 connections"),
        ] {
            let spec = typed(&format!("{shared} {more}"));
            let message = resolve(&spec, &MACHINE).unwrap_err().to_string();
            assert!(message.starts_with("--http2-share 25%"), "{message}");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn connections_with_schedules_of_their_own_have_one_server() {
        let own = "--rate 100 --schedule per-connection";
        planned(own);
        let spec = typed(&format!("http://127.0.0.1:10/ {own}"));
        let message = resolve(&spec, &MACHINE).unwrap_err().to_string();
        assert!(message.contains("the URLs have 2 servers"), "{message}");
    }
}
