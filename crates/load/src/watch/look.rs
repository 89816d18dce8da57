//! One look at a process and its descendants in /proc.
//!
//! What is cumulative must not fall when a thread or a child ends. CPU time is taken with that
//! of children that were waited for, so it passes to the parent; context switches and run delay are
//! known of living threads only, so each thread's increase is added up.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::trial::WatchedSample;
use crate::trial::machine::TICKS_PER_S;

/// Processes below one that is watched; more are not looked at.
const PROCESSES_MAX: usize = 4096;

/// Reading the proportional set size takes the process's memory lock for as long as it walks the
/// pages: at most one part in so many of the time.
const REST_PER_PSS: u64 = 50;

/// At most once a second in any case.
const PSS_INTERVAL_NS: u64 = 900_000_000;

/// Looks at one process and its descendants.
#[derive(Debug)]
pub(super) struct Looker {
    proc: PathBuf,
    pid: u32,
    /// When the process began, in ticks: tells it from a later one of the same number.
    began_ticks: u64,
    threads: HashMap<u32, ThreadCounts>,
    cpu_before: Option<Cpu>,
    pss_due_ns: u64,
    sum: WatchedSample,
    looked_ns: Option<u64>,
}

/// What is cumulative of a living thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadCounts {
    /// The process that it belongs to.
    pid: u32,
    cpu_ns: u64,
    voluntary: u64,
    involuntary: u64,
    run_delay_ns: u64,
}

/// CPU time of living processes, and of their children that were waited for, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    user: u64,
    kernel: u64,
}

/// What is used of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    cpu_user: u64,
    cpu_kernel: u64,
    began_ticks: u64,
}

impl Looker {
    /// # Errors
    /// There is no such process.
    pub(super) fn new(proc: &Path, pid: u32) -> io::Result<Self> {
        let text = fs::read(proc.join(pid.to_string()).join("stat"))?;
        let stat = parse_stat(&text).ok_or(io::ErrorKind::InvalidData)?;
        if !stat.is_alive() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it has ended already",
            ));
        }
        Ok(Self {
            proc: proc.to_owned(),
            pid,
            began_ticks: stat.began_ticks,
            threads: HashMap::new(),
            cpu_before: None,
            pss_due_ns: 0,
            sum: WatchedSample::default(),
            looked_ns: None,
        })
    }

    /// Looks; and whether the process is still there.
    pub(super) fn look(&mut self, now_ns: u64) -> (WatchedSample, bool) {
        let (is_alive, pids) = self.tree();
        let mut cpu = Cpu::default();
        let mut threads = HashMap::with_capacity(self.threads.len());
        let mut descriptors = Some(0);
        for pid in &pids {
            let folder = self.proc.join(pid.to_string());
            if let Some(stat) = read_stat(&folder) {
                cpu.user += stat.cpu_user;
                cpu.kernel += stat.cpu_kernel;
            }
            for tid in numbers_in(&folder.join("task")) {
                let thread = folder.join("task").join(tid.to_string());
                threads.insert(tid, thread_counts(*pid, &thread));
            }
            descriptors = descriptors
                .zip(count_descriptors(&folder.join("fd")))
                .map(|(sum, count)| sum + count);
        }
        if !pids.is_empty() {
            self.add_cpu(cpu);
        }
        self.sum.processes = pids.len() as u64;
        self.sum.threads = threads.len() as u64;
        self.sum.descriptors = descriptors.filter(|_| is_alive);
        self.add_threads(threads, now_ns);
        self.sum.pss_bytes = self.pss(&pids, now_ns);
        self.looked_ns = Some(now_ns);
        (self.sum.clone(), is_alive)
    }

    /// The process and its descendants, itself first; none if it has ended for good.
    fn tree(&self) -> (bool, Vec<u32>) {
        let own = read_stat(&self.proc.join(self.pid.to_string()))
            .filter(|stat| stat.began_ticks == self.began_ticks);
        let Some(own) = own else {
            return (false, Vec::new());
        };
        let mut pids = vec![self.pid];
        let mut next = 0;
        while next < pids.len() && pids.len() < PROCESSES_MAX {
            let tasks = self.proc.join(pids[next].to_string()).join("task");
            for tid in numbers_in(&tasks) {
                let path = tasks.join(tid.to_string()).join("children");
                let text = fs::read_to_string(path).unwrap_or_default();
                pids.extend(
                    text.split_ascii_whitespace()
                        .filter_map(|pid| pid.parse::<u32>().ok()),
                );
            }
            next += 1;
        }
        (own.is_alive(), pids)
    }

    /// Where children are not waited for, their time is lost with them, and the sum falls: that
    /// counts as nothing used.
    fn add_cpu(&mut self, cpu: Cpu) {
        if let Some(before) = self.cpu_before {
            let seconds = |now: u64, before: u64| now.saturating_sub(before) as f64 / TICKS_PER_S;
            self.sum.cpu_user_s += seconds(cpu.user, before.user);
            self.sum.cpu_kernel_s += seconds(cpu.kernel, before.kernel);
        }
        self.cpu_before = Some(cpu);
    }

    fn add_threads(&mut self, threads: HashMap<u32, ThreadCounts>, now_ns: u64) {
        (self.sum.busiest_share, self.sum.busiest_thread) = (None, None);
        if let Some(looked_ns) = self.looked_ns {
            let mut busiest = (0, None);
            for (tid, now) in &threads {
                let before = self.threads.get(tid).copied().unwrap_or_default();
                // A smaller count is that of another thread with the same number.
                let is_same = now.voluntary >= before.voluntary;
                let before = if is_same {
                    before
                } else {
                    ThreadCounts::default()
                };
                let more = |now: u64, before: u64| now.saturating_sub(before);
                self.sum.switches_voluntary += more(now.voluntary, before.voluntary);
                self.sum.switches_involuntary += more(now.involuntary, before.involuntary);
                self.sum.run_delay_s += more(now.run_delay_ns, before.run_delay_ns) as f64 / 1e9;
                busiest = busiest.max((more(now.cpu_ns, before.cpu_ns), Some((now.pid, *tid))));
            }
            if let (cpu_ns, Some((pid, tid))) = busiest
                && now_ns > looked_ns
            {
                let path = self.proc.join(format!("{pid}/task/{tid}/comm"));
                let name = fs::read_to_string(path).ok();
                self.sum.busiest_thread = name.map(|name| name.trim().to_owned());
                // The kernel's clock of a thread is ahead of ours by what the look takes.
                let share = cpu_ns as f64 / (now_ns - looked_ns) as f64;
                self.sum.busiest_share = Some(share.min(1.0));
            }
        }
        self.threads = threads;
    }

    fn pss(&mut self, pids: &[u32], now_ns: u64) -> Option<u64> {
        if now_ns < self.pss_due_ns || pids.is_empty() {
            return None;
        }
        let began_ns = loadline_sys::clock::monotonic_ns();
        let mut sum = None;
        for pid in pids {
            let path = self.proc.join(pid.to_string()).join("smaps_rollup");
            let bytes = fs::read_to_string(path)
                .ok()
                .and_then(|text| pss_bytes(&text));
            sum = match (sum, bytes) {
                (Some(sum), Some(bytes)) => Some(sum + bytes),
                (sum, bytes) => sum.or(bytes), // one that has just ended has none
            };
        }
        let cost_ns = loadline_sys::clock::monotonic_ns().saturating_sub(began_ns);
        self.pss_due_ns = now_ns + PSS_INTERVAL_NS.max(cost_ns * REST_PER_PSS);
        sum
    }
}

impl Stat {
    fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

fn read_stat(folder: &Path) -> Option<Stat> {
    parse_stat(&fs::read(folder.join("stat")).ok()?)
}

/// The name, second of the fields, may hold anything, brackets and spaces included: fields are
/// counted from behind its last bracket. Their numbers are those of proc_pid_stat(5).
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&text[name_end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        cpu_user: number(14)? + number(16)?,
        cpu_kernel: number(15)? + number(17)?,
        began_ticks: number(22)?,
    })
}

fn thread_counts(pid: u32, folder: &Path) -> ThreadCounts {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
    };
    let schedstat = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
    let mut times = schedstat
        .split_ascii_whitespace()
        .map(|ns| ns.parse().unwrap_or(0));
    ThreadCounts {
        pid,
        cpu_ns: times.next().unwrap_or(0),
        voluntary: number("voluntary_ctxt_switches:").unwrap_or(0),
        involuntary: number("nonvoluntary_ctxt_switches:").unwrap_or(0),
        run_delay_ns: times.next().unwrap_or(0),
    }
}

/// Since Linux 6.2 the folder's size is their number; before that they have to be counted.
fn count_descriptors(folder: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    match fs::metadata(folder).ok()?.size() {
        0 => Some(fs::read_dir(folder).ok()?.count() as u64),
        count => Some(count),
    }
}

fn pss_bytes(smaps_rollup: &str) -> Option<u64> {
    let line = smaps_rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn numbers_in(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}
