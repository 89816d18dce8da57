//! What the machine allows one process and one address, and how a load is divided to fit: pure.
//!
//! The number of descriptors of a process is limited, and that of an address's ephemeral ports.
//! Loopback has 16 million addresses, so there the second limit is met with more of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

pub use loadline_spec::load::PROCESSES_MAX;
use loadline_sys::network::port_range;

use loadline_spec::{SpecError, ValueError};

/// The limits of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Descriptors that a process may have.
    pub descriptors_max: u64,
    /// Ephemeral ports (`net.ipv4.ip_local_port_range`).
    pub ports: u64,
    /// CPUs at hand.
    pub cpus: usize,
}

impl Machine {
    /// Reads the limits of this machine; raises the descriptor limit as far as it goes.
    #[must_use]
    pub fn read() -> Self {
        let ports = port_range(Path::new("/"))
            .and_then(|(first, last)| last.checked_sub(first))
            .map(|count| u64::from(count) + 1);
        Self {
            descriptors_max: loadline_sys::usage::raise_descriptor_limit().soft,
            ports: ports.unwrap_or(PORTS_USUAL),
            cpus: loadline_sys::affinity::cpu_budget().cpus(),
        }
    }
}

/// Linux's own range, 32768 to 60999.
const PORTS_USUAL: u64 = 28_232;

/// The clients to be divided.
#[derive(Clone, Debug, Default)]
pub struct Demand<'d> {
    /// Clients of all kinds: each may have a connection.
    pub clients: u64,
    /// Connections are opened again and again; those just closed keep their ports for a while.
    pub is_churning: bool,
    /// Where they go.
    pub servers: &'d [SocketAddr],
    /// `--sources`.
    pub sources: &'d [IpAddr],
    /// `--source-per-client`.
    pub source_per_client: bool,
    /// `--processes`; `None`: as many as are needed.
    pub processes: Option<usize>,
    /// `--threads`; `None`: as the CPUs allow.
    pub threads: Option<usize>,
    /// How many CPUs `--cpus` sets aside.
    pub cpus: Option<usize>,
}

/// How a load is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Processes; 1: this one does it all.
    pub processes: u32,
    /// Threads of each for the plain clients.
    pub threads: u32,
    /// Where connections come from, in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// What was short and what was done about it, in sentences.
    pub limits: Vec<String>,
}

/// Descriptors of a process that are not connections: standard streams, files, polling, watching.
const DESCRIPTORS_SPARE: u64 = 128;
/// Loopback addresses for each thread whose connections come and go. A thread makes up to 24,000 of
/// them a second (measured on an AMD EPYC), and a port of a connection just closed is out of use for
/// up to two (`net.ipv4.tcp_tw_reuse`, on loopback since Linux 4.19). More addresses than needed cost:
/// naming one takes two calls to the kernel for each connection.
const CHURN_SOURCES_PER_THREAD: u64 = 2;
/// The part of the ports that is planned with: near the end of them the kernel searches long.
const PORT_USE_MAX: f64 = 0.75;

/// Divides them.
///
/// # Errors
/// The machine cannot carry them as they are asked for; why, and what would be right.
pub fn divide(demand: &Demand<'_>, machine: &Machine) -> Result<Division, SpecError> {
    let mut division = Division::default();
    divide_processes(demand, machine, &mut division)?;
    choose_sources(demand, machine, &mut division)?;
    Ok(division)
}

fn divide_processes(
    demand: &Demand<'_>,
    machine: &Machine,
    division: &mut Division,
) -> Result<(), SpecError> {
    let (clients, limit) = (demand.clients, machine.descriptors_max);
    let room = limit.saturating_sub(DESCRIPTORS_SPARE).max(1);
    let needed = clients.div_ceil(room).max(1);
    let processes = match demand.processes {
        None => needed,
        Some(given) if (given as u64) < needed => {
            let problem = format!("{limit} descriptors for each are too few for {clients} clients");
            let remedy = format!("--processes {needed} or auto");
            return Err(SpecError::new("processes", problem, remedy).with_value(given));
        }
        Some(given) => given as u64,
    };
    if processes > PROCESSES_MAX as u64 {
        let problem = format!(
            "{clients} clients: with {limit} descriptors for a process that needs {processes} processes"
        );
        return Err(ValueError::new(problem, "a higher limit (ulimit -n)").into());
    }
    if needed > 1 {
        division.limits.push(format!(
            "a process may have {limit} descriptors: {processes} processes share {clients} clients"
        ));
    }
    // What is found depends on what a process is pinned to, and so a child finds less than its
    // parent: what `--cpus` says is the same for both.
    let cpus = demand.cpus.unwrap_or(machine.cpus / 2);
    let threads = || cpus.div_ceil(processes as usize).max(1);
    division.processes = u32::try_from(processes).unwrap_or(u32::MAX);
    let threads = demand.threads.unwrap_or_else(threads);
    division.threads = u32::try_from(threads).unwrap_or(u32::MAX);
    Ok(())
}

fn choose_sources(
    demand: &Demand<'_>,
    machine: &Machine,
    division: &mut Division,
) -> Result<(), SpecError> {
    let is_loopback = demand.servers.iter().all(|server| match server.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(_) => false, // ::1 is the only one there
    });
    let usable = ((machine.ports as f64 * PORT_USE_MAX) as u64).max(1);
    let servers = demand.servers.len().max(1) as u64;
    let threads = u64::from(division.threads) * u64::from(division.processes);
    let churn = CHURN_SOURCES_PER_THREAD * threads;
    let needed = match (demand.source_per_client, demand.is_churning) {
        (true, _) => demand.clients,
        (false, true) if is_loopback => churn.max(demand.clients.div_ceil(usable)),
        (false, _) => demand.clients.div_ceil(servers).div_ceil(usable),
    };
    division.sources = demand.sources.to_vec();
    if !division.sources.is_empty() || needed > 1 && !is_loopback {
        return enough_sources(demand, machine, needed);
    }
    if needed <= 1 {
        return Ok(());
    }
    let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
    let all = (first..).take(usize::try_from(needed).unwrap_or(usize::MAX));
    division.sources = all.map(|number| IpAddr::V4(number.into())).collect();
    let (Some(first), Some(last)) = (division.sources.first(), division.sources.last()) else {
        return Ok(());
    };
    let why = match (demand.source_per_client, demand.is_churning) {
        (true, _) => "each client has a source address of its own".to_owned(),
        (false, true) => format!(
            "an address has {} ports, and a closed connection keeps its port for a while",
            machine.ports
        ),
        (false, false) => format!("an address has {} ports", machine.ports),
    };
    let limit = format!("{why}: connections come from {first} to {last}");
    division.limits.push(limit);
    Ok(())
}

/// Refuses what the given addresses cannot carry.
fn enough_sources(demand: &Demand<'_>, machine: &Machine, needed: u64) -> Result<(), SpecError> {
    let given = demand.sources.len().max(1) as u64;
    let ports_needed = demand.clients.div_ceil(demand.servers.len().max(1) as u64);
    let is_short = match demand.source_per_client {
        true => given < needed,
        false => ports_needed > given * machine.ports,
    };
    if !is_short {
        return Ok(());
    }
    let right = "--sources with as many addresses of this machine";
    if demand.source_per_client {
        let problem = format!("that takes {needed} source addresses");
        return Err(SpecError::new("source-per-client", problem, right));
    }
    let problem = format!(
        "{} clients: a source address has {} ports for each server, so that takes {} of them",
        demand.clients,
        machine.ports,
        ports_needed.div_ceil(machine.ports.max(1))
    );
    Err(ValueError::new(problem, right).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        descriptors_max: 20_000,
        ports: 28_232,
        cpus: 8,
    };

    fn demand(clients: u64, servers: &[SocketAddr]) -> Demand<'_> {
        Demand {
            clients,
            servers,
            ..Demand::default()
        }
    }

    fn loopback() -> Vec<SocketAddr> {
        vec!["127.0.0.1:8080".parse().unwrap()]
    }

    #[test]
    fn what_fits_is_left_alone() {
        let division = divide(&demand(10_000, &loopback()), &MACHINE).unwrap();
        let expected = Division {
            processes: 1,
            threads: 4,
            ..Division::default()
        };
        assert_eq!(division, expected);
        let one_cpu = Machine { cpus: 1, ..MACHINE };
        let division = divide(&demand(1, &loopback()), &one_cpu).unwrap();
        assert_eq!(division.threads, 1);
    }

    #[test]
    fn a_child_that_is_pinned_has_as_many_threads_as_its_parent_expects() {
        let servers = loopback();
        let pinned = Demand {
            cpus: Some(3),
            processes: Some(2),
            ..demand(100, &servers)
        };
        for cpus in [8, 3, 1] {
            let division = divide(&pinned, &Machine { cpus, ..MACHINE }).unwrap();
            assert_eq!((division.processes, division.threads), (2, 2));
        }
    }

    /// Why a load is refused.
    fn refusal(demand: &Demand<'_>, machine: &Machine) -> String {
        divide(demand, machine).unwrap_err().to_string()
    }

    #[test]
    fn descriptors_are_met_with_processes() {
        let servers = loopback();
        let of = |clients, processes, descriptors_max| {
            let demand = Demand {
                processes,
                ..demand(clients, &servers)
            };
            let machine = Machine {
                descriptors_max,
                ..MACHINE
            };
            divide(&demand, &machine).map_err(|error| error.to_string())
        };
        let division = of(20_000, None, 20_000).unwrap();
        assert_eq!((division.processes, division.threads), (2, 2));
        assert!(division.limits[0].contains("2 processes share 20000 clients"));
        let division = of(100, Some(3), 20_000).unwrap();
        assert_eq!((division.processes, division.limits.len()), (3, 0));
        assert_eq!(
            of(20_000, Some(1), 20_000).unwrap_err(),
            "--processes 1: 20000 descriptors for each are too few for 20000 clients; right would be \
             --processes 2 or auto"
        );
        let message = of(1 << 20, None, 256).unwrap_err();
        assert!(
            message.contains("right would be a higher limit (ulimit -n)"),
            "{message}"
        );
    }

    #[test]
    fn ports_are_met_with_addresses_on_loopback() {
        let servers = loopback();
        let division = divide(&demand(100_000, &servers), &MACHINE).unwrap();
        assert_eq!(division.sources.len(), 5);
        assert_eq!(division.sources[0].to_string(), "127.0.0.2");
        let last = division.limits.last().unwrap();
        assert!(last.contains("127.0.0.2 to 127.0.0.6"), "{last}");
        let churning = Demand {
            is_churning: true,
            ..demand(64, &servers)
        };
        assert_eq!(divide(&churning, &MACHINE).unwrap().sources.len(), 8);
        let own = Demand {
            source_per_client: true,
            ..demand(300, &servers)
        };
        let division = divide(&own, &MACHINE).unwrap();
        assert_eq!(division.sources.len(), 300);
        assert_eq!(division.sources[299].to_string(), "127.0.1.45");
    }

    #[test]
    fn elsewhere_the_option_is_named() {
        let servers = vec!["192.0.2.1:80".parse().unwrap()];
        let message = refusal(&demand(60_000, &servers), &MACHINE);
        for part in ["28232 ports", "takes 3", "--sources"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let sources: Vec<IpAddr> = ["192.0.2.7", "192.0.2.8", "192.0.2.9"]
            .map(|ip| ip.parse().unwrap())
            .to_vec();
        let with = Demand {
            sources: &sources,
            ..demand(60_000, &servers)
        };
        assert_eq!(divide(&with, &MACHINE).unwrap().sources, sources);
        let two: Vec<SocketAddr> = vec![
            "192.0.2.1:80".parse().unwrap(),
            "192.0.2.1:81".parse().unwrap(),
        ];
        assert!(divide(&demand(50_000, &two), &MACHINE).is_ok());
        let six = vec!["[::1]:80".parse().unwrap()];
        let own = Demand {
            source_per_client: true,
            ..demand(2, &six)
        };
        assert!(refusal(&own, &MACHINE).contains("--sources"));
    }
}
