//! One look at a process and its descendants in /proc.
//!
//! What is cumulative must not fall when a thread or a child ends, so increases are added up: of each
//! process in CPU time, and of each thread in context switches and run delay. The CPU time of a child
//! that was waited for passes to its parent.
//!
//! Reading about a thread takes some 30 us. What is known of a process as a whole is read at each
//! look; of the threads, no more at a time than leaves the client its CPU (`Haste`).

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loadline_record::WatchedSample;

use crate::trial::machine::TICKS_PER_S;

/// Processes below one that is watched; more are not looked at.
const PROCESSES_MAX: usize = 4096;

/// Threads that are read about before the next rest: a tenth of a millisecond.
const THREADS_AT_ONCE: usize = 4;
/// A rest between them, so that a hundredth of a CPU is used: one request in a hundred may be sent
/// late because of it, and p99 holds.
const REST: Duration = Duration::from_millis(10);
/// Threads of one look, which then takes 0.6 s; the next look goes on with the others.
const THREADS_PER_LOOK: usize = 256;

/// How many threads a look reads about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// All, at once: before and after the load.
    All,
    /// Some, with rests: while there is load.
    Some,
}

/// Reading the proportional set size takes the process's memory lock for as long as it walks the
/// pages: at most this part of the time.
const REST_PER_PSS: u64 = 200;

/// At most once a second in any case.
const PSS_INTERVAL_NS: u64 = 900_000_000;

/// Looks at one process and its descendants.
#[derive(Debug)]
pub(super) struct Looker {
    proc: PathBuf,
    pid: u32,
    /// When the process began, in ticks: a later process of the same number has another.
    began_ticks: u64,
    /// The process and its descendants, as far as they have been found.
    pids: Vec<u32>,
    threads: HashMap<u32, ThreadCounts>,
    /// Process and thread of those that this round has yet to read about.
    left: VecDeque<(u32, u32)>,
    round: u64,
    /// Of each process, as the last look saw it; `None`: there was none.
    cpu_before: Option<HashMap<u32, Cpu>>,
    pss_due_ns: u64,
    sum: WatchedSample,
}

/// What is cumulative of a living thread.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadCounts {
    /// When it was read.
    at_ns: u64,
    /// The last round in which it was there.
    round: u64,
    cpu_ns: u64,
    voluntary: u64,
    involuntary: u64,
    run_delay_ns: u64,
}

/// The thread that ran most since the last look at it.
#[derive(Clone, Copy, Debug, Default)]
struct Busiest {
    /// Of the time, the part for which it ran.
    share: f64,
    /// The part for which it could have run and was not let.
    delay_share: f64,
    /// Its process and itself.
    thread: Option<(u32, u32)>,
}

/// CPU time in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    kernel: u64,
}

impl Ticks {
    fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            kernel: self.kernel + other.kernel,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            kernel: self.kernel.saturating_sub(before.kernel),
        }
    }
}

/// CPU time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cpu {
    parent: u32,
    own: Ticks,
    /// Of its children that were waited for, and of theirs.
    children: Ticks,
    /// What was counted of children that were gone at this look, and has not come to `children` yet: a look
    /// may read about the parent just before it waits for them. At the next look it is not counted again.
    expected: Ticks,
}

/// What is used of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    cpu: Cpu,
    threads: u64,
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
            pids: vec![pid],
            threads: HashMap::new(),
            left: VecDeque::new(),
            round: 0,
            cpu_before: None,
            pss_due_ns: 0,
            sum: WatchedSample::default(),
        })
    }

    /// Looks; and whether the process is still there.
    pub(super) fn look(&mut self, now_ns: u64, haste: Haste) -> (WatchedSample, bool) {
        let own = read_stat(&self.proc.join(self.pid.to_string()))
            .filter(|stat| stat.began_ticks == self.began_ticks);
        if own.is_none() {
            self.pids.clear();
            self.left.clear();
        }
        let is_alive = own.is_some_and(|stat| stat.is_alive());
        if haste == Haste::All {
            // New processes are known before they are asked about.
            self.look_at_threads(haste);
        }
        self.look_at_processes(is_alive);
        self.sum.pss_bytes = self.pss(now_ns);
        if haste == Haste::Some {
            self.look_at_threads(haste);
        }
        (self.sum.clone(), is_alive)
    }

    fn look_at_processes(&mut self, is_alive: bool) {
        let (mut cpu, mut threads, mut descriptors) = (HashMap::new(), 0, Some(0));
        let mut fullest = 0.0_f64;
        self.pids.retain(|pid| {
            let folder = self.proc.join(pid.to_string());
            let Some(stat) = read_stat(&folder) else {
                return false;
            };
            cpu.insert(*pid, stat.cpu);
            threads += stat.threads;
            let open = count_descriptors(&folder.join("fd"));
            descriptors = descriptors.zip(open).map(|(sum, count)| sum + count);
            if let (Some(open), Some(limit)) = (open, descriptor_limit(&folder)) {
                fullest = fullest.max(open as f64 / limit as f64);
            }
            true
        });
        if !self.pids.is_empty() {
            self.add_cpu(cpu);
        }
        self.sum.processes = self.pids.len() as u64;
        self.sum.threads = threads;
        self.sum.descriptors = descriptors.filter(|_| is_alive);
        self.sum.descriptors_share = Some(fullest).filter(|share| is_alive && *share > 0.0);
    }

    /// Goes on with the round of threads, or begins one.
    fn look_at_threads(&mut self, haste: Haste) {
        if haste == Haste::All || self.left.is_empty() {
            self.begin_round();
        }
        let mut busiest = Busiest::default();
        let most = match haste {
            Haste::All => usize::MAX,
            Haste::Some => THREADS_PER_LOOK,
        };
        let mut count = 0;
        while count < most
            && let Some((pid, tid)) = self.left.pop_front()
        {
            self.look_at_thread(pid, tid, &mut busiest);
            count += 1;
            if haste == Haste::Some && count % THREADS_AT_ONCE == 0 && !self.left.is_empty() {
                std::thread::sleep(REST);
            }
        }
        if self.left.is_empty() {
            let round = self.round;
            self.threads.retain(|_, counts| counts.round == round);
        }
        let name = busiest.thread.and_then(|(pid, tid)| {
            let path = self.proc.join(format!("{pid}/task/{tid}/comm"));
            fs::read_to_string(path).ok()
        });
        let share = |share: f64| busiest.thread.map(|_| share.min(1.0));
        self.sum.busiest_share = share(busiest.share);
        self.sum.busiest_delay_share = share(busiest.delay_share);
        self.sum.busiest_thread = name.map(|name| name.trim().to_owned());
    }

    fn begin_round(&mut self) {
        self.left.clear();
        self.round += 1;
        for pid in self.pids.clone() {
            self.enlist(pid);
        }
    }

    fn enlist(&mut self, pid: u32) {
        let tasks = self.proc.join(pid.to_string()).join("task");
        let tids = numbers_in(&tasks).into_iter();
        self.left.extend(tids.map(|tid| (pid, tid)));
    }

    /// Reads about a thread, and about the children that it has started.
    fn look_at_thread(&mut self, pid: u32, tid: u32, busiest: &mut Busiest) {
        let folder = self.proc.join(format!("{pid}/task/{tid}"));
        let children = fs::read_to_string(folder.join("children")).unwrap_or_default();
        for child in children.split_ascii_whitespace() {
            if let Ok(child) = child.parse::<u32>()
                && self.pids.len() < PROCESSES_MAX
                && !self.pids.contains(&child)
            {
                self.pids.push(child);
                self.enlist(child);
            }
        }
        let now = ThreadCounts {
            at_ns: loadline_sys::clock::monotonic_ns(),
            round: self.round,
            ..thread_counts(&folder)
        };
        let is_first = self.round == 1;
        let before = self.threads.insert(tid, now);
        if is_first {
            return; // what it did before it was watched is not ours
        }
        // A smaller count is that of another thread with the same number.
        let before = before.filter(|before| now.voluntary >= before.voluntary);
        let since = before.unwrap_or_default();
        let more = |now: u64, before: u64| now.saturating_sub(before);
        self.sum.switches_voluntary += more(now.voluntary, since.voluntary);
        self.sum.switches_involuntary += more(now.involuntary, since.involuntary);
        let delay_ns = more(now.run_delay_ns, since.run_delay_ns) as f64;
        self.sum.run_delay_s += delay_ns / 1e9;
        if let Some(before) = before
            && now.at_ns > before.at_ns
        {
            // The kernel's clock of a thread is ahead of ours by what the look takes.
            let cpu_ns = more(now.cpu_ns, before.cpu_ns) as f64;
            let between_ns = (now.at_ns - before.at_ns) as f64;
            if cpu_ns / between_ns >= busiest.share {
                *busiest = Busiest {
                    share: cpu_ns / between_ns,
                    delay_share: delay_ns / between_ns,
                    thread: Some((pid, tid)),
                };
            }
        }
    }

    /// Where children are not waited for, what they did since the last look is lost with them.
    fn add_cpu(&mut self, mut now: HashMap<u32, Cpu>) {
        if let Some(before) = &self.cpu_before {
            let inherited = inherited(before, &now);
            let mut more = Ticks::default();
            for (pid, cpu) in &mut now {
                let since = before.get(pid).copied().unwrap_or_default();
                let known = inherited.get(pid).copied().unwrap_or_default();
                let grown = cpu.children.since(since.children.plus(since.expected));
                more = more.plus(cpu.own.since(since.own));
                more = more.plus(grown.since(known));
                cpu.expected = known.since(grown);
            }
            self.sum.cpu_user_s += more.user as f64 / TICKS_PER_S;
            self.sum.cpu_kernel_s += more.kernel as f64 / TICKS_PER_S;
        }
        self.cpu_before = Some(now);
    }

    fn pss(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.pss_due_ns || self.pids.is_empty() {
            return None;
        }
        let began_ns = loadline_sys::clock::monotonic_ns();
        let found = self.pids.iter().filter_map(|pid| {
            let path = self.proc.join(pid.to_string()).join("smaps_rollup");
            pss_bytes(&fs::read_to_string(path).ok()?) // one that has just ended has none
        });
        let sum = found.reduce(|sum, bytes| sum + bytes);
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

/// What was counted of processes that are gone, by the nearest ancestor that is still there: if they were
/// waited for, its children's time has grown by that, too.
fn inherited(before: &HashMap<u32, Cpu>, now: &HashMap<u32, Cpu>) -> HashMap<u32, Ticks> {
    let mut inherited: HashMap<u32, Ticks> = HashMap::new();
    for (_, gone) in before.iter().filter(|(pid, _)| !now.contains_key(*pid)) {
        let parent_of = |pid: &u32| before.get(pid).map(|cpu| cpu.parent);
        let mut ancestors = successors(Some(gone.parent), parent_of).take(before.len());
        if let Some(heir) = ancestors.find(|pid| now.contains_key(pid)) {
            let known = inherited.entry(heir).or_default();
            let counted = gone.own.plus(gone.children).plus(gone.expected);
            *known = known.plus(counted);
        }
    }
    inherited
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
        cpu: Cpu {
            parent: u32::try_from(number(4)?).ok()?,
            own: Ticks {
                user: number(14)?,
                kernel: number(15)?,
            },
            children: Ticks {
                user: number(16)?,
                kernel: number(17)?,
            },
            expected: Ticks::default(),
        },
        threads: number(20)?,
        began_ticks: number(22)?,
    })
}

fn thread_counts(folder: &Path) -> ThreadCounts {
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
        cpu_ns: times.next().unwrap_or(0),
        voluntary: number("voluntary_ctxt_switches:").unwrap_or(0),
        involuntary: number("nonvoluntary_ctxt_switches:").unwrap_or(0),
        run_delay_ns: times.next().unwrap_or(0),
        ..ThreadCounts::default()
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

/// How many descriptors a process may have, as it is at present: many raise it at their start. `None`:
/// any number.
fn descriptor_limit(folder: &Path) -> Option<u64> {
    let limits = fs::read_to_string(folder.join("limits")).ok()?;
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    let soft: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    (soft > 0).then_some(soft)
}

fn pss_bytes(smaps_rollup: &str) -> Option<u64> {
    let mut lines = smaps_rollup.lines();
    let line = lines.find_map(|line| line.strip_prefix("Pss:"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(proc: &Path, path: &str, text: &str) {
        let path = proc.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process in a made-up /proc, with the CPU times of itself and of its children, in ticks.
    fn put_process(proc: &Path, (pid, parent): (u32, u32), [own, children]: [u64; 2]) {
        let text = format!(
            "{pid} (a) server) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 77 0"
        );
        put(proc, &format!("{pid}/stat"), &text);
    }

    /// Whose children these are.
    fn put_children(proc: &Path, pid: u32, children: &str) {
        put(proc, &format!("{pid}/task/{pid}/children"), children);
    }

    /// What a look adds after processes are gone whose numbers these are.
    fn more_s(proc: &Path, gone: &[u32], then: impl FnOnce()) -> f64 {
        let mut looker = Looker::new(proc, 1).unwrap();
        let (first, _) = looker.look(0, Haste::All);
        assert_eq!(first.cpu_user_s, 0.0, "that was before");
        for pid in gone {
            fs::remove_dir_all(proc.join(pid.to_string())).unwrap();
        }
        then();
        let (last, _) = looker.look(1, Haste::All);
        assert_eq!(first.processes - last.processes, gone.len() as u64);
        last.cpu_user_s
    }

    #[test]
    fn what_a_child_did_counts_once_whether_it_is_waited_for_or_not() {
        for passed in [0, 1000] {
            let proc = tempfile::tempdir().unwrap();
            let proc = proc.path();
            put_children(proc, 1, "2");
            put_process(proc, (1, 0), [500, 70]);
            put_process(proc, (2, 1), [1000, 0]);
            let then = || put_process(proc, (1, 0), [600, 70 + passed]);
            let more_s = more_s(proc, &[2], then);
            assert!((more_s - 1.0).abs() < 1e-9, "{passed}: {more_s}");
        }
    }

    #[test]
    fn what_grandchildren_did_passes_to_who_is_left() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        put_children(proc, 1, "2 4");
        put_children(proc, 2, "3");
        put_process(proc, (1, 0), [500, 0]);
        put_process(proc, (2, 1), [300, 40]);
        put_process(proc, (3, 2), [200, 0]);
        put_process(proc, (4, 1), [0, 0]);
        // 50 since the last look, and another 100 of a sibling that goes on.
        let more_s = more_s(proc, &[2, 3], || {
            put_process(proc, (1, 0), [500, 540 + 50]);
            put_process(proc, (4, 1), [100, 0]);
        });
        assert!((more_s - 1.5).abs() < 1e-9, "{more_s}");
    }

    /// A look reads about the parent, the parent waits for its child, and then the look finds no child.
    #[test]
    fn what_a_child_did_that_ends_within_a_look_counts_once() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        put_children(proc, 1, "2");
        put_process(proc, (1, 0), [500, 70]);
        put_process(proc, (2, 1), [1000, 0]);
        let mut looker = Looker::new(proc, 1).unwrap();
        looker.look(0, Haste::All);
        fs::remove_dir_all(proc.join("2")).unwrap();
        put_children(proc, 1, "");
        looker.look(1, Haste::All);
        // What comes later is of children that no look has seen.
        for (now_ns, children, expected_s) in [(2, 1070, 0.0), (3, 2070, 10.0)] {
            put_process(proc, (1, 0), [500, children]);
            let (sample, _) = looker.look(now_ns, Haste::All);
            let off_s = sample.cpu_user_s - expected_s;
            assert!(off_s.abs() < 1e-9, "{children}: {}", sample.cpu_user_s);
        }
    }

    #[test]
    fn descriptors_are_compared_with_the_limit_of_the_process_that_has_them() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        let mut all = 0;
        // A quarter, a half, and any number.
        for (pid, times) in [(1, Some(4)), (2, Some(2)), (3, None)] {
            put_process(proc, (pid, 1), [0, 0]);
            put(proc, &format!("{pid}/fd/0"), "");
            let open = count_descriptors(&proc.join(format!("{pid}/fd"))).unwrap();
            all += open;
            let soft = times.map_or_else(
                || "unlimited".to_owned(),
                |times: u64| (times * open).to_string(),
            );
            let limits = format!(
                "Limit      Soft Limit  Hard Limit  Units\n\
                 Max processes  1  1  processes\n\
                 Max open files  {soft}  999999999  files\n"
            );
            put(proc, &format!("{pid}/limits"), &limits);
        }
        put_children(proc, 1, "2 3");
        let mut looker = Looker::new(proc, 1).unwrap();
        let (sample, _) = looker.look(0, Haste::All);
        assert_eq!((sample.processes, sample.descriptors), (3, Some(all)));
        assert_eq!(sample.descriptors_share, Some(0.5));
        for pid in 1..=3 {
            fs::remove_file(proc.join(format!("{pid}/limits"))).unwrap();
        }
        let (sample, _) = looker.look(1, Haste::All);
        assert_eq!(sample.descriptors_share, None);
    }
}
