//! The network between server and client: the loopback, two network namespaces joined by a veth pair,
//! or two that a relay joins as a slow link ([`super::relay`]).
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
//! veth pair goes with either end. So nothing is left behind, however the run ends.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loadline_sys::affinity::cpus_allowed;
use loadline_sys::network::{inside, new_namespace};

use super::child::find_program;
use super::error::RunnerError;
use super::namespaces::{
    CLIENT, Namespaces, PREFIX_BITS, SERVER, listen_overflows, settings, steer, take_over,
};
use super::relayed::Relayed;
use crate::cells::Cell;
use crate::journal::LinkFacts;
use crate::link::LinkSpec;
use crate::plan::{Network, Placement};

/// Between the server of a trial and its client.
#[derive(Debug)]
pub(super) enum Link {
    Loopback,
    Veth(Veth),
    /// A slow network.
    Relayed(Box<Relayed>),
}

/// Two namespaces and the veth pair that joins them.
#[derive(Debug)]
pub(super) struct Veth {
    server: File,
    client: File,
}

/// Whether namespaces can be made and joined here.
///
/// # Errors
/// What is in the way and what would be right.
pub fn check() -> Result<(), RunnerError> {
    Veth::create(&Placement::shared(&cpus_allowed())).map(drop)
}

/// Whether links can be made here.
///
/// # Errors
/// What is in the way and what would be right.
pub(crate) fn check_link() -> Result<(), RunnerError> {
    let placement = Placement::shared(&cpus_allowed());
    Link::relayed(&LinkSpec::default(), 0, &placement).map(drop)
}

impl Link {
    /// What a cell wants. The seed decides what a slow network loses.
    pub(super) fn make(cell: &Cell, seed: u64) -> Result<Self, RunnerError> {
        match (&cell.link, cell.network) {
            (Some(link), _) => Self::relayed(link, seed, &cell.placement),
            (None, Network::Loopback) => Ok(Self::Loopback),
            (None, Network::Namespaces) => Veth::create(&cell.placement).map(Self::Veth),
        }
    }

    fn relayed(link: &LinkSpec, seed: u64, placement: &Placement) -> Result<Self, RunnerError> {
        let relayed = Relayed::start(link, seed, placement);
        let relayed = relayed.map_err(|why| {
            format!(
                "{why}; right would be a /dev/net/tun that may be opened, and root or user namespaces for \
                 all users"
            )
        })?;
        Ok(Self::Relayed(Box::new(relayed)))
    }

    /// What it is called in the journal.
    pub(super) fn name(cell: &Cell) -> &'static str {
        match cell.link {
            Some(_) => "relay",
            None => cell.network.name(),
        }
    }

    /// Where the server listens.
    pub(super) fn server_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth(_) | Self::Relayed(_) => SERVER,
        }
    }

    /// Where the server runs.
    pub(super) fn of_server(&self) -> Option<Namespaces> {
        match self {
            Self::Loopback => None,
            Self::Veth(veth) => Some(at(&veth.server)),
            Self::Relayed(relayed) => Some(relayed.server.clone()),
        }
    }

    /// Where the client does.
    pub(super) fn of_client(&self) -> Option<Namespaces> {
        match self {
            Self::Loopback => None,
            Self::Veth(veth) => Some(at(&veth.client)),
            Self::Relayed(relayed) => Some(relayed.client.clone()),
        }
    }

    /// Where the server's first answer is checked: a slow network would take its time, and lose some.
    pub(super) fn of_check(&self) -> Option<Namespaces> {
        match self {
            Self::Relayed(_) => self.of_server(),
            Self::Loopback | Self::Veth(_) => self.of_client(),
        }
    }

    /// Does something where the client is.
    pub(super) fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match self {
            Self::Loopback => Ok(work()),
            Self::Veth(veth) => inside(&veth.client, || Ok(work())),
            // A process of several threads cannot enter the user namespace that it may belong to.
            Self::Relayed(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The kernel's counters where the server is, a process of this number: the client sees its own.
    pub(super) fn listen_overflows(&self, server_pid: u32) -> Option<u64> {
        match self {
            Self::Loopback => None,
            Self::Veth(_) | Self::Relayed(_) => listen_overflows(server_pid),
        }
    }

    /// What a slow network has carried; `None`: it is none.
    pub(super) fn end(self) -> Option<Result<LinkFacts, String>> {
        match self {
            Self::Loopback | Self::Veth(_) => None,
            Self::Relayed(relayed) => Some(relayed.stop()),
        }
    }
}

impl Veth {
    fn create(placement: &Placement) -> Result<Self, RunnerError> {
        let program = find_program("ip").ok_or_else(|| {
            "two network namespaces are joined by the program ip, which is not installed; right would \
             be to install it (iproute2)"
                .to_owned()
        })?;
        let namespace = || {
            new_namespace().map_err(|error| refusal(&format!("no namespace can be made: {error}")))
        };
        let veth = Self {
            server: namespace()?,
            client: namespace()?,
        };
        let settings = settings();
        let client = path(&veth.client);
        let add = format!(
            "link add server type veth peer name client netns {}\n",
            client.display()
        );
        let set_up = |end: &File, first: &str, name: &str, address: Ipv4Addr, cpus: &[usize]| {
            let batch = format!(
                "{first}link set lo up\naddress add {address}/{PREFIX_BITS} dev {name}\n\
                 link set {name} up\n"
            );
            let made = inside(end, || {
                run_batch(&program, &batch)?;
                steer(name, cpus)?;
                take_over(&settings)
            });
            made.map_err(|error| refusal(&error.to_string()))
        };
        set_up(&veth.server, &add, "server", SERVER, &placement.server)?;
        set_up(&veth.client, "", "client", CLIENT, &placement.client)?;
        Ok(veth)
    }
}

fn at(namespace: &File) -> Namespaces {
    Namespaces {
        network: path(namespace),
        user: None,
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
