//! The load generator as a child process.

use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{GRACE, PROGRAM, Server, exchange, run};

/// Runs `loadline load` to its end: words as a shell would part them, if it knew no quotes.
pub(crate) fn load(line: &str) -> Output {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    run(&[&["load"], words.as_slice()].concat())
}

/// Runs it, and gives the record that `--json` writes beside its exit code. The client may well be
/// the limit on a busy machine, which is not what most tests are about.
pub(crate) fn measured(line: &str) -> Value {
    measured_to(0, line)
}

/// The same of a run that ends with this code.
pub(crate) fn measured_to(code: i32, line: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    let output = load(&format!(
        "{line} --quiet --allow-client-limited --json {}",
        path.display()
    ));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{line}: {}",
        both(&output)
    );
    record(&path)
}

/// The one record of a file.
pub(crate) fn record(path: &std::path::Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// What it said, for a test that fails.
pub(crate) fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A server with a status page, and its site.
pub(crate) fn server(more: &[&str]) -> (Server, TempDir) {
    let site = crate::program::site();
    let more = [&["--status-path", "/-/status"], more].concat();
    (Server::start(site.path(), &more), site)
}

/// What a server has counted: requests answered and connections accepted, without this question.
pub(crate) fn counted(server: &Server) -> (u64, u64) {
    let (_, content) = exchange(server.connect(), "/-/status");
    let status: Value = serde_json::from_str(&content).unwrap();
    let total = &status["total"];
    let answers = total["answers"].as_object().unwrap().values();
    let answers: u64 = answers.map(number).sum();
    (answers, number(&total["accepted"]) - 1)
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A run in the background; killed when dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(line: &str) -> Self {
        let child = Command::new(PROGRAM)
            .arg("load")
            .args(line.split_ascii_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self {
            child: child.unwrap(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Waits for its end, and takes what it said.
    pub(crate) fn end(&mut self) -> (ExitStatus, String, String) {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let read = |from: Option<Box<dyn std::io::Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                if let Some(mut from) = from {
                    from.read_to_string(&mut text).unwrap();
                }
                text
            })
        };
        let out = read(out.map(|it| Box::new(it) as Box<dyn std::io::Read + Send>));
        let err = read(err.map(|it| Box::new(it) as Box<dyn std::io::Read + Send>));
        let until = Instant::now() + GRACE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(2));
        };
        (status, out.join().unwrap(), err.join().unwrap())
    }
}

/// Sends a process a signal by name.
pub(crate) fn signal(id: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &id.to_string()])
        .status();
    assert!(status.unwrap().success());
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
