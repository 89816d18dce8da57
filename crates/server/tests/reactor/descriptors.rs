//! The descriptor limit: a server neither spins nor dies there.
//!
//! The limit is the process's, so the server runs in a child: this test binary again, with one test
//! that does nothing otherwise.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use loadline_server::{Accept, ServerOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::util::*;

/// Descriptors of the child: some 25 are its own.
const DESCRIPTORS: u64 = 60;
/// More clients than that.
const CLIENTS: usize = 80;
/// Set for the process that plays the server, to its way of accepting.
const ACCEPT_VARIABLE: &str = "LOADLINE_TEST_SERVER_ACCEPTS";

/// Not a test of its own: what the other process does.
#[test]
fn server_in_a_child() {
    let Ok(accept) = std::env::var(ACCEPT_VARIABLE) else {
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
        accept: Accept::parse(&accept).unwrap(),
        ..options(2, CLIENTS)
    });
    let mut out = std::io::stdout();
    writeln!(out, "\nlistening {}", server.address).unwrap();
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "open the gate" => server.handler.gate.open(),
            _ => {
                let deferred = server.total().accepts_deferred;
                let waiting = server.handler.gate.waiting();
                writeln!(out, "deferred {deferred} waiting {waiting}").unwrap();
            }
        }
    }
    assert!(server.end().is_clean());
}

struct ChildServer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl ChildServer {
    fn start(accept: Accept) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["descriptors::server_in_a_child", "--exact"])
            .args(["--nocapture", "--test-threads=1"])
            .env(ACCEPT_VARIABLE, accept.name())
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

    fn tell(&self, line: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    /// How often accepting was put off, and how many requests have come to the gate.
    fn counts(&mut self) -> (u64, u64) {
        self.tell("count");
        let line = self.line("deferred ");
        let (deferred, waiting) = line.split_once(" waiting ").unwrap();
        (deferred.parse().unwrap(), waiting.parse().unwrap())
    }

    fn deferred(&mut self) -> u64 {
        self.counts().0
    }

    /// CPU time so far, in ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, after) = stat.rsplit_once(") ").unwrap();
        let field = |n: usize| after.split(' ').nth(n - 3).unwrap().parse::<u64>().unwrap();
        field(14) + field(15)
    }

    /// Drains it; returns what it logged.
    fn end(mut self) -> String {
        self.stdin = None;
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn at_the_limit_the_oldest_idle_connection_goes() {
    for accept in Accept::ALL {
        let mut server = ChildServer::start(*accept);
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = Client::connect(server.address);
            assert_eq!(client.get("/").status, 200, "{accept:?}");
            clients.push(client);
        }
        assert!(server.deferred() >= 1);
        assert!(clients[0].is_closed());
        assert_eq!(clients[CLIENTS - 1].get("/").status, 200);
        drop(clients);
        server.end();
    }
}

#[test]
fn at_the_limit_with_nobody_idle_one_is_told_and_nothing_spins() {
    for accept in Accept::ALL {
        let mut server = ChildServer::start(*accept);
        let mut clients: Vec<Client> = Vec::new();
        for count in 1..=CLIENTS as u64 {
            let mut client = Client::connect(server.address);
            client.ask("/gate");
            clients.push(client);
            // Not idle before the next one comes, which would be given its place.
            eventually(|| {
                let (deferred, waiting) = server.counts();
                deferred > 0 || waiting == count
            });
        }
        eventually(|| server.deferred() >= 2);
        let ticks = server.cpu_ticks();
        std::thread::sleep(Duration::from_millis(600)); // to see that it does not spin meanwhile
        assert!(server.cpu_ticks() - ticks <= 15, "it spins");
        server.tell("open the gate");
        let mut statuses: Vec<u16> = Vec::new();
        for client in &mut clients {
            statuses.extend(client.answer().map(|answer| answer.status)); // or a reset
        }
        let passed = statuses.iter().filter(|status| **status == 200).count();
        let refused = statuses.iter().filter(|status| **status == 503).count();
        assert!(
            passed >= 15 && refused >= 1,
            "{accept:?}: {passed} passed, {refused} refused"
        );
        drop(clients);
        let log = server.end();
        let lines = log.matches("out of descriptors").count();
        assert!(
            (1..=2).contains(&lines),
            "one for each accepting thread: {log}"
        );
    }
}
