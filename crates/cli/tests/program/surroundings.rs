//! What a server stands in: a standard error whose reader has gone or does not read, a terminal that
//! hangs up, a disk that is full. None of it may cost a request, a login, or the clean end.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::util::{GRACE, PROGRAM, architectures, exchange, site, unix, until};

/// What has become of standard error.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// A pipe whose reader has gone.
    Dead,
    /// A full pipe without a reader.
    Full,
}

/// `O_NONBLOCK`, as the machines have it that this runs on.
const NONBLOCK: i32 = 0o4000;

/// A server on a Unix socket, with accounts and a status page, whose standard error is in trouble.
/// Killed when dropped.
struct Server {
    child: Child,
    site: TempDir,
    state: TempDir,
    _stderr: Option<ChildStderr>,
}

impl Server {
    fn start(architecture: &str, trouble: Trouble, more: &[&str]) -> Self {
        let (site, state) = (site(), tempfile::tempdir().unwrap());
        let mut child = Command::new(PROGRAM)
            .args(arguments(&site, &state))
            .args(["--architecture", architecture])
            .args(more)
            .env_remove("LOADLINE_LOG")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take();
        await_serving(stderr.as_mut().unwrap());
        match trouble {
            Trouble::Dead => stderr = None,
            Trouble::Full => fill(&PathBuf::from(format!("/proc/{}/fd/2", child.id()))),
        }
        Self {
            child,
            site,
            state,
            _stderr: stderr,
        }
    }

    fn connect(&self) -> UnixStream {
        unix(&socket(&self.state))
    }

    fn is_well(&self) {
        let (head, content) = exchange(self.connect(), "/");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(content, "<p>hello</p>");
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Ends it, and it ends well.
    fn end(mut self, what: &str) {
        self.signal("TERM");
        let until = Instant::now() + GRACE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "{what}: it does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        assert_eq!(status.code(), Some(0), "{what}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the line that says where a server serves, however long it takes to get there: an end without it
/// ends the test.
fn await_serving(stderr: &mut ChildStderr) {
    let mut said = String::new();
    let mut stderr = BufReader::new(stderr);
    while !said.contains(": serving ") {
        let count = stderr.read_line(&mut said).unwrap();
        assert!(count > 0, "it has ended:\n{said}");
    }
}

/// Killed when dropped, if it is still there.
struct Doomed(u32);

impl Drop for Doomed {
    fn drop(&mut self) {
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &self.0.to_string()])
            .stderr(Stdio::null());
        let _ = kill.status(); // mostly it has ended
    }
}

/// Of the server behind a socket, by its status page, once it is there.
fn process(state: &TempDir) -> Doomed {
    until("a server", || UnixStream::connect(socket(state)).ok());
    let id = status(unix(&socket(state)))["server"]["process"].as_u64();
    Doomed(u32::try_from(id.unwrap()).unwrap())
}

fn socket(state: &TempDir) -> PathBuf {
    state.path().join("socket")
}

fn arguments(site: &TempDir, state: &TempDir) -> Vec<String> {
    let at = |name: &str| state.path().join(name).display().to_string();
    vec![
        "serve".to_owned(),
        site.path().display().to_string(),
        format!("--listen=unix:{}", at("socket")),
        format!("--accounts=sqlite:{}", at("accounts.db")),
        "--status-path=/-/status".to_owned(),
    ]
}

fn signal(id: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &id.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Fills a pipe, without changing how those wait who share it: opened anew, it is another description.
fn fill(pipe: &Path) {
    let options = OpenOptions::new()
        .write(true)
        .custom_flags(NONBLOCK)
        .open(pipe);
    let mut pipe = options.unwrap();
    for length in [4096, 1] {
        let failed = loop {
            if let Err(error) = pipe.write_all(&vec![b'x'; length]) {
                break error;
            }
        };
        assert_eq!(failed.kind(), ErrorKind::WouldBlock);
    }
}

fn status(stream: UnixStream) -> Value {
    let (_, text) = exchange(stream, "/-/status");
    serde_json::from_str(&text).unwrap()
}

/// Asks for a page of accounts and sends its form. Returns the status.
fn send_form(connect: &dyn Fn() -> UnixStream, page: &str, fields: &str) -> u16 {
    let (head, form) = exchange(connect(), page);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let cookie = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("set-cookie: "))
        .and_then(|line| line["set-cookie: ".len()..].split(';').next())
        .expect("a cookie");
    let token = form
        .split("name=\"token\" value=\"")
        .nth(1)
        .expect("a token");
    let token = token.split('"').next().unwrap();
    let body = format!("token={token}&{fields}");
    let mut stream = connect();
    let request = format!(
        "POST {page} HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

const PASSWORD: &str = "password=what+a+long+password+this+is";

/// Somebody registers, others try, and the right password opens.
fn logins_work(connect: &dyn Fn() -> UnixStream, what: &str) {
    let repeat = PASSWORD.replace("password=", "repeat=");
    let entry = format!("name=ada&{PASSWORD}&{repeat}");
    assert_eq!(
        send_form(connect, "/accounts/register", &entry),
        303,
        "{what}"
    );
    for name in ["bea", "cleo", "dora", "emma", "fay", "gwen", "hedy"] {
        let entry = format!("name={name}&password=wrong+as+can+be");
        assert_eq!(send_form(connect, "/accounts/login", &entry), 403, "{what}");
    }
    let entry = format!("name=ada&{PASSWORD}");
    assert_eq!(send_form(connect, "/accounts/login", &entry), 303, "{what}");
}

#[test]
fn logins_work_whatever_standard_error_is() {
    for trouble in [Trouble::Dead, Trouble::Full] {
        for architecture in architectures() {
            let what = format!("{architecture}, {trouble:?}");
            let server = Server::start(architecture, trouble, &["--log-level", "debug"]);
            logins_work(&|| server.connect(), &what);
            server.is_well();
            server.end(&what);
        }
    }
}

#[test]
fn sigterm_ends_a_server_whatever_standard_error_is() {
    for trouble in [Trouble::Dead, Trouble::Full] {
        for architecture in architectures() {
            let server = Server::start(architecture, trouble, &[]);
            server.is_well();
            server.end(&format!("{architecture}, {trouble:?}"));
        }
    }
}

/// More than sockets and buffers hold.
const LARGE: u64 = 256 << 20;

#[test]
fn an_answer_that_is_cut_short_is_one_connection_less() {
    for trouble in [Trouble::Dead, Trouble::Full] {
        for architecture in architectures() {
            let what = format!("{architecture}, {trouble:?}");
            let server = Server::start(architecture, trouble, &["--log-level", "debug"]);
            let file = File::create(server.site.path().join("large")).unwrap();
            file.set_len(LARGE).unwrap();
            let mut stream = server.connect();
            stream
                .write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            stream.read_exact(&mut [0; 64]).unwrap();
            file.set_len(LARGE + 1).unwrap();
            let rest = std::io::copy(&mut stream, &mut std::io::sink());
            assert!(
                rest.is_ok_and(|bytes| bytes < LARGE),
                "{what}: it changed on its way"
            );
            server.is_well();
            server.end(&what);
        }
    }
}

#[test]
fn the_access_log_is_reopened_whatever_standard_error_is() {
    for trouble in [Trouble::Dead, Trouble::Full] {
        let logs = tempfile::tempdir().unwrap();
        let (log, old) = (logs.path().join("log"), logs.path().join("log.1"));
        let more = ["--access-log", log.to_str().unwrap()];
        let server = Server::start("auto", trouble, &more);
        for _ in 0..3 {
            fs::rename(&log, &old).unwrap();
            server.signal("HUP");
            until("a new log", || log.exists().then_some(()));
            server.is_well();
            until("a line in it", || {
                (fs::metadata(&log).ok()?.len() > 0).then_some(())
            });
        }
        server.end(&format!("{trouble:?}"));
    }
}

#[test]
fn messages_that_are_lost_are_counted() {
    let server = Server::start("auto", Trouble::Dead, &[]);
    logins_work(&|| server.connect(), "dead");
    let counts = until("the count of lines that were dropped", || {
        let counts = status(server.connect())["diagnostics"].clone();
        (counts["lines_dropped"].as_u64()? >= 9).then_some(counts)
    });
    assert!(counts["write_errors"].as_u64().unwrap() > 0, "{counts}");
    let (_, text) = exchange(server.connect(), "/-/status?format=prometheus");
    for name in ["lines_total", "lines_dropped_total", "write_errors_total"] {
        assert!(
            text.contains(&format!("\nloadline_diagnostics_{name} ")),
            "{text}"
        );
    }
    server.end("dead");
}

/// As people do it: the first line is enough for them, the server goes on.
#[test]
fn serving_into_head_goes_on() {
    let (site, state) = (site(), tempfile::tempdir().unwrap());
    let code = state.path().join("code");
    let mut shell = Command::new("sh")
        .args(["-c", "{ \"$@\"; echo $? > \"$0\"; } 2>&1 | head -1"])
        .arg(&code)
        .arg(PROGRAM)
        .args(arguments(&site, &state))
        .env_remove("LOADLINE_LOG")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 9];
    shell.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"loadline ");
    let server = process(&state);
    let connect = || unix(&socket(&state));
    logins_work(&connect, "head");
    let (head, _) = exchange(connect(), "/");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    signal(server.0, "TERM");
    shell.wait().unwrap();
    assert_eq!(fs::read_to_string(&code).unwrap(), "0\n");
}

/// A terminal for the program alone, which goes away while it serves; the signal that comes with it
/// opens the access log again.
#[test]
fn a_terminal_that_hangs_up_is_no_reason_to_end() {
    let (site, state) = (site(), tempfile::tempdir().unwrap());
    let code = state.path().join("code");
    let words: Vec<String> = arguments(&site, &state)
        .iter()
        .map(|word| format!("'{word}'"))
        .collect();
    let inner = format!(
        "trap : HUP; '{PROGRAM}' {} --access-log - --log-level debug; echo $? > '{}'",
        words.join(" "),
        code.display()
    );
    let mut terminal = Command::new("script")
        .args(["-qc", &inner, "/dev/null"])
        .env_remove("LOADLINE_LOG")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = process(&state);
    let connect = || unix(&socket(&state));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    logins_work(&connect, "terminal");
    let counts = until("lines that were dropped", || {
        let status = status(connect());
        let dropped = |log: &str| {
            status[log]["lines_dropped"]
                .as_u64()
                .filter(|count| *count > 0)
        };
        dropped("access_log").and_then(|_| dropped("diagnostics"))
    });
    assert!(counts > 0);
    signal(server.0, "TERM");
    let code = until("its end", || {
        fs::read_to_string(&code)
            .ok()
            .filter(|code| code.ends_with('\n'))
    });
    assert_eq!(code, "0\n");
}

/// With no grace at all, what is left to do at the end is not taken for threads that are stuck.
#[test]
fn an_end_that_waits_for_a_pipe_without_a_reader_is_clean() {
    let (site, state) = (site(), tempfile::tempdir().unwrap());
    let mut child = Command::new(PROGRAM)
        .args(arguments(&site, &state))
        .args(["--access-log", "-", "--grace", "100ms"])
        .env_remove("LOADLINE_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let server = process(&state);
    for fd in [1, 2] {
        fill(&PathBuf::from(format!("/proc/{}/fd/{fd}", child.id())));
    }
    let (head, _) = exchange(unix(&socket(&state)), "/");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    signal(server.0, "TERM");
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

/// What cannot start says why, and ends, also where there is no room for it to say that.
#[test]
fn last_words_into_a_full_pipe_delay_no_end() {
    for command in ["serve", "load"] {
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = std::os::fd::OwnedFd::from(writer);
        fill(&PathBuf::from(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&writer)
        )));
        let mut child = Command::new(PROGRAM)
            .args([command, "--no-such-option"])
            .stderr(writer)
            .spawn()
            .unwrap();
        let _doomed = Doomed(child.id());
        let status = until("its end", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(2), "{command}");
        drop(reader);
    }
}
