//! Behind a proxy: who the client is to the log and to accounts, and what is said when nobody has named
//! the proxy.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use crate::util::{Server, architectures, connect, site, unix};

/// Asks over a connection of its own and reads to the end.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What stands between two parts of a text.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let (_, rest) = text
        .split_once(begin)
        .unwrap_or_else(|| panic!("no {begin} in {text}"));
    rest.split_once(end).expect("an end").0
}

/// A login that is refused; returns the head of the answer with the form.
fn log_in(way: &Way<'_>, fields: &str) -> String {
    let head = format!("HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}");
    let answer = way.ask(&format!("GET /accounts/login {head}\r\n"));
    let (form_head, form) = answer.split_once("\r\n\r\n").expect("a whole answer");
    assert!(form_head.starts_with("HTTP/1.1 200 "), "{answer}");
    let cookie = between(&form_head.to_lowercase(), "set-cookie: ", "=").to_owned();
    let start = form_head.to_lowercase().find(&cookie).expect("the cookie");
    let cookie = form_head[start..].split(';').next().expect("a cookie");
    let token = between(form, "name=\"token\" value=\"", "\"");
    let content = format!("token={token}&name=nobody&password=wrong+wrong");
    let answer = way.ask(&format!(
        "POST /accounts/login {head}Cookie: {cookie}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    ));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    form_head.to_owned()
}

/// How a server is reached.
enum Way<'s> {
    Tcp(&'s Server),
    Unix(&'s Path),
}

impl Way<'_> {
    fn ask(&self, request: &str) -> String {
        match self {
            Self::Tcp(server) => ask(server.connect(), request),
            Self::Unix(path) => ask(unix(path), request),
        }
    }
}

#[test]
fn the_log_and_accounts_see_the_same_client_under_every_architecture() {
    for architecture in architectures() {
        for (field, forwarded) in [
            (
                "x-forwarded-for",
                "X-Forwarded-For: 6.6.6.6, 203.0.113.9:80\r\nX-Forwarded-Proto: https\r\n\
                 Forwarded: for=6.6.6.6\r\n",
            ),
            (
                "forwarded",
                "Forwarded: for=6.6.6.6;x=\", for=\"203.0.113.9:80\";proto=https\r\n\
                 X-Forwarded-For: 6.6.6.6\r\n",
            ),
        ] {
            let site = site();
            let state = tempfile::tempdir().unwrap();
            let of_state = |name: &str| state.path().join(name).display().to_string();
            let socket = state.path().join("socket");
            let log = of_state("log");
            let more = [
                "--listen",
                "127.0.0.1:0",
                "--listen",
                &format!("unix:{}", socket.display()),
                "--trust-proxy",
                "127.0.0.0/8",
                "--trust-proxy",
                "unix",
                "--trust-proxy-field",
                field,
                "--architecture",
                architecture,
                "--accounts",
                &format!("sqlite:{}", of_state("accounts.db")),
                "--access-log",
                &log,
                "--log-format",
                "json",
            ];
            let mut server = Server::start_with(site.path(), &more, std::process::Stdio::null());
            for way in [Way::Tcp(&server), Way::Unix(&socket)] {
                let head = log_in(&way, forwarded);
                let line = server.line_with("login refused");
                assert!(
                    line.contains("203.0.113.9"),
                    "{architecture} {field}: {line}"
                );
                assert!(
                    head.contains("__Host-") && head.contains("; Secure"),
                    "{head}"
                );
            }
            server.signal("TERM");
            assert_eq!(server.wait().code(), Some(0), "{architecture}");
            let text = fs::read_to_string(&log).unwrap();
            let mut peers = Vec::new();
            for line in text.lines() {
                let value: serde_json::Value = serde_json::from_str(line).expect(line);
                assert_eq!(value["client.address"], "203.0.113.9", "{line}");
                assert_eq!(value["client.port"], 80, "{line}");
                assert_eq!(value["url.scheme"], "https", "{line}");
                let peer = &value["network.peer.address"];
                peers.push(peer.as_str().unwrap_or("none").to_owned());
            }
            peers.sort(); // threads write their lines when they come to it
            assert_eq!(peers, ["127.0.0.1", "127.0.0.1", "none", "none"], "{text}");
        }
    }
}

#[test]
fn accounts_say_transport_security_to_clients_of_a_proxy() {
    for (more, said) in [
        (&[][..], "max-age=31536000"),
        (&["--hsts", "30"], "max-age=2592000"),
        (&["--hsts", "0"], "max-age=0"),
    ] {
        let site = site();
        let state = tempfile::tempdir().unwrap();
        let accounts = format!("sqlite:{}", state.path().join("accounts.db").display());
        let proxy = ["--accounts", &accounts, "--trust-proxy", "127.0.0.1"];
        let server = Server::start(site.path(), &[&proxy[..], more].concat());
        let request = "GET /accounts/login HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                       X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n";
        let answer = ask(server.connect(), request).to_lowercase();
        let name = "strict-transport-security: ";
        let fields = answer.lines().filter_map(|line| line.strip_prefix(name));
        assert_eq!(fields.collect::<Vec<_>>(), [said], "{more:?}");
    }
}

#[test]
fn fields_of_who_is_no_trusted_proxy_change_nothing() {
    let forwarded = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    for trusted in [&[][..], &["--trust-proxy", "192.0.2.1"]] {
        let site = site();
        let state = tempfile::tempdir().unwrap();
        let log = state.path().join("log");
        let accounts = format!("sqlite:{}", state.path().join("accounts.db").display());
        let path = log.to_str().unwrap();
        let more = [&["--accounts", &accounts, "--access-log", path], trusted].concat();
        let mut server = Server::start(site.path(), &more);
        let head = log_in(&Way::Tcp(&server), forwarded);
        assert!(
            !head.contains("__Host-") && !head.contains("Secure"),
            "{head}"
        );
        let line = server.line_with("login refused");
        assert!(line.contains("127.0.0.1"), "{line}");
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.lines().all(|line| line.starts_with("127.0.0.1 - - [")),
            "{text}"
        );
    }
}

/// Otherwise a proxy that speaks TLS for the server would lead its clients in a circle; and nobody else may say so.
#[test]
fn what_a_trusted_proxy_received_by_https_is_not_redirected_nor_are_unix_sockets() {
    const FORWARDED: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    for architecture in architectures() {
        for (trusted, status) in [("127.0.0.1", "200"), ("192.0.2.1", "308")] {
            let (site, state) = (site(), tempfile::tempdir().unwrap());
            let socket = state.path().join("socket");
            let unix_address = format!("unix:{}", socket.display());
            let listen = ["127.0.0.1:0", "https://127.0.0.1:0", &unix_address];
            let mut more = vec!["--tls", "self-signed", "--https-redirect"];
            more.extend(["--architecture", architecture, "--trust-proxy", trusted]);
            more.extend(listen.iter().flat_map(|address| ["--listen", *address]));
            let server = Server::start_with(site.path(), &more, std::process::Stdio::null());
            for (way, method, fields, status) in [
                (Way::Tcp(&server), "GET", FORWARDED, status),
                (Way::Tcp(&server), "GET", "", "308"),
                (Way::Tcp(&server), "POST", "", "308"), // which keeps the method
                (Way::Unix(&socket), "GET", "", "200"),
            ] {
                let head = format!("{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
                let answer = way.ask(&format!("{head}{fields}\r\n"));
                let expected = format!("HTTP/1.1 {status} ");
                assert!(answer.starts_with(&expected), "{architecture}: {answer}");
            }
        }
    }
}

/// What is said of a proxy by a server that is asked with these fields, over each way twice.
fn said(architecture: &str, trusted: &[&str], fields: [&str; 2], ways: [bool; 2]) -> Vec<String> {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("socket");
    let unix_address = format!("unix:{}", socket.display());
    let more = [
        &[
            "--listen",
            "127.0.0.1:0",
            "--listen",
            &unix_address,
            "--architecture",
            architecture,
        ],
        trusted,
    ]
    .concat();
    let mut server = Server::start_with(site.path(), &more, std::process::Stdio::null());
    for is_unix in ways {
        for fields in fields {
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
            let answer = match is_unix {
                false => ask(connect(server.address()), &request),
                true => ask(unix(&socket), &request),
            };
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let mut lines = server.rest();
    lines.retain(|line| line.contains("--trust-proxy"));
    lines
}

#[test]
fn a_proxy_that_nobody_named_is_said_once_with_what_would_be_right() {
    const VIA: &str = "X-Forwarded-For: 203.0.113.9\r\n";
    const STANDARD: &str = "Forwarded: for=203.0.113.9\r\n";
    let (tcp, unix) = (false, true);
    for architecture in architectures() {
        for (trusted, fields, ways, right) in [
            (
                &[][..],
                [VIA, VIA],
                [tcp, unix],
                Some("--trust-proxy 127.0.0.1"),
            ),
            (
                &[],
                [VIA, STANDARD],
                [unix, tcp],
                Some("--trust-proxy unix"),
            ),
            (
                &[],
                ["", STANDARD],
                [tcp, tcp],
                Some("--trust-proxy 127.0.0.1 --trust-proxy-field forwarded"),
            ),
            (&[], ["", ""], [tcp, unix], None),
            // Another one was named.
            (
                &["--trust-proxy", "127.0.0.1"],
                [VIA, STANDARD],
                [tcp, unix],
                Some("--trust-proxy unix"),
            ),
            (
                &["--trust-proxy", "127.0.0.1", "--trust-proxy", "unix"],
                [VIA, STANDARD],
                [tcp, unix],
                None,
            ),
        ] {
            let lines = said(architecture, trusted, fields, ways);
            match (right, &lines[..]) {
                (None, []) => {}
                (Some(right), [line]) => {
                    assert!(
                        line.contains("WARN") && line.ends_with(right),
                        "{architecture}: {line}"
                    );
                }
                _ => panic!("{architecture} {fields:?} {ways:?}: {right:?} {lines:?}"),
            }
        }
    }
}
