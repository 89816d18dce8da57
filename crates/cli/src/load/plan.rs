//! What the command line of `loadline load` means: every number worked out, every file read.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use loadline_clients::scenario::Scenario;
use loadline_load::Plan;
use loadline_load::run::{Demand, Division, Machine, Run, divide};
use loadline_load::watch::Target;

use super::command::{self, mask_url};
use super::fitting::{SERVER, refuse_contradictions};
use super::pace::{nanos, pace, replay_pace};
use super::requests::{self, Sent};
use super::user_groups::{self, Counts};
use crate::failure::Failure;
use crate::flags::load_defs::{LoadFlags, MachineFlags};

/// A run, ready to be started.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// The run.
    pub(super) run: Run,
    /// What users do, if there are any; it counts how each step fares in this process.
    pub(super) scenario: Option<Scenario>,
    /// What is worth knowing before it begins, in sentences.
    pub(super) remarks: Vec<String>,
}

/// Of how many answers the content is hashed, unless said otherwise: one in a hundred costs next to
/// nothing, and finds what is wrong in more than a few.
const CONTENT_SAMPLE: u32 = 100;

/// Refuses addresses that are not this machine's: every connection from one would fail.
fn refuse_foreign_sources(sources: &[IpAddr]) -> Result<(), Failure> {
    // Nothing is sent, and nothing waits for it.
    let is_ours = |source: &IpAddr| UdpSocket::bind((*source, 0)).is_ok();
    match sources.iter().find(|source| !is_ours(source)) {
        None => Ok(()),
        Some(source) => Err(Failure::usage(format!(
            "--sources {source}: not an address of this machine; right would be one that \
             `ip address` lists, or 127.0.0.2, say, for a server on loopback"
        ))),
    }
}

/// Refuses addresses of another family than a server's: no connection leads from one to the other.
fn refuse_other_families(sources: &[IpAddr], servers: &[SocketAddr]) -> Result<(), Failure> {
    for server in servers {
        let family = if server.is_ipv4() { "IPv4" } else { "IPv6" };
        if let Some(source) = sources.iter().find(|it| it.is_ipv4() != server.is_ipv4()) {
            return Err(Failure::usage(format!(
                "--sources {source}: no connection leads from there to {server}; right would be \
                 {family} addresses alone"
            )));
        }
    }
    Ok(())
}

/// A connection goes to one server: with fewer of them than servers, some would get no request.
fn refuse_unvisited(servers: &[SocketAddr], counts: Counts) -> Result<(), Failure> {
    let plain = counts.plain;
    if plain == 0 || plain as usize >= servers.len() {
        return Ok(());
    }
    let unvisited = servers.get(plain as usize).map(ToString::to_string);
    Err(Failure::usage(format!(
        "--connections {plain}: nobody would ask {}, each connection goes to one server; right would \
         be at least {}",
        unvisited.unwrap_or_default(),
        servers.len()
    )))
}

/// Works it out.
pub(super) fn plan(flags: &LoadFlags, limits: &Machine) -> Result<Planned, Failure> {
    refuse_contradictions(flags)?;
    let sources = flags.machine.sources.as_ref();
    let sources = sources.map_or(&[][..], |list| &list.0);
    refuse_foreign_sources(sources)?;
    let counts = user_groups::count(flags)?;
    let Sent {
        mix,
        servers,
        timing,
        remarks,
    } = requests::prepared(flags)?;
    let (load, phases) = match timing {
        Some(timing) => replay_pace(flags, timing),
        None => pace(flags)?,
    };
    refuse_unvisited(&servers, counts)?;
    refuse_other_families(sources, &servers)?;
    let division = divide(&demand(flags, counts, &servers), limits)?;
    let (clients, machine) = (&flags.clients, &flags.machine);
    let sample = flags.expect.content_sample;
    let requests_per_connection = match clients.new_connection {
        true => Some(1),
        false => clients.requests_per_connection.map(saturating_u32),
    };
    let mut plan = Plan {
        servers,
        mix,
        load,
        phases,
        connections: counts.plain,
        requests_max: clients.requests.map(|count| count as u64),
        requests_per_connection,
        timeout_ns: nanos(clients.timeout),
        deadline_ns: clients.deadline.map(nanos),
        content_sample: sample.map_or(CONTENT_SAMPLE, saturating_u32),
        spins: flags.machine.spin,
        sources: division.sources.clone(),
        groups: Vec::new(),
        seed: machine
            .part_seed
            .or(machine.seed)
            .unwrap_or_else(random_seed),
    };
    let (user_groups, scenario) = user_groups::add(flags, counts, &mut plan)?;
    let division = Division {
        threads: threads(division.threads, &division, counts),
        ..division
    };
    refuse_spinning_in_turns(machine, &division, limits)?;
    let run = Run {
        plan,
        division,
        extra: loadline_clients::thread(user_groups),
        cpus: machine.cpus.clone().map_or_else(Vec::new, |list| list.0),
        watched: watched(flags),
        command: command::typed(),
        urls: flags.urls.iter().map(|url| mask_url(url)).collect(),
    };
    Ok(Planned {
        run,
        scenario,
        remarks,
    })
}

/// A thread that spins keeps another from its CPU.
fn refuse_spinning_in_turns(
    machine: &MachineFlags,
    division: &Division,
    limits: &Machine,
) -> Result<(), Failure> {
    let cpus = machine
        .cpus
        .as_ref()
        .map_or(limits.cpus, |list| list.0.len());
    let (processes, threads) = (division.processes, division.threads);
    if !machine.spin || u64::from(processes) * u64::from(threads) <= cpus as u64 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--spin: each thread takes a whole CPU, and there would be {} for {cpus} of them; right \
         would be --threads {}, or without --spin",
        processes * threads,
        (cpus as u32 / processes).max(1)
    )))
}

fn demand<'d>(flags: &'d LoadFlags, counts: Counts, servers: &'d [SocketAddr]) -> Demand<'d> {
    let machine = &flags.machine;
    Demand {
        clients: counts.total(),
        is_churning: flags.clients.new_connection || flags.hostile.vanishing.is_some(),
        servers,
        sources: machine.sources.as_ref().map_or(&[], |list| &list.0),
        source_per_client: flags.users.source_per_client,
        processes: machine.processes.given(),
        threads: machine.threads.given(),
        cpus: machine.cpus.as_ref().map(|list| list.0.len()),
    }
}

/// No more threads than there are connections for them.
fn threads(threads: u32, division: &Division, counts: Counts) -> u32 {
    let each = counts.plain / division.processes.max(1);
    threads.min(each.max(1))
}

fn watched(flags: &LoadFlags) -> Vec<Target> {
    let target = |name: &str, pid| Target {
        name: name.to_owned(),
        pid,
    };
    let server = flags.machine.server_pid.map(|pid| target(SERVER, pid));
    let named = flags.machine.watch.iter();
    let named = named.map(|watched| target(&watched.name, watched.pid));
    server.into_iter().chain(named).collect()
}

fn saturating_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Another one each time; short enough to be typed again.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadline_load::Loop;

    use super::*;
    use crate::flags::{Typed, defs::Command, read};

    const MACHINE: Machine = Machine {
        descriptors_max: 20_000,
        ports: 28_232,
        cpus: 8,
    };

    fn planned(options: &str) -> Run {
        let words = ["loadline", "load", "http://127.0.0.1:9/"];
        let words = words.into_iter().chain(options.split_ascii_whitespace());
        match read(words.map(Into::into)) {
            Ok(Typed::Command(Command::Load(flags))) => plan(&flags, &MACHINE).unwrap().run,
            other => panic!("{other:?}"),
        }
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
        assert_eq!(plan.groups[0].name, "clients");
        assert_eq!((division.processes, division.threads), (1, 4));
        assert_ne!(plan.seed, planned("").plan.seed);
    }

    #[test]
    fn the_papers_commands() {
        let webbench = planned("--connections 10000 --duration 5s --new-connection");
        assert_eq!(webbench.plan.requests_per_connection, Some(1));
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

    #[test]
    fn who_spins_has_a_cpu() {
        assert!(planned("--spin --threads 8").plan.spins);
        assert!(planned("--spin --cpus 1 --threads 1").plan.spins);
        assert!(!planned("--threads 9").plan.spins);
        let words = "loadline load http://127.0.0.1:9/ --spin --cpus 0,1 --threads 3";
        let Ok(Typed::Command(Command::Load(flags))) =
            read(words.split_ascii_whitespace().map(Into::into))
        else {
            panic!("{words}");
        };
        let message = plan(&flags, &MACHINE).unwrap_err().to_string();
        assert!(message.contains("3 for 2 of them"), "{message}");
    }

    #[test]
    fn no_thread_is_without_a_connection() {
        assert_eq!(planned("-c 2 --threads 8").division.threads, 2);
        let divided = planned("-c 9 --threads 8 --processes 3").division;
        assert_eq!(divided.threads, 3);
    }
}
