//! A folder with a plan, and runs of it as child processes.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use loadline_lab::journal::{self, Contents, Trial};
use tempfile::TempDir;

use crate::program::{GRACE, PROGRAM, run};

/// A plan in a folder of its own, which all processes of its runs have in their command lines.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new(plan: &str) -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        bench.write(plan);
        bench
    }

    pub(crate) fn write(&self, plan: &str) {
        fs::write(self.plan(), plan).unwrap();
    }

    /// A file that the plan names, beside it.
    pub(crate) fn write_beside(&self, name: &str, text: &str) {
        fs::write(self.beside(name), text).unwrap();
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self) -> PathBuf {
        self.folder.path().join("plan.toml")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn words(&self, more: &[&str]) -> Vec<String> {
        let (plan, out) = (self.plan(), self.out());
        let words = [
            "lab",
            "run",
            plan.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let words = words.into_iter().chain(more.iter().copied());
        words.map(str::to_owned).collect()
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, more: &[&str]) -> Output {
        let words = self.words(more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&words)
    }

    /// Runs it to its end, which has to be a good one.
    pub(crate) fn complete(&self) -> Vec<Trial> {
        let output = self.run(&[]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        self.journal().trials
    }

    /// The same of a program that is said to be built from a commit.
    pub(crate) fn complete_on(&self, commit: &str) -> Vec<Trial> {
        let mut command = Command::new(PROGRAM);
        command.args(self.words(&[])).env("LOADLINE_COMMIT", commit);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        self.journal().trials
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Running {
        let mut child = Command::new(PROGRAM)
            .args(self.words(&[]))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            let mut lines = stderr.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Running { child, lines }
    }

    pub(crate) fn journal(&self) -> Contents {
        journal::read(&self.out()).unwrap()
    }

    /// Command lines of processes that have to do with this folder.
    fn processes(&self) -> Vec<String> {
        let name = self.folder.path().to_str().unwrap().to_owned();
        let of_pid = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.ok()?.path().join("cmdline");
            let bytes = fs::read(path).ok()?;
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            text.contains(&name).then_some(text)
        };
        fs::read_dir("/proc").unwrap().filter_map(of_pid).collect()
    }

    /// Waits until none of its processes is left.
    pub(crate) fn wait_until_nothing_runs(&self) {
        let until = Instant::now() + GRACE;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "left over: {left:#?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A run in progress; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// The next line that it says, if it does so in time.
    pub(crate) fn line_within(&self, time: Duration) -> Option<String> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(time); // it has ended
                None
            }
        }
    }

    /// Waits for a line that contains `part`.
    pub(crate) fn wait_for(&self, part: &str) {
        loop {
            let line = self.line_within(GRACE).unwrap();
            if line.contains(part) {
                return;
            }
        }
    }

    /// Waits for its end, and takes what it still says.
    pub(crate) fn end(&mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().unwrap();
        (status, self.lines.iter().collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Numbers of trials in the order of the journal.
pub(crate) fn numbers(trials: &[Trial]) -> Vec<u32> {
    trials.iter().map(|trial| trial.number).collect()
}
