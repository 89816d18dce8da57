//! What the machine allows one process and one address, and how a load is divided to fit: pure.
//!
//! A process has so many descriptors; an address has so many ephemeral ports for each destination.
//! Loopback has 16 million addresses, so there the second limit is met with more of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use loadline_sys::network::port_range;

use crate::failure::Failure;
use crate::flags::values::Auto;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Descriptors that a process may have.
    pub(crate) descriptors_max: u64,
    /// Ephemeral ports (`net.ipv4.ip_local_port_range`).
    pub(crate) ports: u64,
    /// CPUs at hand.
    pub(crate) cpus: usize,
}

impl Found {
    /// Looks around; raises the descriptor limit as far as it goes.
    pub(crate) fn look() -> Self {
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

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'w> {
    /// Clients of all kinds: each may have a connection.
    pub(crate) clients: u64,
    /// Connections are opened again and again; those just closed keep their ports for a while.
    pub(crate) is_churning: bool,
    /// Where they go.
    pub(crate) servers: &'w [SocketAddr],
    /// `--sources`.
    pub(crate) sources: &'w [IpAddr],
    /// `--source-per-client`.
    pub(crate) source_per_client: bool,
    /// `--processes`.
    pub(crate) processes: Auto<usize>,
    /// `--threads`.
    pub(crate) threads: Auto<usize>,
    /// How many CPUs `--cpus` sets aside.
    pub(crate) cpus: Option<usize>,
}

/// How a load is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Division {
    /// Processes; 1: this one does it all.
    pub(crate) processes: u32,
    /// Threads of each for the plain clients.
    pub(crate) threads: u32,
    /// Where connections come from, in turn; empty: the kernel's choice.
    pub(crate) sources: Vec<IpAddr>,
    /// What was short and what was done about it, in sentences.
    pub(crate) limits: Vec<String>,
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

/// Divides it.
pub(crate) fn divide(wanted: &Wanted<'_>, found: &Found) -> Result<Division, Failure> {
    let mut division = Division::default();
    divide_processes(wanted, found, &mut division)?;
    choose_sources(wanted, found, &mut division)?;
    Ok(division)
}

fn divide_processes(
    wanted: &Wanted<'_>,
    found: &Found,
    division: &mut Division,
) -> Result<(), Failure> {
    let limit = found.descriptors_max;
    let room = limit.saturating_sub(DESCRIPTORS_SPARE).max(1);
    let needed = wanted.clients.div_ceil(room).max(1);
    let processes = match wanted.processes.given() {
        None => needed,
        Some(given) if (given as u64) < needed => {
            return Err(Failure::usage(format!(
                "--processes {given}: {limit} descriptors for each are too few for {} clients; \
                 right would be --processes {needed} or auto",
                wanted.clients
            )));
        }
        Some(given) => given as u64,
    };
    if processes > crate::flags::load_values::PROCESSES_MAX as u64 {
        return Err(Failure::usage(format!(
            "{} clients: with {limit} descriptors for a process that needs {processes} processes; \
             right would be a higher limit (ulimit -n)",
            wanted.clients
        )));
    }
    if needed > 1 {
        division.limits.push(format!(
            "a process may have {limit} descriptors: {processes} processes share {} clients",
            wanted.clients
        ));
    }
    // What is found depends on what a process is pinned to, and so a child finds less than its
    // parent: what `--cpus` says is the same for both.
    let cpus = wanted.cpus.unwrap_or(found.cpus / 2);
    let threads = || cpus.div_ceil(processes as usize).max(1);
    division.processes = u32::try_from(processes).unwrap_or(u32::MAX);
    let threads = wanted.threads.or_else(threads);
    division.threads = u32::try_from(threads).unwrap_or(u32::MAX);
    Ok(())
}

fn choose_sources(
    wanted: &Wanted<'_>,
    found: &Found,
    division: &mut Division,
) -> Result<(), Failure> {
    let is_loopback = wanted.servers.iter().all(|server| match server.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(_) => false, // ::1 is the only one there
    });
    let usable = ((found.ports as f64 * PORT_USE_MAX) as u64).max(1);
    let servers = wanted.servers.len().max(1) as u64;
    let threads = u64::from(division.threads) * u64::from(division.processes);
    let churn = CHURN_SOURCES_PER_THREAD * threads;
    let needed = match (wanted.source_per_client, wanted.is_churning) {
        (true, _) => wanted.clients,
        (false, true) if is_loopback => churn.max(wanted.clients.div_ceil(usable)),
        (false, _) => wanted.clients.div_ceil(servers).div_ceil(usable),
    };
    if !wanted.sources.is_empty() {
        division.sources = wanted.sources.to_vec();
        return enough_sources(wanted, found, needed);
    }
    if needed <= 1 {
        return Ok(());
    }
    if !is_loopback {
        return enough_sources(wanted, found, needed);
    }
    let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
    let all = (first..).take(usize::try_from(needed).unwrap_or(usize::MAX));
    division.sources = all.map(|number| IpAddr::V4(number.into())).collect();
    let (Some(first), Some(last)) = (division.sources.first(), division.sources.last()) else {
        return Ok(());
    };
    let why = match (wanted.source_per_client, wanted.is_churning) {
        (true, _) => "each client has a source address of its own".to_owned(),
        (false, true) => format!(
            "an address has {} ports, and a closed connection keeps its port for a while",
            found.ports
        ),
        (false, false) => format!("an address has {} ports", found.ports),
    };
    division
        .limits
        .push(format!("{why}: connections come from {first} to {last}"));
    Ok(())
}

/// Refuses what the given addresses cannot carry.
fn enough_sources(wanted: &Wanted<'_>, found: &Found, needed: u64) -> Result<(), Failure> {
    let given = wanted.sources.len().max(1) as u64;
    let ports_needed = wanted.clients.div_ceil(wanted.servers.len().max(1) as u64);
    let is_short = match wanted.source_per_client {
        true => given < needed,
        false => ports_needed > given * found.ports,
    };
    if !is_short {
        return Ok(());
    }
    let right = "right would be --sources with as many addresses of this machine";
    Err(Failure::usage(match wanted.source_per_client {
        true => format!("--source-per-client: that takes {needed} source addresses; {right}"),
        false => format!(
            "{} clients: a source address has {} ports for each server, so that takes {} of them; \
             {right}",
            wanted.clients,
            found.ports,
            ports_needed.div_ceil(found.ports.max(1))
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found = Found {
        descriptors_max: 20_000,
        ports: 28_232,
        cpus: 8,
    };

    fn wanted(clients: u64, servers: &[SocketAddr]) -> Wanted<'_> {
        Wanted {
            clients,
            is_churning: false,
            servers,
            sources: &[],
            source_per_client: false,
            processes: Auto::Auto,
            threads: Auto::Auto,
            cpus: None,
        }
    }

    fn loopback() -> Vec<SocketAddr> {
        vec!["127.0.0.1:8080".parse().unwrap()]
    }

    #[test]
    fn what_fits_is_left_alone() {
        let division = divide(&wanted(10_000, &loopback()), &FOUND).unwrap();
        let expected = Division {
            processes: 1,
            threads: 4,
            ..Division::default()
        };
        assert_eq!(division, expected);
        let one_cpu = Found { cpus: 1, ..FOUND };
        let division = divide(&wanted(1, &loopback()), &one_cpu).unwrap();
        assert_eq!(division.threads, 1);
    }

    #[test]
    fn a_child_that_is_pinned_has_as_many_threads_as_its_parent_expects() {
        let servers = loopback();
        let pinned = Wanted {
            cpus: Some(3),
            processes: Auto::Given(2),
            ..wanted(100, &servers)
        };
        for cpus in [8, 3, 1] {
            let division = divide(&pinned, &Found { cpus, ..FOUND }).unwrap();
            assert_eq!((division.processes, division.threads), (2, 2));
        }
    }

    #[test]
    fn descriptors_are_met_with_processes() {
        let servers = loopback();
        let division = divide(&wanted(20_000, &servers), &FOUND).unwrap();
        assert_eq!((division.processes, division.threads), (2, 2));
        assert!(division.limits[0].contains("2 processes share 20000 clients"));
        let forced = Wanted {
            processes: Auto::Given(3),
            ..wanted(100, &servers)
        };
        let division = divide(&forced, &FOUND).unwrap();
        assert_eq!(division.processes, 3);
        assert!(division.limits.is_empty());
        let few = Wanted {
            processes: Auto::Given(1),
            ..wanted(20_000, &servers)
        };
        let message = divide(&few, &FOUND).unwrap_err().message;
        assert!(message.contains("--processes 2"), "{message}");
        let small = Found {
            descriptors_max: 256,
            ..FOUND
        };
        let message = divide(&wanted(1 << 20, &servers), &small)
            .unwrap_err()
            .message;
        assert!(message.contains("ulimit -n"), "{message}");
    }

    #[test]
    fn ports_are_met_with_addresses_on_loopback() {
        let servers = loopback();
        let division = divide(&wanted(100_000, &servers), &FOUND).unwrap();
        assert_eq!(division.sources.len(), 5);
        assert_eq!(division.sources[0].to_string(), "127.0.0.2");
        let last = division.limits.last().unwrap();
        assert!(last.contains("127.0.0.2 to 127.0.0.6"), "{last}");
        let churning = Wanted {
            is_churning: true,
            ..wanted(64, &servers)
        };
        assert_eq!(divide(&churning, &FOUND).unwrap().sources.len(), 8);
        let own = Wanted {
            source_per_client: true,
            ..wanted(300, &servers)
        };
        let division = divide(&own, &FOUND).unwrap();
        assert_eq!(division.sources.len(), 300);
        assert_eq!(division.sources[299].to_string(), "127.0.1.45");
    }

    #[test]
    fn elsewhere_the_option_is_named() {
        let servers = vec!["192.0.2.1:80".parse().unwrap()];
        let message = divide(&wanted(60_000, &servers), &FOUND)
            .unwrap_err()
            .message;
        for part in ["28232 ports", "takes 3", "--sources"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let sources: Vec<IpAddr> = ["192.0.2.7", "192.0.2.8", "192.0.2.9"]
            .map(|ip| ip.parse().unwrap())
            .to_vec();
        let with = Wanted {
            sources: &sources,
            ..wanted(60_000, &servers)
        };
        assert_eq!(divide(&with, &FOUND).unwrap().sources, sources);
        let two: Vec<SocketAddr> = vec![
            "192.0.2.1:80".parse().unwrap(),
            "192.0.2.1:81".parse().unwrap(),
        ];
        assert!(divide(&wanted(50_000, &two), &FOUND).is_ok());
        let six = vec!["[::1]:80".parse().unwrap()];
        let own = Wanted {
            source_per_client: true,
            ..wanted(2, &six)
        };
        assert!(
            divide(&own, &FOUND)
                .unwrap_err()
                .message
                .contains("--sources")
        );
    }
}
