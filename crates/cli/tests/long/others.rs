//! Other servers, as Debian has them: the lab runs a plan of all of them, and the load generator finds
//! each of them answering as it should.
//!
//! Both tests together take a minute.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use loadline_sys::process::{StopSignal, signal};
use serde_json::Value;

use crate::alone;
use crate::bench::{Bench, said};
use crate::program::{GRACE, run, until};

/// Those that the lab knows how to configure.
const SERVERS: [&str; 5] = [
    "nginx-tuned",
    "nginx-default",
    "apache-event",
    "lighttpd",
    "h2o",
];

/// Whether trials are quick does not matter here, nor who disturbs them.
const PLAN: &str = r#"
name = "others"
title = "Other servers"
files = { "small.html" = 600, "large.bin" = 1048576 }
[servers.reactor]
kind = "loadline"
options = { architecture = "reactor", loops = 1, workers = 0 }
[servers.nginx-tuned]
[servers.nginx-default]
[servers.apache-event]
[servers.lighttpd]
[servers.h2o]
[defaults]
path = "/small.html"
replicates = 1
duration_s = 0.5
warm_up_s = 0.2
a_a = false
load = { connections = 8, timeout = "20s" }
allow = { client_limited = true, overflows = true, steal = 1, others = 1 }
[[series]]
name = "small"
[[series]]
name = "large"
path = "/large.bin"
[[series]]
name = "new-connections"
load = { new_connection = true }
[[series]]
name = "rate"
load = { rate = 500 }
[[chart]]
kind = "bars"
series = "small"
x = "server"
[[chart]]
kind = "bars"
series = "large"
metric = "bytes_per_s"
x = "server"
"#;

#[test]
#[ignore = "long: 40 s, and other servers"]
fn the_lab_runs_every_server_that_it_knows() {
    let _alone = alone();
    let bench = Bench::new(PLAN);
    let (status, lines) = bench.start().end();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    bench.wait_until_nothing_runs();
    let trials = bench.journal().trials;
    assert_eq!(trials.len(), 4 * (SERVERS.len() + 1));
    for trial in &trials {
        let what = format!(
            "{} in {}: {:?}",
            trial.levels["server"], trial.series, trial.discarded
        );
        assert!(trial.discarded.is_empty(), "{what}");
        let tally = &trial.load.as_ref().unwrap().everything;
        assert!(
            tally.completed > 0 && tally.good == tally.completed,
            "{what}"
        );
        assert!(!trial.server.version.is_empty(), "{what}");
    }
    let folder = bench.out();
    let out = folder.to_str().unwrap();
    for command in ["report", "verify"] {
        let output = run(&["lab", command, out]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command}: {}",
            said(&output)
        );
    }
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for server in SERVERS {
        assert!(page.contains(server), "{server} is not in the report");
    }
}

#[test]
#[ignore = "long: 20 s, and other servers"]
fn the_load_generator_finds_every_answer_good() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("small.html"), "x".repeat(600)).unwrap();
    fs::write(root.join("large.bin"), "x".repeat(1 << 20)).unwrap();
    for path in [folder.path(), &root] {
        // Apache is not root, even where this test is.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in SERVERS {
        let own = folder.path().join(name);
        fs::create_dir(&own).unwrap();
        let server = Other::start(name, &root, &own);
        for (path, bytes, how) in [
            ("small.html", 600, "--connections=8 --requests=4000"),
            (
                "small.html",
                600,
                "--connections=4 --requests=500 --new-connection",
            ),
            (
                "large.bin",
                1 << 20,
                "--connections=4 --rate=100 --requests=100",
            ),
            (
                "small.html",
                600,
                "--connections=4 --requests=100 --http=1.0",
            ),
        ] {
            let url = format!("http://127.0.0.1:{}/{path}", server.port);
            let length = format!("--expect-length={bytes}");
            let fixed = ["load", &url, &length, "--allow-client-limited", "--quiet"];
            let mut words = [&fixed[..], &["--timeout=20s"]].concat();
            words.extend(["--assert=errors == 0", "--assert=good/completed == 100%"]);
            words.extend(["--assert=unfinished == 0", "--assert=requests > 30"]);
            words.extend(how.split(' '));
            let output = run(&words);
            let printed = String::from_utf8_lossy(&output.stdout);
            let what = format!("{name}, {words:?}: {printed}{}", said(&output));
            assert_eq!(output.status.code(), Some(0), "{what}");
        }
    }
}

/// Another server; ended with the value.
struct Other {
    child: Child,
    port: u16,
}

impl Other {
    /// Starts it as the lab would, and waits until it listens.
    fn start(name: &str, root: &Path, own: &Path) -> Self {
        // Free a moment ago; none of them can say which port it was given.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let (port_word, root, folder) = (port.to_string(), text(root), text(own));
        let place = ["--port", &port_word, "--root", root, "--dir", folder];
        let output = run(&[&["lab", "server", name][..], &place].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let start: Value = serde_json::from_slice(&output.stdout).unwrap();
        let words = start["command"].as_array().unwrap();
        let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let log = fs::File::create(own.join("said")).unwrap();
        let child = Command::new("env")
            .arg(format!("PATH={path}"))
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Self { child, port };
        until(&format!("{name} that listens"), || {
            let ended = server.child.try_wait().unwrap();
            let said = fs::read_to_string(own.join("said")).unwrap();
            assert!(ended.is_none(), "{words:?}: {ended:?}: {said}");
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        server
    }
}

impl Drop for Other {
    /// Asks it to end, which ends its processes, too.
    fn drop(&mut self) {
        let _ = signal(self.child.id(), StopSignal::Terminate);
        let began = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if began.elapsed() > GRACE {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn text(path: &Path) -> &str {
    let text = path.to_str();
    text.ok_or(io::ErrorKind::InvalidInput).unwrap()
}
