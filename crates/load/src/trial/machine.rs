//! What the machine is, and what of it ran short during a run: read from /proc and the control
//! group, before and after.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_base::sorting::sort;
use loadline_record::{MachineRecord, NetworkRecord};
use loadline_sys::{affinity, network, usage};

/// Ticks in which /proc/stat counts: fixed at 100 a second for programs on every architecture that
/// this one runs on (`USER_HZ` in the kernel's include/asm-generic/param.h).
pub(crate) const TICKS_PER_S: f64 = 100.0;

/// A look at the machine before a run.
#[derive(Debug)]
pub struct Probe {
    root: PathBuf,
    network: NetworkRecord,
    /// When the time that counts began.
    lost_before: Lost,
    /// When it ended; `None`: it has not.
    lost_after: Option<Lost>,
}

/// CPU time that was kept from the client so far.
#[derive(Clone, Copy, Debug)]
struct Lost {
    steal_ticks: Option<u64>,
    throttled_s: Option<f64>,
}

impl Lost {
    fn read(root: &Path) -> Self {
        Self {
            steal_ticks: steal_ticks(root),
            throttled_s: throttled_s(root),
        }
    }
}

impl Probe {
    /// Looks.
    #[must_use]
    pub fn begin() -> Self {
        Self::at(Path::new("/"))
    }

    fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            network: network(root),
            lost_before: Lost::read(root),
            lost_after: None,
        }
    }

    /// The time that counts begins: CPU time that was lost before is not recorded.
    pub fn count_from_now(&mut self) {
        self.lost_before = Lost::read(&self.root);
    }

    /// It ends: nor is what is lost later.
    pub fn count_until_now(&mut self) {
        self.lost_after = Some(Lost::read(&self.root));
    }

    /// Looks again, and compares.
    #[must_use]
    pub fn end(self) -> MachineRecord {
        let root = &self.root;
        let cpuinfo = text(root, "proc/cpuinfo");
        let ports = network::port_range(root);
        let lost = self.lost_after.unwrap_or_else(|| Lost::read(root));
        let steal_ticks = lost.steal_ticks.zip(self.lost_before.steal_ticks);
        let throttled = lost.throttled_s.zip(self.lost_before.throttled_s);
        MachineRecord {
            cpu_model: cpu_model(&cpuinfo),
            cpus: count(lines_of(&cpuinfo, "processor").count()),
            cpus_usable: count(affinity::cpu_budget().cpus()),
            kernel: text(root, "proc/sys/kernel/osrelease"),
            governor: governor(root),
            congestion_control: text(root, "proc/sys/net/ipv4/tcp_congestion_control"),
            descriptors_max: Some(usage::descriptor_limit().soft).filter(|limit| *limit < u64::MAX),
            port_first: ports.map(|(first, _)| first),
            port_last: ports.map(|(_, last)| last),
            steal_s: steal_ticks
                .map(|(after, before)| after.saturating_sub(before) as f64 / TICKS_PER_S),
            throttled_s: throttled.map(|(after, before)| (after - before).max(0.0)),
            network_before: self.network,
            network_after: network(root),
        }
    }
}

fn text(root: &Path, path: &str) -> String {
    let text = fs::read_to_string(root.join(path)).unwrap_or_default();
    text.trim().to_owned()
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The values of the lines `name : value`.
fn lines_of<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = &'t str> {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// As the x86 kernel says it; others have a line for the machine or for the implementer only.
fn cpu_model(cpuinfo: &str) -> String {
    let names = ["model name", "Model", "Hardware", "cpu", "CPU implementer"];
    let found = names.iter().find_map(|name| lines_of(cpuinfo, name).next());
    found.unwrap_or_default().to_owned()
}

/// Of all CPUs, each once.
fn governor(root: &Path) -> String {
    let folder = fs::read_dir(root.join("sys/devices/system/cpu"));
    let cpus = folder.into_iter().flatten().flatten();
    let mut governors: Vec<String> = cpus
        .map(|cpu| text(&cpu.path(), "cpufreq/scaling_governor"))
        .filter(|governor| !governor.is_empty())
        .collect();
    sort(&mut governors);
    governors.dedup();
    governors.join(", ")
}

/// The eighth number of the line `cpu` in /proc/stat.
fn steal_ticks(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/stat")).ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    line.split_ascii_whitespace().nth(8)?.parse().ok()
}

fn network(root: &Path) -> NetworkRecord {
    let sockstat = text(root, "proc/net/sockstat");
    let tcp: Vec<&str> = lines_of(&sockstat, "TCP")
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let tcp_number = |name: &str| {
        let at = tcp.iter().position(|word| *word == name)?;
        tcp.get(at + 1)?.parse().ok()
    };
    let netstat = text(root, "proc/net/netstat");
    let snmp = text(root, "proc/net/snmp");
    NetworkRecord {
        time_wait: tcp_number("tw"),
        tcp_in_use: tcp_number("inuse"),
        retransmits: paired(&snmp, "Tcp", "RetransSegs"),
        listen_overflows: paired(&netstat, "TcpExt", "ListenOverflows"),
        listen_drops: paired(&netstat, "TcpExt", "ListenDrops"),
        resets_sent: paired(&snmp, "Tcp", "OutRsts"),
    }
}

/// A number of a table whose names are in one line and whose values are in the next.
fn paired(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = lines_of(text, table);
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names
        .split_ascii_whitespace()
        .position(|word| word == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// For how long the quota of the process's control group held it, or of the nearest group above that
/// can be seen and has a count.
fn throttled_s(root: &Path) -> Option<f64> {
    let folders = affinity::control_groups(root, "cpu").into_iter();
    let mut counts = folders.filter_map(|folder| throttled_in(&folder.join("cpu.stat")));
    counts.next()
}

fn throttled_in(cpu_stat: &Path) -> Option<f64> {
    let text = fs::read_to_string(cpu_stat).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let per_s = match name {
            "throttled_usec" => 1e6, // version 2
            "throttled_time" => 1e9, // version 1
            _ => return None,
        };
        Some(value.trim().parse::<f64>().ok()? / per_s)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn each_governor_is_named_once() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(governor(root.path()), "");
        for (cpu, governor) in [(0, "schedutil"), (1, "performance"), (2, "schedutil")] {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            put(root.path(), &path, &format!("{governor}\n"));
        }
        assert_eq!(governor(root.path()), "performance, schedutil");
    }

    #[test]
    fn what_changed_is_recorded() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let files = "\
== proc/cpuinfo
processor : 0
model name : Fast One

processor : 1
== proc/sys/net/ipv4/ip_local_port_range
32768 60999
== proc/sys/kernel/osrelease
6.1.0
== proc/stat
cpu  1 2 3 4 5 6 7 150 9 10
cpu0 1
== proc/net/sockstat
sockets: used 9
TCP: inuse 5 orphan 0 tw 17 alloc 2 mem 1
== proc/net/netstat
TcpExt: ListenOverflows ListenDrops
TcpExt: 3 4
IpExt: A
IpExt: 1
== proc/net/snmp
Tcp: RtoAlgorithm RetransSegs OutRsts
Tcp: 1 20 30
== proc/self/cgroup
0::/a/b
== sys/fs/cgroup/a/cpu.stat
usage_usec 5
throttled_usec 1000000
";
        for file in files.split("== ").skip(1) {
            let (path, text) = file.split_once('\n').unwrap();
            put(root, path, text);
        }
        let probe = Probe::at(root);
        put(root, "proc/stat", "cpu  1 2 3 4 5 6 7 400 9 10\n");
        let later = "usage_usec 5\nthrottled_usec 3500000\n";
        put(root, "sys/fs/cgroup/a/cpu.stat", later);
        let machine = probe.end();
        assert_eq!((machine.cpu_model.as_str(), machine.cpus), ("Fast One", 2));
        let ports = machine.port_first.zip(machine.port_last);
        assert_eq!(ports, Some((32768, 60999)));
        assert_eq!(machine.kernel, "6.1.0");
        let lost_s = (machine.steal_s, machine.throttled_s);
        assert_eq!(lost_s, (Some(2.5), Some(2.5)));
        let network = NetworkRecord {
            time_wait: Some(17),
            tcp_in_use: Some(5),
            retransmits: Some(20),
            listen_overflows: Some(3),
            listen_drops: Some(4),
            resets_sent: Some(30),
        };
        assert_eq!(machine.network_after, network);
    }

    #[test]
    fn what_is_lost_outside_of_what_counts_is_not_recorded() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/self/cgroup", "0::/a\n");
        let lose = |ticks: u64| {
            let stat = format!("cpu  1 2 3 4 5 6 7 {ticks} 9 10\n");
            put(root, "proc/stat", &stat);
            let throttled = format!("throttled_usec {}\n", ticks * 100_000);
            put(root, "sys/fs/cgroup/a/cpu.stat", &throttled);
        };
        lose(10);
        let mut probe = Probe::at(root);
        lose(100);
        probe.count_from_now();
        lose(150);
        probe.count_until_now();
        lose(900);
        let machine = probe.end();
        let lost_s = (machine.steal_s, machine.throttled_s);
        assert_eq!(lost_s, (Some(0.5), Some(5.0)));
    }

    #[test]
    fn version_1_and_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        put(root, "proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n");
        let path = "sys/fs/cgroup/cpu,cpuacct/cpu.stat";
        put(root, path, "nr_periods 1\nthrottled_time 500000000\n");
        assert_eq!(throttled_s(root), Some(0.5));
        let machine = Probe::at(&root.join("proc")).end();
        assert_eq!((machine.steal_s, machine.throttled_s), (None, None));
        assert_eq!(machine.network_after, NetworkRecord::default());
    }

    #[test]
    fn this_machine_has_the_usual() {
        let machine = Probe::begin().end();
        assert!(machine.cpus >= 1 && machine.cpus_usable >= 1);
        assert!(!machine.kernel.is_empty());
        assert!(network::port_range(Path::new("/")).is_some_and(|(first, last)| first < last));
        assert!(machine.network_after.retransmits.is_some());
    }
}
