//! The lines of the access log, in each form.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;

use crate::drive::Driver;
use crate::http2_bytes::Http2Bytes;
use loadline_proto::{
    AccessFormat, AccessLog, Context, Exchange, ForwardedField, Http1Session, Http2Session,
    Outcome, Protocol, SessionConfig, TrustedProxies,
};

/// 2026-11-21T07:39:37Z.
const UNIX_US: u64 = 1_795_246_777_000_000;

fn driver<'h>(format: AccessFormat, peer: &str) -> Driver<'h> {
    let config = Arc::new(SessionConfig {
        trusted_proxies: TrustedProxies::new(
            &["127.0.0.1".parse().unwrap(), "unix".parse().unwrap()],
            ForwardedField::XForwardedFor,
        ),
        ..SessionConfig::default()
    });
    let hello = |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.response.body = loadline_proto::Body::Bytes(b"hello".to_vec());
        Outcome::Ready
    };
    let mut driver = Driver::from_peer(&config, peer.parse().ok(), hello);
    let mut log = AccessLog::new(format);
    log.tick(5_000_000, UNIX_US + 42);
    driver.log = Some(log);
    driver
}

fn lines(driver: &mut Driver<'_>) -> String {
    let lines = std::mem::take(driver.log.as_mut().unwrap().lines());
    String::from_utf8(lines).expect("a log is UTF-8")
}

/// The line of one request.
fn line(format: AccessFormat, peer: &str, request: &[u8]) -> String {
    let mut driver = driver(format, peer);
    driver.feed(request);
    lines(&mut driver)
}

#[test]
fn one_request_in_every_form() {
    let request = b"GET /a?b=c HTTP/1.1\r\nHost: h:81\r\nReferer: http://r/\r\n\
                    User-Agent: \"me\" \\ \xc3\xa4\r\n\r\n";
    let of = |format| line(format, "192.0.2.1:4000", request);
    assert_eq!(
        of(AccessFormat::Common),
        "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 5\n"
    );
    assert_eq!(
        of(AccessFormat::Combined),
        "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/1.1\" 200 5 \"http://r/\" \
         \"\\\"me\\\" \\\\ \\xc3\\xa4\"\n"
    );
    assert_eq!(
        of(AccessFormat::Json),
        "{\"time\":\"2026-11-21T07:39:37.000042Z\",\"client.address\":\"192.0.2.1\",\
         \"client.port\":4000,\"network.peer.address\":\"192.0.2.1\",\"network.peer.port\":4000,\
         \"http.request.method\":\"GET\",\"url.scheme\":\"http\",\"url.path\":\"/a\",\
         \"url.query\":\"b=c\",\"server.address\":\"h\",\"server.port\":81,\
         \"network.protocol.version\":\"1.1\",\"http.response.status_code\":200,\
         \"http.response.body.size\":5,\"user_agent.original\":\"\\\"me\\\" \\\\ \u{e4}\",\
         \"http.request.header.referer\":[\"http://r/\"],\"duration_us\":0}\n"
    );
}

#[test]
fn the_client_of_a_trusted_proxy_in_every_form() {
    let request =
        b"GET / HTTP/1.0\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\r\n";
    for format in [AccessFormat::Common, AccessFormat::Combined] {
        for peer in ["127.0.0.1:4000", "[::ffff:127.0.0.1]:4000", "unix"] {
            let line = line(format, peer, request);
            assert!(line.starts_with("203.0.113.9 - - ["), "{peer}: {line}");
        }
        let line = line(format, "192.0.2.1:4000", request);
        assert!(line.starts_with("192.0.2.1 - - ["), "{line}");
    }
    let json = line(AccessFormat::Json, "127.0.0.1:4000", request);
    let expected = "\"client.address\":\"203.0.113.9\",\"network.peer.address\":\"127.0.0.1\",\
                    \"network.peer.port\":4000,\"http.request.method\":\"GET\",\
                    \"url.scheme\":\"https\",\"url.path\":\"/\",\"network.protocol.version\":\"1.0\",\
                    \"http.response.status_code\":200";
    assert!(json.contains(expected), "{json}");
    let json = line(AccessFormat::Json, "unix", request);
    assert!(
        json.contains("\"client.address\":\"203.0.113.9\",\"http."),
        "{json}"
    );
    // A Unix socket has no address.
    let plain = b"GET / HTTP/1.0\r\n\r\n";
    assert!(line(AccessFormat::Common, "unix", plain).starts_with("- - - ["));
    let json = line(AccessFormat::Json, "unix", plain);
    assert!(json.contains("000042Z\",\"http.request.method\""), "{json}");
}

#[test]
fn a_request_of_http_2_in_every_form() {
    let of = |format| {
        let (mut client, mut bytes) = Http2Bytes::begin();
        let fields = [("user-agent", "me"), ("referer", "http://r/")];
        bytes.extend(client.request(1, ("GET", "/a?b=c"), &fields, true));
        line(format, "192.0.2.1:4000", &bytes)
    };
    let common = "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=c HTTP/2.0\" 200 5";
    assert_eq!(of(AccessFormat::Common), format!("{common}\n"));
    assert_eq!(
        of(AccessFormat::Combined),
        format!("{common} \"http://r/\" \"me\"\n")
    );
    let json = of(AccessFormat::Json);
    let expected = "\"http.request.method\":\"GET\",\"url.scheme\":\"http\",\"url.path\":\"/a\",\
                    \"url.query\":\"b=c\",\"server.address\":\"h\",\"server.port\":81,\
                    \"network.protocol.version\":\"2\",\"http.response.status_code\":200,\
                    \"http.response.body.size\":5,\"user_agent.original\":\"me\",\
                    \"http.request.header.referer\":[\"http://r/\"],\"duration_us\":0}\n";
    assert!(json.ends_with(expected), "{json}");
}

/// It was logged as one of HTTP/1.1.
#[test]
fn a_refused_request_of_http_2_keeps_its_version() {
    let of = |format| {
        let (mut client, mut bytes) = Http2Bytes::begin();
        let fields = [("user-agent", "me"), ("content-length", "x")];
        bytes.extend(client.request(1, ("GET", "/a"), &fields, true));
        line(format, "192.0.2.1:4000", &bytes)
    };
    let common = of(AccessFormat::Common);
    assert!(common.contains("\"GET /a HTTP/2.0\" 400 "), "{common}");
    let json = of(AccessFormat::Json);
    let expected = "\"network.protocol.version\":\"2\",\"http.response.status_code\":400,";
    assert!(json.contains(expected), "{json}");
    let (mut client, mut bytes) = Http2Bytes::begin();
    let fields = [("a", "b"); 101];
    bytes.extend(client.request(1, ("BREW", "/a"), &fields, true));
    let json = line(AccessFormat::Json, "192.0.2.1:4000", &bytes);
    let expected = "\"http.request.method_original\":\"BREW\",\"url.scheme\":\"http\",\
                    \"url.path\":\"/a\",\"network.protocol.version\":\"2\",\
                    \"http.response.status_code\":431,";
    assert!(json.contains(expected), "{json}");
}

/// Over a layer that is open.
const SECURE_HTTP1: Protocol = Protocol::Other(|config, peer, cx| {
    let mut http = Http1Session::new(config, peer, cx);
    http.layer_opened(&Arc::default(), cx);
    Box::new(http)
});

const SECURE_HTTP2: Protocol = Protocol::Other(|config, peer, cx| {
    let http2 = Http2Session::new(config, peer, Some(&Arc::default()), cx);
    Box::new(http2)
});

/// They were logged as if they had come in plain text.
#[test]
fn requests_that_are_refused_before_they_are_run_have_the_scheme_of_their_connection() {
    let (mut client, mut http2) = Http2Bytes::begin();
    http2.extend(client.request(1, ("GET", "/x"), &[("content-length", "x")], true));
    for (protocol, request) in [
        (SECURE_HTTP1, &b"GET /x HTTP/1.1\r\n\r\n"[..]),
        (SECURE_HTTP2, &http2),
    ] {
        let config = Arc::new(SessionConfig::default());
        let mut driver = Driver::speaking(protocol, &config, |_, _| Outcome::Ready);
        driver.log = Some(AccessLog::new(AccessFormat::Json));
        driver.feed(request);
        let line = lines(&mut driver);
        let expected = "\"url.scheme\":\"https\",\"url.path\":\"/x\",";
        assert!(line.contains(expected), "{line}");
        assert!(line.contains("status_code\":400,"), "{line}");
    }
}

#[test]
fn time_and_duration_are_in_microseconds() {
    let config = Arc::new(SessionConfig::default());
    let waits = |_: &mut Exchange, _: &mut Context<'_>| Outcome::Blocking;
    let mut driver = Driver::new(&config, waits);
    driver.hold_blocking = true;
    let mut log = AccessLog::new(AccessFormat::Json);
    log.tick(5_000_000, UNIX_US + 42);
    driver.log = Some(log);
    driver.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(lines(&mut driver), "");
    // The answer comes in the next second; the line tells when the request did.
    let log = driver.log.as_mut().unwrap();
    log.tick(5_000_000 + 1_234_567, UNIX_US + 42 + 1_234_567);
    driver.complete();
    let line = lines(&mut driver);
    assert!(
        line.starts_with("{\"time\":\"2026-11-21T07:39:37.000042Z\","),
        "{line}"
    );
    assert!(line.ends_with(",\"duration_us\":1234567}\n"), "{line}");
}

#[test]
fn json_is_utf_8_and_nothing_in_it_ends_a_line() {
    for (sent, logged) in [
        (&b"plain"[..], "plain"),
        (
            "\u{e4}\u{20ac}\u{1f600}".as_bytes(),
            "\u{e4}\u{20ac}\u{1f600}",
        ),
        (b"\"\\\t", "\\\"\\\\"), // a tab at the end is no part of the value
        (b"a\tb", "a\\u0009b"),
        // No UTF-8: a byte alone, Latin-1, a sequence that is cut off, an encoded surrogate.
        (b"\xff", "\u{fffd}"),
        (b"caf\xe9!", "caf\u{fffd}!"),
        (b"\xe2\x82", "\u{fffd}"),
        (b"\xe2\x82x", "\u{fffd}x"),
        (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        // What ends a line to some readers, or is an order to a terminal.
        ("a\u{85}b\u{9b}31mc".as_bytes(), "a\\u0085b\\u009b31mc"),
        ("a\u{2028}b\u{2029}c".as_bytes(), "a\\u2028b\\u2029c"),
    ] {
        let request = [
            b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: ",
            sent,
            b"\r\n\r\n",
        ];
        let line = line(AccessFormat::Json, "192.0.2.1:4000", &request.concat());
        let expected = format!("\"user_agent.original\":\"{logged}\",\"duration_us\"");
        assert!(line.contains(&expected), "{sent:?}: {line}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn long_text_is_cut_between_characters() {
    for (sent, count) in [
        ("x", 2048),
        ("\u{e4}", 1024),
        ("\u{20ac}", 682),
        ("\u{1f600}", 512),
    ] {
        for shift in 0..4 {
            let agent = "-".repeat(shift) + &sent.repeat(3000 / sent.len() + 1);
            let request = format!("GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n");
            let line = line(AccessFormat::Json, "192.0.2.1:4000", request.as_bytes());
            let agent = line.split("user_agent.original").nth(1).unwrap();
            let kept = agent.matches(sent).count();
            assert!(!line.contains('\u{fffd}'), "{sent} {shift}");
            assert!(
                (count - 4..=count).contains(&kept),
                "{sent} {shift}: {kept}"
            );
        }
    }
}

#[test]
fn targets_and_hosts_of_every_form() {
    for (request, expected) in [
        (
            "GET http://h:81/x?y HTTP/1.1\r\nHost: other\r\n",
            "\"http.request.method\":\"GET\",\"url.scheme\":\"http\",\"url.path\":\"/x\",\
             \"url.query\":\"y\",\"server.address\":\"h\",\"server.port\":81,\"network",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n",
            "\"http.request.method\":\"OPTIONS\",\"url.scheme\":\"http\",\"url.path\":\"*\",\
             \"server.address\":\"h\",\"network",
        ),
        (
            "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n",
            "\"http.request.method\":\"CONNECT\",\"url.scheme\":\"http\",\
             \"server.address\":\"h\",\"server.port\":443,\"network",
        ),
        (
            "BREW /pot?a?b HTTP/1.1\r\nHost: [2001:db8::1]:81\r\n",
            "\"http.request.method\":\"_OTHER\",\"http.request.method_original\":\"BREW\",\
             \"url.scheme\":\"http\",\"url.path\":\"/pot\",\"url.query\":\"a?b\",\
             \"server.address\":\"2001:db8::1\",\"server.port\":81,\"network",
        ),
        (
            "GET /? HTTP/1.1\r\nHost: [::1]\r\n",
            "\"url.path\":\"/\",\"url.query\":\"\",\"server.address\":\"::1\",\"network",
        ),
        // What was refused: as far as it was understood, else the line as it came.
        (
            "GET /x HTTP/1.1\r\n",
            "\"http.request.method\":\"GET\",\"url.scheme\":\"http\",\"url.path\":\"/x\",\
             \"network.protocol.version\":\"1.1\",\"http.response.status_code\":400",
        ),
        (
            "GET /\" HTTP/9.9\r\nHost: h\r\n",
            "\"request\":\"GET /\\\" HTTP/9.9\",\"http.response.status_code\":505",
        ),
        (
            "GET  / HTTP/1.1\r\nHost: h\r\n",
            "\"request\":\"GET  / HTTP/1.1\",\"http.response.status_code\":400",
        ),
    ] {
        let request = format!("{request}\r\n");
        let line = line(AccessFormat::Json, "192.0.2.1:4000", request.as_bytes());
        assert!(line.contains(expected), "{request}: {line}");
    }
}
