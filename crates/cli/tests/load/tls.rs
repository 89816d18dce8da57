//! Load over https: the same counts as over http, and who is not to be trusted.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rcgen::{CertificateParams, date_time_ymd};
use rustls::{CipherSuite, NamedGroup};
use tempfile::TempDir;

pub(crate) use crate::certificates::params;
use crate::certificates::{write_client, write_server};
use crate::peer::{Ending, Peer};
use crate::program::{Server, site};
use crate::util::{counted, load, measured, measured_to, number, text};

/// A server by http and by https, with its site and a folder of its certificate.
pub(crate) struct Https {
    pub(crate) server: Server,
    folder: TempDir,
    _site: TempDir,
}

impl Https {
    /// With this certificate.
    pub(crate) fn start(params: CertificateParams, more: &[&str]) -> Self {
        let (folder, site) = (tempfile::tempdir().unwrap(), site());
        write_server(folder.path(), params);
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (certificate, key) = (path("c.pem"), path("k.pem"));
        let own = [
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "https://127.0.0.1:0",
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--status-path",
            "/-/status",
        ];
        let server = Server::start_with(site.path(), &[&own, more].concat(), Stdio::null());
        let _site = site;
        Self {
            server,
            folder,
            _site,
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn address(&self) -> SocketAddr {
        let lines = self.server.start_up.iter();
        let mut words = lines.flat_map(|line| line.split_ascii_whitespace());
        let url = words.find_map(|word| word.strip_prefix("https://"));
        url.unwrap().trim_end_matches('/').parse().unwrap()
    }

    /// The URL, and that its certificate is trusted.
    pub(crate) fn trusted(&self) -> String {
        format!(
            "https://{}/ --cacert {}",
            self.address(),
            self.path("c.pem")
        )
    }

    /// Runs a load, and gives its record; the server has counted the same.
    pub(crate) fn measured(&self, options: &str) -> serde_json::Value {
        let before = counted(&self.server);
        let record = measured(&format!("{} {options}", self.trusted()));
        let after = counted(&self.server);
        let all = &record["everything"];
        // Asking for the count was a request and a connection of its own.
        let answers = after.0 - before.0 - 1;
        assert_eq!(answers, number(&all["completed"]), "{options}");
        let connections = after.1 - before.1 - 1;
        assert_eq!(connections, number(&all["connections"]), "{options}");
        record
    }
}

#[test]
fn the_server_counts_what_the_client_counts() {
    let https = Https::start(params("127.0.0.1"), &["--loops", "2"]);
    let tally = |options: &str| https.measured(options)["everything"].clone();
    for (options, requests, connections) in [
        ("-c 8 -n 500", 500, 8),
        ("-c 4 -n 60 --new-connection", 60, 60),
        ("-c 4 -n 60 --processes 2", 60, 4),
        ("-c 1 -n 30 --requests-per-connection 10", 30, 3),
    ] {
        let tally = tally(options);
        assert_eq!(number(&tally["completed"]), requests, "{options}");
        assert_eq!(number(&tally["connections"]), connections, "{options}");
    }
    let open = tally("-c 8 --rate 400 -d 300ms --arrivals constant");
    assert_eq!(
        number(&open["completed"]) + number(&open["unfinished"]),
        120
    );
}

#[test]
fn handshakes_are_full_or_resumed() {
    let https = Https::start(params("127.0.0.1"), &[]);
    for (more, resumed_min) in [("", 0), ("--tls-resume on", 90)] {
        // The first handshake of each client is a full one.
        let record = https.measured(&format!("-c 4 -n 100 --new-connection {more}"));
        let total = &record["groups"][0]["total"];
        let of = |name: &str| number(&total["tally"][name]);
        let (full, resumed) = (of("handshakes_full"), of("handshakes_resumed"));
        assert_eq!(full + resumed, 100, "{more}");
        assert!(
            resumed >= resumed_min && (resumed == 0) == (resumed_min == 0),
            "{resumed}"
        );
        assert_eq!(number(&total["connect"]["count"]), 100);
        assert_eq!(number(&total["handshake"]["count"]), 100);
        let (latency, handshake) = (&total["latency"]["min_us"], &total["handshake"]["min_us"]);
        assert!(
            number(latency) > number(handshake),
            "a request waits for its handshake"
        );
    }
}

#[test]
fn a_connections_time_is_divided() {
    let https = Https::start(params("127.0.0.1"), &[]);
    let said = |options: &str| {
        let output = load(&format!(
            "{} {options} --allow-client-limited",
            https.trusted()
        ));
        text(&output.stdout).to_owned()
    };
    let resumed = said("-c 1 -n 20 --new-connection --tls-resume on");
    for part in [
        "A connection's time",
        "connect ",
        "handshake ",
        "handshakes: 1 full, 19 resumed",
    ] {
        assert!(resumed.contains(part), "no '{part}' in: {resumed}");
    }
    // Those that came to be in the warm-up are there, too.
    let kept = said("-c 3 -d 100ms --warm-up 50ms");
    assert!(kept.contains("handshakes: 3 full, 0 resumed"), "{kept}");
    let plain = load(&format!("http://{}/ -c 1 -n 5", https.server.address()));
    assert!(!text(&plain.stdout).contains("A connection's time"));
}

/// Runs a load that is refused at once, in one line.
pub(crate) fn refused(code: i32, line: &str, parts: &[&str]) {
    let output = load(&format!("{line} --quiet"));
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {message}");
    assert_eq!(text(&output.stdout), "", "{line}");
    assert_eq!(message.lines().count(), 1, "{line}: {message}");
    for part in parts {
        assert!(message.contains(part), "{line}: no '{part}' in: {message}");
    }
}

#[test]
fn who_is_not_to_be_trusted_is_not_asked_for_anything() {
    let https = Https::start(params("127.0.0.1"), &[]);
    let mut old = params("127.0.0.1");
    (old.not_before, old.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let old = Https::start(old, &[]);
    let other = Https::start(params("shop.example"), &[]);
    let before = counted(&https.server).0;
    let address = https.address();
    let plain = old.server.address();
    for (line, parts) in [
        (
            format!("https://{address}/"),
            &[
                "not signed by a trusted authority",
                "--cacert",
                "--insecure",
            ][..],
        ),
        (
            format!("https://{address}/ --new-connection --rate 50"),
            &["not signed by a trusted authority"],
        ),
        (
            format!("https://{address}/ -c 0 --idle-connections 2"),
            &["not signed by a trusted authority"],
        ),
        (
            format!("https://{address}/ --processes 2"),
            &["not signed by a trusted authority"],
        ),
        (old.trusted(), &["its certificate has expired"]),
        (other.trusted(), &["is for another name: shop.example;"]),
        (
            format!("https://{plain}/ --insecure"),
            &["it does not speak TLS at this port"],
        ),
    ] {
        refused(1, &format!("{line} -d 20s"), parts);
    }
    assert_eq!(counted(&https.server).0, before + 1);
    for insecure in [&https, &old, &other] {
        let url = format!("https://{}/ --insecure", insecure.address());
        assert_eq!(
            number(&measured(&format!("{url} -c 1 -n 2"))["everything"]["good"]),
            2
        );
    }
}

#[test]
fn options_of_tls_are_refused_with_what_would_be_right() {
    let https = "https://127.0.0.1:9/";
    for (line, parts) in [
        (
            "http://127.0.0.1:9/ --insecure".to_owned(),
            &["--insecure", "no URL begins with https"][..],
        ),
        (format!("{https} --cert c.pem"), &["--cert", "--key"]),
        (
            format!("{https} --insecure --cacert c.pem"),
            &["--cacert", "it excludes --insecure"],
        ),
        (
            format!("{https} --cacert /nowhere/c.pem"),
            &["--cacert", "/nowhere/c.pem", "No such file"],
        ),
        (
            format!("{https} --insecure --cert /dev/null --key /dev/null"),
            &["--cert", "no certificate in it"],
        ),
    ] {
        refused(2, &line, parts);
    }
}

#[test]
fn a_client_shows_its_certificate_to_a_server_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    write_client(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let https = Https::start(params("127.0.0.1"), &["--tls-client-ca", &path("ca.pem")]);
    let shown = format!("--cert {} --key {}", path("ada-c.pem"), path("ada-k.pem"));
    let record = https.measured(&format!("-c 2 -n 10 {shown}"));
    assert_eq!(number(&record["everything"]["good"]), 10);
    for more in ["", "--new-connection"] {
        let line = format!("{} -c 2 -d 20s {more}", https.trusted());
        refused(
            1,
            &line,
            &["it asks for a client certificate", "--cert and --key"],
        );
    }
}

#[test]
fn clients_of_every_kind_speak_tls() {
    let https = Https::start(params("127.0.0.1"), &[]);
    let scenario = https.path("visit.toml");
    std::fs::write(
        &scenario,
        "repeat = 1\n[[step]]\npath = \"/\"\nexpect = { contains = \"hello\" }\n[[step]]\npath = \"/index.html\"\n",
    )
    .unwrap();
    let record = measured(&format!(
        "{} -c 2 -n 50 --idle-connections 4 --idle-request \
         --slow-readers 2@100KB/s --slow-heads 2@200B/s --slow-bodies 1@1KB/s --vanishing 2",
        https.trusted()
    ));
    let groups = record["groups"].as_array().unwrap();
    let tally = |name: &str| {
        let group = groups.iter().find(|group| group["name"] == name).unwrap();
        group["total"]["tally"].clone()
    };
    assert_eq!(number(&tally("clients")["good"]), 50);
    assert_eq!(number(&tally("idle")["held"]), 4);
    assert!(number(&tally("slow-readers")["good"]) > 0);
    // Alone: with the requests of plain clients users end, too.
    let users = https.measured(&format!("--users 3 --scenario {scenario}"));
    assert_eq!(number(&users["everything"]["good"]), 6);
    let player = https.measured("--player 1Mbps --players 1 -d 5s");
    assert!(number(&player["everything"]["good"]) > 0);
}

/// The tally of a run, of plain clients or of users with a scenario of one step.
fn tally_of(peer: &Peer, is_good: bool, has_users: bool) -> serde_json::Value {
    let code = if is_good { 0 } else { 1 }; // no response came
    let load = match has_users {
        false => "-c 2 -n 6".to_owned(),
        true => {
            let scenario = peer.path("visit.toml");
            std::fs::write(&scenario, "repeat = 3\n[[step]]\npath = \"/\"\n").unwrap();
            format!("--users 2 --scenario {scenario}")
        }
    };
    let record = measured_to(code, &format!("{} {load}", peer.trusted()));
    record["groups"][0]["total"]["tally"].clone()
}

#[test]
fn an_end_that_anybody_could_have_made_completes_nothing() {
    const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello";
    const OF_LENGTH: &str =
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
                           Connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello";
    for (response, ending, error) in [
        (UNTIL_CLOSE, Ending::Said, None),
        (UNTIL_CLOSE, Ending::Cut, Some("short_body")),
        ("HTTP/1.0 200 OK\r\n\r\n", Ending::Cut, Some("short_body")),
        // These say themselves that they are whole.
        (OF_LENGTH, Ending::Cut, None),
        (CHUNKED, Ending::Cut, None),
        (SHORT, Ending::Said, Some("short_body")),
        (&UNTIL_CLOSE[..20], Ending::Cut, Some("short_body")),
        ("", Ending::Cut, Some("closed_early")),
    ] {
        let peer = Peer::start(rustls::ALL_VERSIONS, false, (response, ending));
        for has_users in [false, true] {
            let tally = tally_of(&peer, error.is_none(), has_users);
            let what = format!("{response:?} {ending:?}, users: {has_users}: {tally}");
            let good = if error.is_none() { 6 } else { 0 };
            assert_eq!(number(&tally["good"]), good, "{what}");
            let errors = error.map_or(0, |kind| tally["errors"].get(kind).map_or(0, number));
            assert_eq!(good + errors, 6, "{what}");
        }
    }
}

#[test]
fn a_request_that_is_interrupted_by_the_server_arrives_whole_and_once() {
    // Larger than what the socket takes.
    let body: Vec<u8> = (0..4_u32 << 20).flat_map(u32::to_be_bytes).collect();
    let arrived_bytes = Arc::<AtomicU64>::default();
    let peer = Peer::interrupting(body.clone(), Arc::clone(&arrived_bytes));
    let file = peer.path("body");
    std::fs::write(&file, &body).unwrap();
    let options = format!("-c 1 -n 4 --timeout 60s --body-file {file}");
    let all = measured(&format!("{} {options}", peer.trusted()))["everything"].clone();
    assert_eq!(number(&all["good"]), 4, "{all}");
    assert_eq!(number(&all["connections"]), 1, "{all}");
    let arrived_bytes = arrived_bytes.load(SeqCst);
    assert_eq!(number(&all["bytes_sent"]), arrived_bytes, "{all}");
}

#[test]
fn a_server_that_closes_while_its_user_thinks_is_no_error() {
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let peer = Peer::start(rustls::ALL_VERSIONS, false, (RESPONSE, Ending::SaidLater));
    let scenario = peer.path("visit.toml");
    let steps = "repeat = 3\n[[step]]\npath = \"/\"\nthink = \"500ms\"\n";
    std::fs::write(&scenario, steps).unwrap();
    let record = measured(&format!(
        "{} --users 2 --scenario {scenario}",
        peer.trusted()
    ));
    let tally = &record["groups"][0]["total"]["tally"];
    assert_eq!(number(&tally["good"]), 6, "{tally}");
    assert!(tally["errors"]["closed_early"].is_null(), "{tally}");
}

#[test]
fn a_slow_reader_gets_what_came_before_the_end() {
    let content = "x".repeat(8_000);
    let response =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 8000\r\nConnection: close\r\n\r\n{content}");
    let peer = Peer::start(rustls::ALL_VERSIONS, false, (&response, Ending::Said));
    let options = "-c 0 --slow-readers 1@5KB/s -d 5s";
    let record = measured(&format!("{} {options}", peer.trusted()));
    let tally = &record["groups"][0]["total"]["tally"];
    assert!(number(&tally["good"]) > 0, "{tally}");
    assert!(tally["errors"]["short_body"].is_null(), "{tally}");
}

#[test]
fn nothing_but_the_given_key_exchange_and_cipher_is_offered() {
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (options, group, suite) in [
        (
            "--tls-key-exchange x25519 --tls-cipher aes-128-gcm",
            NamedGroup::X25519,
            CipherSuite::TLS13_AES_128_GCM_SHA256,
        ),
        (
            "--tls-key-exchange p256 --tls-cipher aes-256-gcm",
            NamedGroup::secp256r1,
            CipherSuite::TLS13_AES_256_GCM_SHA384,
        ),
        (
            "--tls-key-exchange p384 --tls-cipher chacha20-poly1305",
            NamedGroup::secp384r1,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ),
    ] {
        let peer = Peer::start(rustls::ALL_VERSIONS, false, (RESPONSE, Ending::None));
        measured(&format!("{} -c 2 -n 4 {options}", peer.trusted()));
        let agreed = peer.handshakes.agreed.lock().unwrap();
        assert_eq!(*agreed, [(Some(group), Some(suite)); 2], "{options}");
    }
    // A server of TLS 1.2 alone is refused.
    let peer = Peer::start(&[&rustls::version::TLS12], false, (RESPONSE, Ending::None));
    let line = format!("{} -c 2 -d 20s --tls-cipher aes-128-gcm", peer.trusted());
    refused(1, &line, &["handshake"]);
}

#[test]
fn handshakes_of_tls_1_2_are_full_or_resumed() {
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for has_tickets in [false, true] {
        let versions = [&rustls::version::TLS12];
        let peer = Peer::start(&versions, has_tickets, (RESPONSE, Ending::None));
        for (options, requests, full, resumed) in [
            ("-c 4 -n 40", 40, 4, 0),
            ("-c 1 -n 10 --new-connection", 10, 10, 0),
            ("-c 1 -n 10 --new-connection --tls-resume on", 10, 1, 9),
        ] {
            let before =
                [&peer.handshakes.full, &peer.handshakes.resumed].map(|it| it.load(SeqCst));
            let record = measured(&format!("{} {options}", peer.trusted()));
            let tally = &record["groups"][0]["total"]["tally"];
            let what = format!("tickets: {has_tickets}, {options}: {tally}");
            assert_eq!(number(&tally["good"]), requests, "{what}");
            assert_eq!(number(&tally["handshakes_full"]), full, "{what}");
            assert_eq!(number(&tally["handshakes_resumed"]), resumed, "{what}");
            let after = [&peer.handshakes.full, &peer.handshakes.resumed].map(|it| it.load(SeqCst));
            let counted = [after[0] - before[0], after[1] - before[1]];
            assert_eq!(counted, [full, resumed], "{what}");
        }
        let scenario = peer.path("visit.toml");
        std::fs::write(&scenario, "repeat = 2\n[[step]]\npath = \"/\"\n").unwrap();
        let users = format!("{} --users 3 --scenario {scenario}", peer.trusted());
        assert_eq!(number(&measured(&users)["everything"]["good"]), 6);
    }
}
