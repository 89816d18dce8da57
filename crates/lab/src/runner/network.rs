//! The network between server and client: the loopback, or two network namespaces joined by a virtual
//! cable (veth).
//!
//! ```text
//!        namespace of the server              namespace of the client
//!   server ── 10.77.0.1, "server" ═══ veth ═══ "client", 10.77.0.2 ── client
//!                     │                               │
//!        receives on the server's CPUs   receives on the client's CPUs
//! ```
//!
//! On the loopback, whoever sends does the receiver's part of the kernel's work as well. Here each end
//! hands what it receives to the CPUs of its own side (receive packet steering), as two machines
//! would.
//!
//! A namespace has no name: it lives as long as this process holds it or something runs in it, and the
//! cable goes with either end. So nothing is left behind, however the run ends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loadline_sys::network::{inside, new_namespace, open_sysfs};

use super::child::find_program;
use super::error::RunnerError;
use crate::plan::{Network, Placement};

/// The namespaces are private, so these addresses meet no others.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const PREFIX_BITS: u8 = 24;

/// What namespaces have of their own and is to be as in that of this process, below `/proc/sys/net`.
const SETTINGS: [&str; 9] = [
    "core/somaxconn",
    "ipv4/ip_local_port_range",
    "ipv4/tcp_abort_on_overflow",
    "ipv4/tcp_congestion_control",
    "ipv4/tcp_max_syn_backlog",
    "ipv4/tcp_rmem",
    "ipv4/tcp_syncookies",
    "ipv4/tcp_tw_reuse",
    "ipv4/tcp_wmem",
];

/// Between the server of a trial and its client.
#[derive(Debug)]
pub(super) enum Link {
    Loopback,
    Cable(Cable),
}

/// Two namespaces and what joins them.
#[derive(Debug)]
pub(super) struct Cable {
    server: File,
    client: File,
}

/// Whether namespaces can be made and joined here.
///
/// # Errors
/// What is in the way and what would be right.
pub(crate) fn check() -> Result<(), RunnerError> {
    let cpus = loadline_sys::affinity::cpus_allowed();
    let placement = Placement {
        server: cpus.clone(),
        client: cpus,
    };
    Cable::lay(&placement).map(drop)
}

impl Link {
    pub(super) fn make(network: Network, placement: &Placement) -> Result<Self, RunnerError> {
        match network {
            Network::Loopback => Ok(Self::Loopback),
            Network::Namespaces => Cable::lay(placement).map(Self::Cable),
        }
    }

    /// Where the server listens.
    pub(super) fn server_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Cable(_) => SERVER,
        }
    }

    /// The server's namespace, as processes of the same user can open it.
    pub(super) fn of_server(&self) -> Option<PathBuf> {
        match self {
            Self::Loopback => None,
            Self::Cable(cable) => Some(path(&cable.server)),
        }
    }

    /// The client's.
    pub(super) fn of_client(&self) -> Option<PathBuf> {
        match self {
            Self::Loopback => None,
            Self::Cable(cable) => Some(path(&cable.client)),
        }
    }

    /// Does something where the client is.
    pub(super) fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Cable(cable) => inside(&cable.client, || Ok(work())),
        }
    }

    /// The kernel's counters where the server is: the client sees its own.
    pub(super) fn listen_overflows(&self) -> Option<u64> {
        let Self::Cable(cable) = self else {
            return None;
        };
        let text = inside(&cable.server, || {
            fs::read_to_string("/proc/thread-self/net/netstat")
        });
        overflows(&text.ok()?)
    }
}

impl Cable {
    fn lay(placement: &Placement) -> Result<Self, RunnerError> {
        let program = find_program("ip").ok_or_else(|| {
            "two network namespaces are joined by the program ip, which is not installed; right would \
             be to install it (iproute2)"
                .to_owned()
        })?;
        let namespace = || {
            new_namespace().map_err(|error| refusal(&format!("no namespace can be made: {error}")))
        };
        let cable = Self {
            server: namespace()?,
            client: namespace()?,
        };
        let settings = settings();
        let client = path(&cable.client).display().to_string();
        let add = format!("link add server type veth peer name client netns {client}\n");
        for (end, first, name, address, cpus) in [
            (
                &cable.server,
                add.as_str(),
                "server",
                SERVER,
                &placement.server,
            ),
            (&cable.client, "", "client", CLIENT, &placement.client),
        ] {
            let batch = format!(
                "{first}link set lo up\naddress add {address}/{PREFIX_BITS} dev {name}\n\
                 link set {name} up\n"
            );
            let made = inside(end, || {
                run_batch(&program, &batch)?;
                steer(name, cpus)?;
                take_over(&settings)
            });
            made.map_err(|error| refusal(&error.to_string()))?;
        }
        Ok(cable)
    }
}

/// As `/proc` shows it to others.
fn path(namespace: &File) -> PathBuf {
    let folder = Path::new("/proc").join(std::process::id().to_string());
    folder.join(format!("fd/{}", namespace.as_raw_fd()))
}

fn refusal(why: &str) -> String {
    format!("{why}; right would be root (CAP_SYS_ADMIN and CAP_NET_ADMIN), with veth in the kernel")
}

/// Several commands of `ip`, in the namespace of this thread.
fn run_batch(program: &Path, batch: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("it failed");
    Err(io::Error::other(format!("ip: {first}")))
}

/// Has what an interface receives worked on by these CPUs.
fn steer(interface: &str, cpus: &[usize]) -> io::Result<()> {
    let mut file = open_sysfs(&format!("class/net/{interface}/queues/rx-0/rps_cpus"))?;
    file.write_all(mask(cpus).as_bytes())
}

/// CPUs as a mask: groups of 32 in hexadecimal digits, the highest first.
fn mask(cpus: &[usize]) -> String {
    let mut groups = vec![0_u32; cpus.iter().max().map_or(1, |cpu| cpu / 32 + 1)];
    for cpu in cpus {
        groups[cpu / 32] |= 1 << (cpu % 32);
    }
    let groups = groups.iter().rev().map(|group| format!("{group:08x}"));
    groups.collect::<Vec<_>>().join(",")
}

/// The settings of this process's own namespace; those that this kernel does not have are left out.
fn settings() -> Vec<(PathBuf, String)> {
    let read = |name: &&str| {
        let path = Path::new("/proc/sys/net").join(name);
        let value = fs::read_to_string(&path).ok()?;
        Some((path, value))
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// Sets them in the namespace of this thread, where they differ.
fn take_over(settings: &[(PathBuf, String)]) -> io::Result<()> {
    for (path, value) in settings {
        let has_it = fs::read_to_string(path).is_ok_and(|now| now == *value);
        if !has_it && path.exists() {
            fs::write(path, value).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
        }
    }
    Ok(())
}

/// Connections that met a full queue of a listener, or were lost there, from `/proc/net/netstat`.
fn overflows(text: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| -> Option<u64> {
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some(value("ListenOverflows")?.max(value("ListenDrops")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        for (cpus, right) in [
            (&[0][..], "00000001"),
            (&[1, 3], "0000000a"),
            (&[], "00000000"),
            (&[0, 33], "00000002,00000001"),
            (&[64], "00000001,00000000,00000000"),
        ] {
            assert_eq!(mask(cpus), right);
        }
    }

    #[test]
    fn a_full_queue_is_read_off_the_counters() {
        let text = "TcpExt: A ListenOverflows ListenDrops B\nTcpExt: 1 7 9 2\nIpExt: A\nIpExt: 3\n";
        assert_eq!(overflows(text), Some(9));
        assert_eq!(overflows("TcpExt: A\nTcpExt: 1\n"), None);
        assert_eq!(overflows(""), None);
    }
}
