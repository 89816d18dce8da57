//! testssl.sh: nothing of its severity MEDIUM or above, but for what is not the server's.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::h2spec::https_port;
use crate::pairs::{NAME, WithPairs};
use crate::program::{Server, site};
use crate::{ARCHITECTURES, alone, options};

/// The names that it has: Debian's, and its own.
const PROGRAMS: [&str; 2] = ["testssl", "testssl.sh"];
/// Seconds that it may take; a minute or two are usual.
const TIMEOUT_S: &str = "1800";
const SEVERE: [&str; 4] = ["MEDIUM", "HIGH", "CRITICAL", "FATAL"];
/// What it finds that is not the server's.
const EXPECTED: [&str; 3] = [
    // Nobody has signed the certificate that is made for trying things out,
    "cert_chain_of_trust",
    // nor can it be revoked.
    "cert_revocation",
    // Text is compressed: what that means is in docs/compression.md.
    "BREACH",
];
/// For `sequential`, which serves one connection at a time: one that it holds is closed, and the next one is served
/// though it has waited.
const ONE_AT_A_TIME: [&str; 6] = [
    "--latency-goal",
    "off",
    "--tls-handshake-timeout",
    "2s",
    "--idle-timeout",
    "2s",
];

#[test]
#[ignore = "long: minutes"]
fn testssl_finds_nothing_under_every_architecture() {
    let _alone = alone();
    let (program, site) = (program(), large_site());
    let path = site.path();
    // Side by side: it waits more than it computes.
    thread::scope(|scope| {
        for (name, _) in ARCHITECTURES {
            scope.spawn(move || check_pairs(program, name, path));
        }
    });
}

#[test]
#[ignore = "long: minutes"]
fn testssl_finds_nothing_with_a_certificate_for_trying_things_out() {
    let _alone = alone();
    let (program, site) = (program(), large_site());
    let https = ["--listen", "https://127.0.0.1:0", "--tls", "self-signed"];
    let server = Server::start_with(site.path(), &https, Stdio::null());
    assert_sound(program, "self-signed", "127.0.0.1", &server);
}

/// Long enough to be compressed.
fn large_site() -> TempDir {
    let site = site();
    fs::write(site.path().join("index.html"), "<p>hello</p>".repeat(500)).unwrap();
    site
}

/// A server with an RSA and a P-256 pair from files.
fn check_pairs(program: &str, architecture: &str, site: &Path) {
    let Some(mut options) = options(architecture) else {
        return;
    };
    if architecture == "sequential" {
        options.extend(ONE_AT_A_TIME);
    }
    let pairs = WithPairs::start(site, &options);
    let found = assert_sound(program, architecture, NAME, &pairs.server);
    let keys = found.iter().filter(|one| word(one, "id") == "cert_keySize");
    let mut kinds: Vec<_> = keys.map(|one| word(one, "finding")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["EC", "RSA"], "{architecture}: {found:#?}");
}

/// That nothing is severe but what is expected; all findings.
fn assert_sound(program: &str, name: &str, host: &str, server: &Server) -> Vec<Value> {
    let found = findings(program, host, https_port(server));
    assert!(found.len() > 100, "{name}: {found:#?}");
    let severe: Vec<_> = found.iter().filter(|one| is_severe(one)).collect();
    assert!(severe.is_empty(), "{name}: {severe:#?}");
    found
}

fn program() -> &'static str {
    PROGRAMS
        .into_iter()
        .find(|it| is_there(it))
        .expect("testssl.sh is missing; install it with: apt-get install testssl.sh")
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What it says about the server: an identifier, a severity and a text each.
fn findings(program: &str, host: &str, port: u16) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("findings.json");
    let output = Command::new("timeout")
        .args([
            TIMEOUT_S,
            program,
            "--quiet",
            "--color",
            "0",
            "--warnings",
            "off",
        ])
        .args(["--nodns", "none", "--ip", "127.0.0.1", "--jsonfile"])
        .arg(&path)
        .arg(format!("https://{host}:{port}/"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    read(&path).unwrap_or_else(|| panic!("{output:?}"))
}

fn read(path: &Path) -> Option<Vec<Value>> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn is_severe(finding: &Value) -> bool {
    SEVERE.contains(&word(finding, "severity")) && !EXPECTED.contains(&word(finding, "id"))
}

/// The first word of a field: behind it an id has the certificate's number, if there are several.
fn word<'f>(finding: &'f Value, field: &str) -> &'f str {
    let text = finding[field].as_str().unwrap_or_default();
    text.split(' ').next().unwrap_or_default()
}
