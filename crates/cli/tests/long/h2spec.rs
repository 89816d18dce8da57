//! h2spec, the conformance tests of HTTP/2, in strict mode, in plain text and over TLS, for servers of HTTP/1
//! and HTTP/2.

use std::path::Path;
use std::process::Command;

use crate::program::{Server, site};
use crate::{ARCHITECTURES, alone, go_program, options};

const MODULE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";
/// What its modules ask for.
const GO_MINOR: u32 = 26;

/// Of this version, in strict mode.
const CASES: usize = 146;

/// Those that ask on a second connection while they hold one, which a server of one connection at a time
/// does not answer.
const OF_TWO_CONNECTIONS: [&str; 4] = [
    "http2/6.5.3/1",
    "http2/6.9.1/1",
    "http2/6.9.2/1",
    "http2/6.9.2/2",
];

/// What is no preface of HTTP/2 may be a request of HTTP/1, and is answered by 400 in plain text; h2spec wants
/// the end of the connection at once. A server of HTTP/2 alone knows better, and so does ALPN.
const OF_NO_PREFACE: &str = "http2/3.5/2";

fn run(h2spec: &Path, port: u16, is_tls: bool, more: &[&str]) -> String {
    let mut command = Command::new(h2spec);
    command.args(["--strict", "--timeout", "5", "--port", &port.to_string()]);
    command.args(if is_tls {
        &["--tls", "--insecure"][..]
    } else {
        &[]
    });
    let output = command.args(more).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the server speaks TLS.
pub(crate) fn https_port(server: &Server) -> u16 {
    let said = server.start_up.join("\n");
    let (_, rest) = said.split_once("https://127.0.0.1:").unwrap();
    let (port, _) = rest.split_once('/').unwrap();
    port.parse().unwrap()
}

/// How many it has run, and how many have passed, by its last line: "146 tests, 146 passed, 0 skipped, 0
/// failed".
fn counts(said: &str) -> Option<(u32, u32)> {
    let (all, rest) = said.lines().last()?.split_once(" tests, ")?;
    let (passed, _) = rest.split_once(" passed")?;
    Some((all.parse().ok()?, passed.parse().ok()?))
}

/// Names of all cases: "http2/5.1/8".
fn cases(h2spec: &Path) -> Vec<String> {
    let listed = run(h2spec, 1, false, &["--dryrun"]);
    let (mut group, mut section) = ("", String::new());
    let mut cases = Vec::new();
    for line in listed.lines() {
        group = match line.split(' ').next() {
            Some("Generic") => "generic",
            Some("Hypertext") => "http2",
            Some("HPACK:") => "hpack",
            _ => group,
        };
        let number = line.trim_start().split(' ').next().unwrap_or_default();
        if let Some(case) = number
            .strip_suffix(':')
            .filter(|it| it.parse::<u32>().is_ok())
        {
            cases.push(format!("{group}/{section}/{case}"));
        } else if let Some(number) = number.strip_suffix('.') {
            number.clone_into(&mut section);
        }
    }
    cases
}

/// A server that h2spec asks, and where.
struct Asked<'a> {
    h2spec: &'a Path,
    architecture: &'a str,
    port: u16,
    is_tls: bool,
}

impl Asked<'_> {
    /// All of these cases pass. A sequential server is asked each on its own, but for those that it cannot
    /// answer.
    fn passes(&self, cases: &[&str]) {
        if self.architecture != "sequential" {
            return self.passes_at_once(cases);
        }
        for case in cases.iter().filter(|it| !OF_TWO_CONNECTIONS.contains(it)) {
            self.passes_at_once(&[*case]);
        }
    }

    fn passes_at_once(&self, cases: &[&str]) {
        let said = run(self.h2spec, self.port, self.is_tls, cases);
        let all = cases.len() as u32;
        let (architecture, is_tls) = (self.architecture, self.is_tls);
        assert_eq!(
            counts(&said),
            Some((all, all)),
            "{architecture}, TLS {is_tls}: {said}"
        );
    }
}

#[test]
#[ignore = "long: h2spec under every architecture"]
fn h2spec_passes_under_every_architecture() {
    let _alone = alone();
    let h2spec = go_program::build("h2spec", MODULE, GO_MINOR);
    let cases = cases(&h2spec);
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    assert_eq!(cases.len(), CASES, "{cases:?}");
    let without_prefaces: Vec<&str> = cases
        .iter()
        .copied()
        .filter(|it| *it != OF_NO_PREFACE)
        .collect();
    assert_eq!(without_prefaces.len(), CASES - 1);
    for (architecture, _) in ARCHITECTURES {
        let Some(options) = options(architecture) else {
            continue;
        };
        let asked = |port, is_tls| Asked {
            h2spec: &h2spec,
            architecture,
            port,
            is_tls,
        };
        let site = site();
        let over_tls = ["--listen", "https://127.0.0.1:0", "--tls", "self-signed"];
        let server = Server::start(site.path(), &[&options[..], &over_tls].concat());
        asked(https_port(&server), true).passes(&cases);
        asked(server.address().port(), false).passes(&without_prefaces);
        let only = ["--http2", "only"];
        let server = Server::start(site.path(), &[&options[..], &only].concat());
        asked(server.address().port(), false).passes(&[OF_NO_PREFACE]);
    }
}
