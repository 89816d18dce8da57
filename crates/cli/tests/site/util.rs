//! The program as a child process, and a plain client of its own that shares no code with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine; only a failure waits for it.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// Every architecture with options that make it serve several clients, but for the first.
pub(crate) const ARCHITECTURES: &[(&str, &str)] = &[
    ("sequential", "--architecture sequential"),
    (
        "thread_per_connection",
        "--architecture thread-per-connection",
    ),
    ("thread_pool", "--architecture thread-pool --threads 64"),
    (
        "reactor_1x0",
        "--architecture reactor --loops 1 --workers 0",
    ),
    (
        "reactor_1x4",
        "--architecture reactor --loops 1 --workers 4",
    ),
    (
        "reactor_2x0",
        "--architecture reactor --loops 2 --workers 0",
    ),
    (
        "reactor_handoff",
        "--architecture reactor --loops 2 --workers 2 --accept handoff",
    ),
    (
        "reactor_reuse_port",
        "--architecture reactor --loops 2 --workers 2 --accept reuse-port --file-io sendfile",
    ),
    (
        "reactor_socket_io_worker",
        "--architecture reactor --loops 1 --workers 4 --socket-io worker",
    ),
    (
        "proactor_1x0",
        "--architecture proactor --loops 1 --workers 0",
    ),
    (
        "proactor_1x4",
        "--architecture proactor --loops 1 --workers 4",
    ),
    (
        "proactor_2x0",
        "--architecture proactor --loops 2 --workers 0 --file-io sendfile",
    ),
    (
        "proactor_2x4",
        "--architecture proactor --loops 2 --workers 4",
    ),
    (
        "proactor_handoff",
        "--architecture proactor --loops 2 --workers 2 --accept handoff",
    ),
    (
        "reactor_parse_worker",
        "--architecture reactor --loops 1 --workers 4 --parse worker",
    ),
    (
        "proactor_parse_worker",
        "--architecture proactor --loops 2 --workers 4 --parse worker",
    ),
];

/// Whether this machine offers one of `ARCHITECTURES`; says visibly if not.
pub(crate) fn is_offered(name: &str) -> bool {
    let offered = match name.starts_with("proactor") {
        true => loadline_server::check_offered(loadline_server::Architecture::Proactor),
        false => Ok(()),
    };
    if let Err(error) = &offered {
        let _ = writeln!(std::io::stderr(), "\nskipped, {name}: {error}");
    }
    offered.is_ok()
}

/// The options of one of `ARCHITECTURES`.
pub(crate) fn options(name: &str) -> Vec<&'static str> {
    let found = ARCHITECTURES.iter().find(|(of, _)| *of == name);
    let (_, options) = found.unwrap_or_else(|| panic!("no architecture {name}"));
    options.split(' ').collect()
}

/// `loadline serve`, ended with the value.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
    lines: Receiver<String>,
}

impl Server {
    /// Serves `root` on a free port; returns once it says where.
    pub(crate) fn start(root: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_loadline"))
            .arg("serve")
            .arg(root)
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (sender, lines) = channel();
        let outputs: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        let mut seen = Vec::new();
        let addr = loop {
            let Ok(line) = lines.recv_timeout(GRACE) else {
                panic!("the program did not say where it listens: {seen:?}");
            };
            if let Some(addr) = address_in(&line) {
                break addr;
            }
            seen.push(line);
        };
        Self { child, addr, lines }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for it to end; returns how, and what it said meanwhile.
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + GRACE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            // There is no event for this without more machinery; it ends at once when it ends.
            std::thread::sleep(Duration::from_millis(5));
        };
        (status, self.lines.iter().collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let rest = &line[line.find("http://")? + "http://".len()..];
    rest.split(['/', ' ', ',']).next()?.parse().ok()
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn closes(&self) -> bool {
        self.head
            .to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n")
    }
}

/// A connection that is kept alive.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("a connection");
        stream.set_read_timeout(Some(GRACE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::with_capacity(64 << 10, stream),
        }
    }

    pub(crate) fn send(&mut self, path: &str) -> std::io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads one answer; `None` if the connection ended before its first byte.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let mut head = String::new();
        loop {
            let len = head.len();
            match self.stream.read_line(&mut head) {
                Ok(0) | Err(_) if head.is_empty() => return None,
                Ok(0) => panic!("the connection ended within a head: {head:?}"),
                Ok(_) => {}
                Err(error) => panic!("{error} within a head: {head:?}"),
            }
            if &head[len..] == "\r\n" {
                break;
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower
            .split("\r\ncontent-length: ")
            .nth(1)
            .expect("a Content-Length");
        let length = length
            .split("\r\n")
            .next()
            .unwrap()
            .parse()
            .expect("a number");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the whole body");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head, body })
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(path).expect("sent");
        self.answer().expect("an answer")
    }
}

/// A copy of Debian's Python documentation with its links followed (some leave the folder): a real
/// site of 2,000 files. Made once for all test runs.
pub(crate) fn documentation() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    static LOCK: Mutex<()> = Mutex::new(());
    let _held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    COPY.get_or_init(|| {
        let source = Path::new("/usr/share/doc/python3-doc/html");
        assert!(
            source.is_dir(),
            "{} is missing: apt-get install python3-doc",
            source.display()
        );
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python3-doc");
        if !copy.is_dir() {
            let part = copy.with_extension(std::process::id().to_string());
            let status = Command::new("cp")
                .args(["-rL", "--"])
                .arg(source)
                .arg(&part)
                .status();
            assert!(part.is_dir(), "copying the documentation: {status:?}");
            let _ = std::fs::rename(&part, &copy); // another process may have been faster
        }
        copy
    })
}

/// A small site: an index and `file.html` of 600 bytes.
pub(crate) fn small_site() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(
        root.path().join("index.html"),
        "<!doctype html><title>t</title>",
    )
    .unwrap();
    std::fs::write(root.path().join("file.html"), "x".repeat(600)).unwrap();
    root
}
