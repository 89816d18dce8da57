//! `loadline lab capacity` as people meet it. How near it comes to the truth is tested in crates/lab,
//! without a clock; here, that trials are run, judged and printed.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "load/certificates.rs"]
mod certificates;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use loadline_capacity::search::TrialOutcome;
use loadline_lab::capacity::{Capacity, SCHEMA};
use loadline_stub::{Listening, Stall, Stub, StubOptions, TlsIdentity};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::{params, write_client, write_server};

/// Runs it with few and short trials.
fn capacity(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadline"));
    command.args(["lab", "capacity"]).args(words);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The page's first line, and the result as JSON.
fn result(output: &Output, json: &Path) -> (String, Capacity) {
    let page = String::from_utf8_lossy(&output.stdout);
    let first = page
        .lines()
        .next()
        .unwrap_or_else(|| panic!("{}", said(output)));
    let text = std::fs::read_to_string(json).unwrap();
    (first.to_owned(), serde_json::from_str(&text).unwrap())
}

/// A search that a busy machine may end with any of the answers that there are.
const ANSWERS: [i32; 4] = [0, 3, 4, 5];

/// On a busy machine the client may be late for all trials of a search, which have no verdict then.
const TRIES: usize = 8;

/// A fifth of the requests waits for the server, however few there are: that is no client that was
/// late, and no trial without a verdict.
#[test]
fn a_server_that_pauses_holds_no_rate() {
    const SECOND_NS: u64 = 1_000_000_000;
    let pausing = Stub::start(StubOptions {
        stall: Some(Stall {
            length_ns: 2 * SECOND_NS / 5,
            every_ns: 2 * SECOND_NS,
        }),
        ..StubOptions::default()
    });
    let pausing = pausing.unwrap();
    let steady = Stub::start(StubOptions::default()).unwrap();
    let mut unexplained = Vec::new();
    for _ in 0..TRIES {
        let (outcomes, said) = outcomes_of_a_search(&pausing);
        assert!(!outcomes.contains(&TrialOutcome::Holds), "{said}");
        if outcomes.contains(&TrialOutcome::Fails) {
            return;
        }
        // If the machine is the reason, the client is late for a server without pauses, too.
        let (others, _) = outcomes_of_a_search(&steady);
        if others.contains(&TrialOutcome::Holds) || others.contains(&TrialOutcome::Fails) {
            unexplained.push(said);
        }
    }
    let count = unexplained.len();
    // Once the machine may have become less busy in between.
    assert!(
        count <= 1,
        "no trial failed in {TRIES} searches, though this machine is not too busy: after {count} of them the \
         client was in time for a server without pauses: {}",
        unexplained.join("\n")
    );
    // Past the capture of the test's output.
    let message = format!(
        "\nskipped, a server that pauses: the client was late in all of {TRIES} searches, and for a server \
         without pauses after all but {count}\n"
    );
    std::io::stderr().write_all(message.as_bytes()).unwrap();
}

/// What came of the trials, and what was printed.
fn outcomes_of_a_search(stub: &Stub) -> (Vec<TrialOutcome>, String) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("capacity.json");
    let output = capacity(&[
        "--slo=p99 < 300ms",
        "--budget=5s",
        "--trial=2s",
        "--sweep=2s",
        "--warm-up=50ms",
        "--from=1000",
        "--to=2000",
        &format!("--json={}", json.display()),
        &format!("http://{}/", stub.address()),
    ]);
    let (_, capacity) = result(&output, &json);
    let outcomes = capacity.evidence.iter().map(|one| one.tried.outcome);
    (outcomes.collect(), said(&output))
}

#[test]
fn a_url_is_searched_and_every_trial_is_printed() {
    let stub = Stub::start(StubOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("capacity.json");
    let json_option = format!("--json={}", json.display());
    let url = format!("http://{}/", stub.address());
    let output = capacity(&[&SHORT[..], &[json_option.as_str(), &url]].concat());
    assert!(
        ANSWERS.contains(&output.status.code().unwrap()),
        "{}",
        said(&output)
    );
    let (headline, capacity) = result(&output, &json);
    assert_eq!(headline, capacity.headline());
    assert_eq!(
        (capacity.schema.as_str(), capacity.slo.as_str()),
        (SCHEMA, "p50 < 1s")
    );
    let trials = capacity.evidence.len();
    assert_eq!(trials, capacity.finding.trials as usize);
    let printed = said(&output)
        .lines()
        .filter(|line| line.contains("/s for "))
        .count();
    assert_eq!(printed, trials);
    // Beside a search for something else it does not stand.
    let again = format!("--again={}", json.display());
    let url = format!("http://{}/", stub.address());
    let other = self::capacity(&["--slo=p90 < 1s", "--budget=4s", &again, &url]);
    assert_eq!(other.status.code(), Some(2));
    assert!(
        said(&other).contains("its SLO was 'p50 < 1s'"),
        "{}",
        said(&other)
    );
    // Each trial is its own: what is offered is what was asked for, unless the machine held it up.
    let measured = capacity
        .evidence
        .iter()
        .filter_map(|one| Some((one, one.measured.as_ref()?)));
    for (one, measured) in measured.filter(|(one, _)| one.tried.outcome == TrialOutcome::Holds) {
        let off = measured.offered_per_s / one.tried.trial.rate_per_s - 1.0;
        assert!(off.abs() < 0.3, "{off}");
    }
}

#[test]
fn a_command_is_started_afresh_for_each_trial() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("capacity.json");
    let output = capacity(&[
        "--slo=p90 < 1s",
        "--budget=7s",
        "--trial=300ms",
        "--sweep=200ms",
        "--warm-up=50ms",
        "--load=--arrivals=constant", // which a closed loop has no use for
        "--to=700",
        &format!("--json={}", json.display()),
        "--",
        env!("CARGO_BIN_EXE_loadline"),
        "serve",
        "{root}",
        "--listen=127.0.0.1:{port}",
    ]);
    assert!(
        ANSWERS.contains(&output.status.code().unwrap()),
        "{}",
        said(&output)
    );
    let (_, capacity) = result(&output, &json);
    assert!(!capacity.evidence.is_empty());
    for one in capacity
        .evidence
        .iter()
        .filter(|one| one.measured.is_some())
    {
        let command = one.server.command.join(" ");
        assert!(command.contains("--listen=127.0.0.1:"), "{command}");
        assert!(!one.server.cpus.is_empty());
    }
}

/// A search with few and short trials.
const SHORT: [&str; 8] = [
    "--slo=p50 < 1s",
    "--budget=4s",
    "--trial=300ms",
    "--sweep=200ms",
    "--warm-up=50ms",
    "--from=200",
    "--to=1000",
    "--connections=8",
];

/// What the stub shows to clients, from the files of this folder.
fn identity(folder: &Path) -> TlsIdentity {
    let certificate = CertificateDer::from_pem_file(folder.join("c.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("k.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsIdentity(Arc::new(config))
}

#[test]
fn a_url_of_https_is_searched_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    write_server(folder.path(), params("127.0.0.1"));
    let stub = Stub::start(StubOptions {
        tls: Some(identity(folder.path())),
        ..StubOptions::default()
    });
    let stub = stub.unwrap();
    let url = format!("https://{}/", stub.address());
    let output = capacity(&[&SHORT[..], &[url.as_str()]].concat());
    let why = said(&output);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(why.contains("not signed by a trusted authority"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");

    let json = folder.path().join("capacity.json");
    let more = [
        format!("--load=--cacert={}", folder.path().join("c.pem").display()),
        format!("--json={}", json.display()),
        url,
    ];
    let more = more.each_ref().map(String::as_str);
    let output = capacity(&[&SHORT[..], &more].concat());
    let code = output.status.code().unwrap();
    assert!(ANSWERS.contains(&code), "{}", said(&output));
    let (headline, capacity) = result(&output, &json);
    assert_eq!(headline, capacity.headline());
    assert!(!capacity.evidence.is_empty());
    let requests = stub.stop().unwrap().counts.requests;
    assert!(requests > 10, "{requests}");
}

#[test]
fn a_command_of_https_is_started_for_clients_with_certificates() {
    let folder = tempfile::tempdir().unwrap();
    write_server(folder.path(), params("127.0.0.1"));
    write_client(folder.path());
    let json = folder.path().join("capacity.json");
    let of = |option: &str, name: &str| format!("{option}={}", folder.path().join(name).display());
    let load = [
        of("--load=--cacert", "c.pem"),
        of("--load=--cert", "ada-c.pem"),
        of("--load=--key", "ada-k.pem"),
        of("--json", "capacity.json"),
    ];
    let command = [
        "--",
        env!("CARGO_BIN_EXE_loadline"),
        "serve",
        "{root}",
        "--listen=https://127.0.0.1:{port}",
    ];
    let server = [
        of("--tls-cert", "c.pem"),
        of("--tls-key", "k.pem"),
        of("--tls-client-ca", "ca.pem"),
    ];
    let (load, server) = (
        load.each_ref().map(String::as_str),
        server.each_ref().map(String::as_str),
    );
    let output = capacity(&[&SHORT[..], &load, &command, &server].concat());
    let code = output.status.code().unwrap();
    assert!(ANSWERS.contains(&code), "{}", said(&output));
    let (_, capacity) = result(&output, &json);
    // A first trial without an answer would have ended the search.
    assert!(!capacity.evidence.is_empty());
    let evidence = capacity.evidence.iter();
    for one in evidence.filter(|one| one.measured.is_some()) {
        let command = one.server.command.join(" ");
        assert!(command.contains("--listen=https://127.0.0.1:"), "{command}");
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let url = "http://127.0.0.1:9/";
    let cases: [(&[&str], i32, &str); 15] = [
        (&[url], 2, "--slo"),
        (&["--slo=p99 < 50ms"], 2, "the server is missing"),
        (&["--slo=p99 < 50", url], 2, "a unit is missing"),
        (
            &["--slo=p99 < 50ms", url, "--", "server"],
            2,
            "a URL and a command",
        ),
        (
            &["--slo=p99 < 50ms", "--load=--rate=5", url],
            2,
            "sets this itself",
        ),
        (
            &[
                "--slo=p99 < 50ms",
                "--load=--http2",
                "--load=--http2-share=50%",
                url,
            ],
            2,
            "a search is for one protocol",
        ),
        (
            &["--slo=p99 < 50ms", "--from=2k", "--to=1k", url],
            2,
            "begins at",
        ),
        (
            &["--slo=p99 < 50ms", "--root=x", url],
            2,
            "--root and --path belong",
        ),
        (
            &["--slo=p99 < 50ms", "--cpu-quota=0.4", url],
            2,
            "--cpu-quota belongs",
        ),
        (
            &["--slo=p99 < 50ms", "--namespaces", url],
            2,
            "--namespaces belongs",
        ),
        (
            &["--slo=p99 < 50ms", "--link=dsl", url],
            2,
            "--link belongs",
        ),
        (
            &["--slo=p99 < 50ms", "--link=moon", "--", "server"],
            2,
            "no link moon; right would be",
        ),
        (
            &["--slo=p99 < 50ms", "--cpu-quota=0", "--", "server"],
            2,
            "0 is no quota; right would be 0.01 to 1024 CPUs",
        ),
        (
            &["--slo=p99 < 50ms", "--again=Cargo.toml", "--", "server"],
            2,
            "right would be the --json of a search for the same",
        ),
        (
            &["--slo=p99 < 50ms", "--", "/no/such/server"],
            1,
            "cannot be started",
        ),
    ];
    for (words, code, part) in cases {
        let output = capacity(words);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_no_capacity() {
    let nobody = Stub::start(StubOptions {
        listening: Listening::Refusing,
        ..StubOptions::default()
    });
    let url = format!("http://{}/", nobody.as_ref().unwrap().address());
    let output = capacity(&["--slo=p99 < 50ms", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("is not answered as it should be"),
        "{}",
        said(&output)
    );
}
