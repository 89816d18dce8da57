//! The program as a child process, and the simplest possible client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

/// How long anything may take before a test fails. Far more than it does take.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// Every architecture that this machine offers; says visibly what it leaves out.
pub(crate) fn architectures() -> Vec<&'static str> {
    let all = loadline_server::Architecture::ALL.iter();
    let offered = all.filter(|architecture| {
        let offered = loadline_server::check_offered(**architecture);
        if let Err(error) = &offered {
            let _ = writeln!(std::io::stderr(), "\nskipped: {error}");
        }
        offered.is_ok()
    });
    offered.map(|architecture| architecture.name()).collect()
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_loadline");

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    // A server that starts where it should refuse must not hang the test.
    let timeout = GRACE.as_secs().to_string();
    let output = Command::new("timeout")
        .args([&timeout, PROGRAM])
        .args(arguments)
        .env_remove("LOADLINE_LOG")
        .env_remove("LOADLINE_ACCOUNTS")
        .output();
    output.expect("the program can be run")
}

/// A directory with an index page.
pub(crate) fn site() -> TempDir {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("index.html"), "<p>hello</p>").unwrap();
    site
}

/// A server that runs; killed when dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    pub(crate) start_up: Vec<String>,
}

impl Server {
    /// Starts `loadline serve SITE --listen 127.0.0.1:0` with more arguments and waits until it
    /// says where it serves.
    pub(crate) fn start(site: &Path, more: &[&str]) -> Self {
        Self::start_with(
            site,
            &[&["--listen", "127.0.0.1:0"], more].concat(),
            Stdio::null(),
        )
    }

    /// The same without an address, and with a standard output of one's own.
    pub(crate) fn start_with(site: &Path, more: &[&str], stdout: impl Into<Stdio>) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(site).args(more).stdout(stdout);
        Self::start_command(command, more)
    }

    /// The same with a command that is made already, and has these arguments.
    pub(crate) fn start_command(mut command: Command, more: &[&str]) -> Self {
        let mut child = command
            .env_remove("LOADLINE_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let mut server = Self {
            child,
            lines,
            start_up: Vec::new(),
        };
        let listens = more
            .iter()
            .filter(|word| **word == "--listen")
            .count()
            .max(1);
        while server
            .start_up
            .iter()
            .filter(|line| line.contains(": serving "))
            .count()
            < listens
        {
            let line = server.line();
            server.start_up.push(line);
        }
        server
    }

    /// The next line of its standard error.
    pub(crate) fn line(&self) -> String {
        let line = self.lines.recv_timeout(GRACE);
        line.unwrap_or_else(|error| panic!("{error} after {:?}", self.start_up))
    }

    /// Waits for a line that contains `part`.
    pub(crate) fn line_with(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// All further lines, after its end.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let mut words = self
            .start_up
            .iter()
            .flat_map(|line| line.split_ascii_whitespace());
        let url = words.find_map(|word| word.strip_prefix("http://")).unwrap();
        url.trim_end_matches('/').parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name: TERM, INT, HUP.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + GRACE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap_or_else(|error| {
            let now = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), now);
            let said: Vec<_> = self.lines.try_iter().collect();
            panic!("{error}; the server: {status:?}; it has said: {said:#?}")
        });
        stream.set_read_timeout(Some(GRACE)).unwrap();
        stream
    }

    /// From this address of the loopback network, as another client.
    pub(crate) fn connect_from(&self, source: [u8; 4]) -> TcpStream {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        net::connect(&socket, &self.address()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(GRACE)).unwrap();
        stream
    }

    /// The content of an answer over a connection of its own; asserts that it is a 200.
    pub(crate) fn get(&self, target: &str) -> String {
        let (head, content) = exchange(self.connect(), target);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        content
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GRACE)).unwrap();
    stream
}

/// Asks for `target` and reads to the end: head and content.
pub(crate) fn exchange(mut stream: impl Read + Write, target: &str) -> (String, String) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").expect("a whole answer");
    (head.to_owned(), content.to_owned())
}

pub(crate) fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(GRACE)).unwrap();
    stream
}

/// Asks again and again until there is an answer; for what comes without an event.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + GRACE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}
