//! What namespaces of the two sides of a trial have, whatever joins them: addresses, settings of the
//! kernel, and CPUs that receive.

use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use loadline_sys::network::open_sysfs;

/// The namespaces are private, so these addresses meet no others.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(super) const PREFIX_BITS: u8 = 24;

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

/// Where a process of one side lives, as another process of the same user can open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespaces {
    /// Its network.
    pub(super) network: PathBuf,
    /// The user namespace that the network belongs to; `None`: that of this process.
    pub(super) user: Option<PathBuf>,
}

/// Has what an interface receives worked on by these CPUs.
pub(super) fn steer(interface: &str, cpus: &[usize]) -> io::Result<()> {
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
pub(super) fn settings() -> Vec<(PathBuf, String)> {
    let read = |name: &&str| {
        let path = Path::new("/proc/sys/net").join(name);
        let value = fs::read_to_string(&path).ok()?;
        Some((path, value))
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// Sets them in the namespace of this thread, where they differ.
pub(super) fn take_over(settings: &[(PathBuf, String)]) -> io::Result<()> {
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

/// Connections that met a full queue of a listener, or were lost there, where a process lives.
pub(super) fn listen_overflows(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/netstat"));
    overflows(&text.ok()?)
}

/// The same from `/proc/net/netstat`.
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

/// Whether somebody listens on a port where a process lives. Nothing is sent.
pub(super) fn is_listened_on(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|name| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        text.is_ok_and(|text| has_listener(&text, port))
    })
}

/// The same from `/proc/net/tcp`.
fn has_listener(text: &str, port: u16) -> bool {
    /// `TCP_LISTEN` of the kernel.
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    text.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_there = fields
            .next()
            .is_some_and(|address| address.ends_with(&local));
        is_there && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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

    #[test]
    fn a_listener_is_seen_without_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listened_on(std::process::id(), port));
        let line = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n";
        assert!(has_listener(line, 8080) && !has_listener(line, 8081));
        assert!(!has_listener(&line.replace("0A", "01"), 8080));
    }
}
