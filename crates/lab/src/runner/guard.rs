//! A guard: the process between the runner and a server (or client) that sees to it that nothing
//! outlives the runner, however it ends, and whatever the server starts.
//!
//! ```text
//!   runner                          guard                           server
//!     │ ── stdin: "stop" ────────►    │ ── SIGTERM, later SIGKILL ──►  │──► its processes
//!     │ ◄─ stdout: Started(PID) ───   │ ◄── how it ended ────────────  │
//!     │          Ended(HOW) ───────   │
//!     ╳ end of stdin ────────────►    │ ── SIGKILL to all that is left
//! ```
//!
//! The guard is the parent of whatever is left behind below it, so it can end servers that run
//! as several processes, also when the first of them is gone. If the guard itself is killed, the
//! kernel kills the server with it.

use std::fs::File;
use std::io::{self, BufRead as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::quota;
use super::report::{self, GuardReport};
use loadline_sys::process::{self, Left, StopSignal};
use loadline_sys::{affinity, network, usage};

/// How long after a signal the end is waited for, before whoever remains is killed.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long killed processes may take to be gone: those in the middle of writing a lot of memory back.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether they are.
const LOOK: Duration = Duration::from_millis(1);

/// What a guard looks after.
#[derive(Debug)]
pub struct Guarded<'a> {
    /// CPUs that it may use; empty: those of the guard.
    pub cpus: &'a [usize],
    /// Where its standard output and error go.
    pub log: &'a Path,
    /// A control group that it runs in, and that is removed when nothing is left of it.
    pub group: Option<&'a Path>,
    /// Its network namespace, if it is not that of this process.
    pub network: Option<&'a Path>,
    /// The user namespace that this one belongs to, if it is not that of this process.
    pub user: Option<&'a Path>,
    /// A folder that is removed likewise.
    pub remove: Option<&'a Path>,
    /// Its command line.
    pub command: &'a [String],
}

enum Event {
    Stop,
    RunnerIsGone,
    Ended(String),
}

/// Starts the process, reports on standard output, obeys standard input, and returns when nothing
/// is left of it.
///
/// # Errors
/// The process cannot be started, or this one cannot be its guard: reported on standard output too.
pub fn guard(guarded: &Guarded<'_>) -> io::Result<()> {
    let pid = match start(guarded) {
        Ok(pid) => pid,
        Err(error) => {
            remove(guarded);
            report::send(&GuardReport::Failed(error.to_string()));
            return Err(error);
        }
    };
    report::send(&GuardReport::Started(pid));
    let (sender, events) = channel();
    let ends = sender.clone();
    thread::Builder::new()
        .name("end".into())
        .spawn(move || watch(pid, &ends))?;
    thread::Builder::new()
        .name("orders".into())
        .spawn(move || listen(&sender))?;
    let mut kill_at: Option<Instant> = None;
    let how = loop {
        let rest = kill_at.map_or(GONE_WITHIN, |at| {
            at.saturating_duration_since(Instant::now())
        });
        match events.recv_timeout(rest) {
            Ok(Event::Ended(how)) => break how,
            Ok(Event::Stop) => {
                // It may have ended already: then that is the next event.
                let _ = process::signal(pid, StopSignal::Terminate);
                kill_at.get_or_insert_with(|| Instant::now() + GRACE);
            }
            Err(RecvTimeoutError::Timeout) if kill_at.is_none() => {}
            Ok(Event::RunnerIsGone) | Err(_) => {
                let _ = process::signal(pid, StopSignal::Kill);
                kill_at = None;
            }
        }
    };
    clear_away();
    remove(guarded);
    report::send(&GuardReport::Ended(how));
    Ok(())
}

fn start(guarded: &Guarded<'_>) -> io::Result<u32> {
    let named = |what: String| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    let (program, words) = guarded
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    if !guarded.cpus.is_empty() {
        affinity::pin_thread(guarded.cpus).map_err(named("its CPUs".to_owned()))?;
    }
    if let Some(path) = guarded.user {
        let namespace = File::open(path).map_err(named(path.display().to_string()))?;
        network::enter_user(&namespace).map_err(named("its user namespace".to_owned()))?;
    }
    if let Some(path) = guarded.network {
        let namespace = File::open(path).map_err(named(path.display().to_string()))?;
        network::enter(&namespace).map_err(named("its network".to_owned()))?;
    }
    process::adopt_orphans()?;
    // Servers and clients of ten thousand connections; both would raise it themselves if they knew.
    usage::raise_descriptor_limit();
    let log = File::create(guarded.log).map_err(named(guarded.log.display().to_string()))?;
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    process::die_with_parent(&mut command);
    if let Some(group) = guarded.group {
        let path = group.join("cgroup.procs");
        let members = File::options().write(true).open(&path);
        let members = members.map_err(named(path.display().to_string()))?;
        process::join_control_group(&mut command, members);
    }
    let child = command.spawn().map_err(named(program.clone()))?;
    Ok(child.id())
}

fn watch(pid: u32, sender: &Sender<Event>) {
    let how = process::wait_for_end(pid).unwrap_or_else(|error| error.to_string());
    let _ = sender.send(Event::Ended(how)); // the guard is on its way out
}

fn listen(sender: &Sender<Event>) {
    for line in io::stdin().lock().lines() {
        if line.is_err() || sender.send(Event::Stop).is_err() {
            break;
        }
    }
    let _ = sender.send(Event::RunnerIsGone);
}

/// Kills and takes whatever descends from this process: orphans become its children.
fn clear_away() {
    let until = Instant::now() + GONE_WITHIN;
    while process::reap() == Left::Running && Instant::now() < until {
        for child in process::children() {
            let _ = process::signal(child, StopSignal::Kill);
        }
        thread::sleep(LOOK);
    }
}

/// What cannot be removed stays: it is in the system's folder for temporary files.
fn remove(guarded: &Guarded<'_>) {
    if let Some(folder) = guarded.remove {
        let _ = std::fs::remove_dir_all(folder);
    }
    if let Some(group) = guarded.group {
        quota::remove(group);
    }
}
