//! A server or client under its guard, as the runner sees it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use loadline_record::from_json;

use super::error::RunnerError;
use super::guard::GRACE;
use super::namespaces::Namespaces;
use super::report::GuardReport;
use crate::cells::cpus_text;

/// This very program, also if its file has been replaced meanwhile.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// How long a guard may take to start, and beyond its grace to end, on a machine that is busy.
const GUARD_GRACE: Duration = Duration::from_secs(20);

/// Where a process runs, and what goes with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds<'a> {
    /// CPUs that it may use; empty: those of this process.
    pub(super) cpus: &'a [usize],
    /// A control group that it runs in, and that is removed with its end.
    pub(super) group: Option<&'a Path>,
    /// Its network, if it is not that of this process.
    pub(super) network: Option<&'a Namespaces>,
    /// A folder that is removed with its end.
    pub(super) remove: Option<&'a Path>,
}

impl<'a> Bounds<'a> {
    /// These CPUs and nothing else.
    pub(super) fn cpus(cpus: &'a [usize]) -> Self {
        Self {
            cpus,
            ..Self::default()
        }
    }
}

/// Ended when dropped, with everything that it has started.
#[derive(Debug)]
pub(super) struct Guarded {
    guard: Child,
    orders: Option<ChildStdin>,
    reports: Receiver<Result<GuardReport, String>>,
    pid: u32,
    ended: Option<String>,
}

impl Guarded {
    /// Starts a command within its bounds; its output goes to `log`.
    pub(super) fn start(
        command: &[String],
        bounds: &Bounds<'_>,
        log: &Path,
    ) -> Result<Self, RunnerError> {
        let mut guard = Command::new(THIS_PROGRAM);
        guard.args(["lab", "guard", "--log"]).arg(log);
        let paths = [
            ("--remove", bounds.remove),
            ("--group", bounds.group),
            ("--network", bounds.network.map(|it| it.network.as_path())),
            ("--user", bounds.network.and_then(|it| it.user.as_deref())),
        ];
        for (option, path) in paths {
            if let Some(path) = path {
                guard.arg(option).arg(path);
            }
        }
        if !bounds.cpus.is_empty() {
            guard.args(["--cpus", &cpus_text(bounds.cpus)]);
        }
        guard
            .arg("--")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0); // an interruption from the terminal goes to the runner alone
        let mut guard = guard
            .spawn()
            .map_err(|error| format!("its guard cannot be started: {error}"))?;
        let orders = guard.stdin.take();
        let (sender, reports) = channel();
        if let Some(out) = guard.stdout.take() {
            let listen = move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let report = from_json(line.as_bytes());
                    let report =
                        report.map_err(|error| format!("its guard reports {line:?}: {error}"));
                    if sender.send(report).is_err() {
                        break; // the receiver is gone
                    }
                }
            };
            let thread = thread::Builder::new().name("guard".into());
            thread
                .spawn(listen)
                .map_err(|error| format!("a thread cannot be started: {error}"))?;
        }
        let mut guarded = Self {
            guard,
            orders,
            reports,
            pid: 0,
            ended: None,
        };
        guarded.pid = guarded.wait_for_start()?;
        Ok(guarded)
    }

    fn wait_for_start(&self) -> Result<u32, RunnerError> {
        let report = self.reports.recv_timeout(GUARD_GRACE);
        let report = report.map_err(|_| "its guard does not report".to_owned())?;
        match report? {
            GuardReport::Started(pid) => Ok(pid),
            GuardReport::Failed(why) | GuardReport::Ended(why) => Err(why.into()),
        }
    }

    /// The process itself, not its guard.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it does so by then: "exit status 1".
    pub(super) fn ended_by(&mut self, until: Instant) -> Option<&str> {
        if self.ended.is_none() {
            let rest = until.saturating_duration_since(Instant::now());
            self.ended = match self.reports.recv_timeout(rest) {
                Ok(Ok(GuardReport::Ended(how) | GuardReport::Failed(how)) | Err(how)) => Some(how),
                Ok(Ok(GuardReport::Started(_))) => {
                    Some("its guard reports twice that it started".to_owned())
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some("its guard was killed".to_owned()),
            };
        }
        self.ended.as_deref()
    }

    /// Asks it to end, and kills it if it does not. Returns how it ended.
    pub(super) fn stop(mut self) -> String {
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(b"stop\n"); // a guard that is gone has said so
        }
        let how = self.ended_by(Instant::now() + GRACE + GUARD_GRACE);
        how.unwrap_or("its guard does not end").to_owned()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.orders.take()); // the guard kills what is left, if something is
        let until = Instant::now() + GUARD_GRACE;
        while Instant::now() < until {
            match self.guard.try_wait() {
                Ok(Some(_)) | Err(_) => return,
                Ok(None) => thread::sleep(Duration::from_millis(1)),
            }
        }
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// The last line of a log that says something, for a reason: what a program says before it gives up.
pub(super) fn last_words(log: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 4096;
    const CHARACTERS_MAX: usize = 300;
    let text = tail(log, BYTES_MAX).ok()?;
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let visible = line.trim().chars().filter(|c| !c.is_control());
    Some(visible.take(CHARACTERS_MAX).collect())
}

fn tail(path: &Path, bytes_max: u64) -> io::Result<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a program is there: as a path, or on the search path.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // Servers are often where only root's search path leads.
    let more = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths)
        .chain(more)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}
