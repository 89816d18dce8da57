//! The descriptor limit: a server neither spins nor dies there.
//!
//! The limit is the process's, so the server runs in a child: this test binary again, with one test
//! that is otherwise ignored.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use loadline_server::{Architecture, ServerOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::util::{Client, eventually, options, start};

/// Descriptors of the child: some 12 are its own.
const DESCRIPTORS: u64 = 40;
/// More clients than that.
const CLIENTS: usize = 60;

#[test]
#[ignore = "the server's side of the tests below"]
fn server_in_a_child() {
    let Ok(name) = std::env::var("TEST_ARCHITECTURE") else {
        return;
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let server = start(ServerOptions {
        threads: 100,
        ..options(Architecture::parse(&name).unwrap())
    });
    let mut out = std::io::stdout();
    writeln!(out, "\nlistening {}", server.address).unwrap();
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "open the gate" => server.handler.gate.open(),
            _ => {
                let total = server.handle.snapshot().total;
                let (open, deferred) = (total.connections, total.accepts_deferred);
                writeln!(out, "counts {open} {deferred}").unwrap();
            }
        }
    }
    let ending = server.end();
    writeln!(out, "ended {}", ending.connections_cut).unwrap();
}

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(architecture: Architecture) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["descriptors::server_in_a_child", "--exact", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .env("TEST_ARCHITECTURE", architecture.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self {
            child,
            stdin,
            stdout,
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
                return rest.trim_end().to_string();
            }
        }
    }

    fn tell(&self, line: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Open connections, and how often accepting was put off.
    fn counts(&mut self) -> (usize, u64) {
        self.tell("count");
        let counts = self.line("counts ");
        let (open, deferred) = counts.split_once(' ').unwrap();
        (open.parse().unwrap(), deferred.parse().unwrap())
    }

    /// CPU time so far, in ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, after) = stat.rsplit_once(") ").unwrap();
        let field = |n: usize| after.split(' ').nth(n - 3).unwrap().parse::<u64>().unwrap();
        field(14) + field(15)
    }

    /// Drains it; returns how many connections were cut and what it logged.
    fn end(mut self) -> (String, String) {
        self.stdin = None;
        let cut = self.line("ended ");
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success());
        (cut, String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn a_pool_at_the_limit_waits_without_spinning_and_then_serves_everybody() {
    let mut server = Server::start(Architecture::ThreadPool);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.ask("/");
            client
        })
        .collect();
    eventually(|| server.counts().1 >= 2);
    let (ticks, (open, deferred)) = (server.cpu_ticks(), server.counts());
    std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
    assert!(server.cpu_ticks() - ticks <= 10, "it spins");
    assert_eq!(server.counts().0, open);
    // From 10 ms on, doubling to half a second.
    assert!((1..=8).contains(&(server.counts().1 - deferred)));
    for client in clients.drain(..) {
        let mut client = client;
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let (cut, log) = server.end();
    assert_eq!(cut, "0");
    assert_eq!(log.matches("out of descriptors").count(), 1, "{log}");
}

#[test]
fn threads_at_the_limit_let_the_oldest_idle_connection_go() {
    let mut server = Server::start(Architecture::ThreadPerConnection);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(server.address);
        assert_eq!(client.get("/").status, 200);
        clients.push(client);
    }
    assert!(server.counts().1 >= 1);
    assert!(clients[0].is_closed());
    assert_eq!(clients[CLIENTS - 1].get("/").status, 200);
    drop(clients);
    assert_eq!(server.end().0, "0");
}

#[test]
fn threads_at_the_limit_with_nobody_idle_refuse_and_do_not_spin() {
    let mut server = Server::start(Architecture::ThreadPerConnection);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.ask("/gate");
            client
        })
        .collect();
    eventually(|| server.counts().1 >= 2);
    let ticks = server.cpu_ticks();
    std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
    assert!(server.cpu_ticks() - ticks <= 10, "it spins");
    server.tell("open the gate");
    let mut statuses: Vec<u16> = Vec::new();
    for mut client in clients.drain(..) {
        statuses.extend(client.answer().map(|answer| answer.status)); // or a reset
    }
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!(
        passed >= 15 && refused >= 1,
        "{passed} passed, {refused} refused"
    );
    let (cut, log) = server.end();
    assert_eq!(cut, "0");
    assert_eq!(log.matches("out of descriptors").count(), 1, "{log}");
}
