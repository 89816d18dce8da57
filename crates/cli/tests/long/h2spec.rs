//! h2spec, the conformance tests of HTTP/2, in strict mode, in plain text and over TLS.

use std::path::Path;
use std::process::Command;

use crate::program::{Server, site};
use crate::{ARCHITECTURES, alone, go_program, options};

const MODULE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";
/// What its modules ask for.
const GO_MINOR: u32 = 26;

/// Those that ask on a second connection while they hold one, which a server of one connection at a time
/// does not answer.
const OF_TWO_CONNECTIONS: [&str; 4] = [
    "http2/6.5.3/1",
    "http2/6.9.1/1",
    "http2/6.9.2/1",
    "http2/6.9.2/2",
];

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

#[test]
#[ignore = "long: h2spec under every architecture"]
fn h2spec_passes_under_every_architecture() {
    let _alone = alone();
    let Some(h2spec) = go_program::build("h2spec", MODULE, GO_MINOR) else {
        return;
    };
    let cases = cases(&h2spec);
    assert!(cases.len() > 140, "{cases:?}");
    for (name, _) in ARCHITECTURES {
        let Some(options) = options(name) else {
            continue;
        };
        let site = site();
        let over_tls = [
            "--http2",
            "only",
            "--listen",
            "https://127.0.0.1:0",
            "--tls",
            "self-signed",
        ];
        let server = Server::start(site.path(), &[&options[..], &over_tls].concat());
        for (port, is_tls) in [
            (server.address().port(), false),
            (https_port(&server), true),
        ] {
            if name != "sequential" {
                let said = run(&h2spec, port, is_tls, &[]);
                let (all, passed) = counts(&said).unwrap();
                assert!(all > 140 && passed == all, "{name}, TLS {is_tls}: {said}");
                continue;
            }
            for case in cases
                .iter()
                .filter(|it| !OF_TWO_CONNECTIONS.contains(&&***it))
            {
                let said = run(&h2spec, port, is_tls, &[case]);
                assert_eq!(counts(&said), Some((1, 1)), "{case}, TLS {is_tls}: {said}");
            }
        }
    }
}
