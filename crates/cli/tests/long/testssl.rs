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

#[test]
#[ignore = "long: minutes"]
fn testssl_finds_nothing_under_every_architecture() {
    let _alone = alone();
    let (program, site) = (program(), large_site());
    let path = site.path();
    // Side by side: it waits more than it computes.
    thread::scope(|scope| {
        for (name, _) in ARCHITECTURES {
            // A sequential server has one connection at a time, and it asks over a second one.
            if name != "sequential" {
                scope.spawn(move || check_self_signed(program, name, path));
            }
        }
    });
}

#[test]
#[ignore = "long: minutes"]
fn testssl_finds_nothing_with_an_rsa_and_a_p256_pair_from_files() {
    let _alone = alone();
    let (program, site) = (program(), large_site());
    let pairs = WithPairs::start(site.path());
    let found = assert_sound(program, "two pairs", NAME, &pairs.server);
    let keys = found.iter().filter(|one| word(one, "id") == "cert_keySize");
    let mut kinds: Vec<_> = keys.map(|one| word(one, "finding")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["EC", "RSA"], "{found:#?}");
}

/// Long enough to be compressed.
fn large_site() -> TempDir {
    let site = site();
    fs::write(site.path().join("index.html"), "<p>hello</p>".repeat(500)).unwrap();
    site
}

fn check_self_signed(program: &str, architecture: &str, site: &Path) {
    let Some(options) = options(architecture) else {
        return;
    };
    let https = ["--listen", "https://127.0.0.1:0", "--tls", "self-signed"];
    let server = Server::start_with(site, &[&options[..], &https].concat(), Stdio::null());
    assert_sound(program, architecture, "127.0.0.1", &server);
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
