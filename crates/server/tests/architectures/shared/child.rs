//! A server in another process: this program again, with one test that does nothing otherwise. For
//! what is the process's, such as the limit of its descriptors.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::{Server, eventually};

/// Set for the process that plays the server, to what is asked of it.
const VARIABLE: &str = "LOADLINE_TEST_SERVER";

/// In the child, a server with this number of descriptors until it is ordered to end; nothing elsewhere.
/// `start` is given what [`ChildServer::start`] was.
pub(crate) fn as_child(descriptors: u64, start: impl FnOnce(&str) -> Server) {
    let Ok(what) = std::env::var(VARIABLE) else {
        return;
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let limit = Rlimit {
        current: Some(descriptors),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = start(&what);
    let mut out = std::io::stdout();
    writeln!(out, "\nlistening {}", server.address).unwrap();
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "open the gate" => server.handler.gate.open(),
            _ => {
                let total = server.handle.snapshot().total;
                let (open, deferred) = (total.connections, total.accepts_deferred);
                let waiting = server.handler.gate.waiting();
                writeln!(out, "counts {open} {deferred} {waiting}").unwrap();
            }
        }
    }
    assert!(server.end().is_clean());
}

/// The name of a test, to this program, in a module as `module_path!` says it.
pub(crate) fn test_in(module: &str, test: &str) -> String {
    let (_program, module) = module.split_once("::").unwrap();
    format!("{module}::{test}")
}

/// How often a thread that accepts may have logged that descriptors have run out: every 10 s.
pub(crate) fn log_lines_max(since: Instant) -> usize {
    1 + since.elapsed().as_secs() as usize / 10
}

/// The other process.
pub(crate) struct ChildServer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl ChildServer {
    /// Has the other process run `server_in_a_child` of a module, which is to call [`as_child`].
    pub(crate) fn start(module: &str, what: &str) -> Self {
        let test = test_in(module, "server_in_a_child");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&test, "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            address: ([127, 0, 0, 1], 0).into(),
        };
        server.address = server.line("listening ").parse().unwrap();
        server
    }

    /// The rest of the next line that begins with `start`.
    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it died");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn open_the_gate(&self) {
        self.send_line("open the gate");
    }

    fn send_line(&self, line: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Open connections, how often accepting was put off, and how many requests have come to the
    /// gate.
    pub(crate) fn counts(&mut self) -> [u64; 3] {
        self.send_line("count");
        let line = self.line("counts ");
        let mut counts = line.split(' ').map(|count| count.parse().unwrap());
        std::array::from_fn(|_| counts.next().unwrap())
    }

    pub(crate) fn deferred(&mut self) -> u64 {
        self.counts()[1]
    }

    /// CPU time so far, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, after) = stat.rsplit_once(") ").unwrap();
        let field = |n: usize| after.split(' ').nth(n - 3).unwrap().parse::<u64>().unwrap();
        field(14) + field(15)
    }

    /// Lets it run no more, or again.
    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        let pid = Pid::from_child(&self.child);
        if !is_stopped {
            return kill_process(pid, Signal::CONT).unwrap();
        }
        kill_process(pid, Signal::STOP).unwrap();
        eventually(|| self.has_stopped()); // each thread stops when it next enters the kernel
    }

    fn has_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut stats =
            tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        // The state comes behind the name, which is in brackets.
        stats.all(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
    }

    /// Drains it; returns what it logged.
    pub(crate) fn end(mut self) -> String {
        self.stdin = None;
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}
