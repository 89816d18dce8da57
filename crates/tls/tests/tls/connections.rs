//! What passes over a connection once its handshake is done, and how it ends.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use loadline_base::{Buffer, ContentVersion, OpenFile};
use loadline_proto::{Body, CloseReason, Context, Exchange, Layer as _, Limits, Outcome};
use loadline_tls::{Certificates, TlsOptions, TlsServer};
use rustls::version::TLS13;

use crate::drive::{Driver, config, echo, parse_answers};
use crate::pair::{Pair, certificate, client_of, connection, ends, exchange};

/// KeyUpdates in a row that rustls takes between two pieces of content.
const KEY_UPDATES_MAX: usize = 32;

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn requests_whatever_the_cuts() {
    let (server, client) = ends(&TlsOptions::default());
    for piece in [1, 2, 7, 100, 5000, usize::MAX] {
        let mut pair = Pair::new(&server, &client);
        pair.piece = piece;
        pair.open();
        let content = "x".repeat(50_000);
        let post = format!(
            "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        let requests = [GET, &post, GET, GET].concat();
        let answers = pair.ask(requests);
        let bodies: Vec<&[u8]> = answers.iter().map(|answer| &answer.body[..]).collect();
        let echo = format!("POST /p {content}");
        assert_eq!(
            bodies,
            [b"GET /", echo.as_bytes(), b"GET /", b"GET /"],
            "{piece}"
        );
    }
}

#[test]
fn an_app_sees_that_the_connection_is_secure() {
    let (server, client) = ends(&TlsOptions::default());
    let handle = |exchange: &mut Exchange, _: &mut Context<'_>| {
        assert!(exchange.is_secure());
        let security = exchange.security.as_deref().unwrap();
        assert_eq!(security.version, "TLSv1.3");
        assert_eq!(security.server_name.as_deref(), Some("localhost"));
        assert_eq!(security.client_subject, None);
        assert!(!security.has_client_certificate);
        exchange.response.body = Body::Bytes(b"seen".to_vec());
        Outcome::Ready
    };
    let mut pair = Pair::handling(&server, &client, "localhost", handle);
    assert_eq!(pair.open().ask(GET)[0].body, b"seen");
}

/// RFC 9112 section 3.2.2: a server takes the absolute form; RFC 9110 section 7.4: of its own scheme.
#[test]
fn an_absolute_target_is_one_of_https() {
    let (server, client) = ends(&TlsOptions::default());
    for (target, status) in [
        ("https://localhost/a", 200),
        ("HTTPS://localhost:8443/a", 200),
        ("http://localhost/a", 421),
    ] {
        let mut pair = Pair::new(&server, &client);
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answers = pair.open().ask(request);
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [status], "{target}");
    }
}

#[test]
fn strict_transport_security_in_every_response() {
    let options = TlsOptions {
        hsts_max_age_s: Some(31_536_000),
        ..TlsOptions::default()
    };
    let (server, client) = ends(&options);
    let handle = |exchange: &mut Exchange, cx: &mut Context<'_>| {
        match exchange.request.target() {
            b"/borrowed" => {
                let fields = loadline_proto::Fields::default();
                exchange.answer_borrowed(loadline_proto::Status::OK, &fields, b"borrowed", cx);
            }
            b"/missing" => exchange.response.error(loadline_proto::Status::NOT_FOUND),
            _ => exchange.response.body = Body::Bytes(vec![b'x'; 100_000]),
        }
        Outcome::Ready
    };
    let mut pair = Pair::handling(&server, &client, "localhost", handle);
    pair.open();
    for target in ["/borrowed", "/missing", "/"] {
        let answer = pair
            .ask(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .remove(0);
        let field = answer.field("strict-transport-security");
        assert_eq!(field, Some("max-age=31536000"), "{target}");
    }
}

#[test]
fn a_large_file_in_pieces() {
    let content: Vec<u8> = (0..300_003).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let open = Arc::new(OpenFile {
        fd: file.as_fd().try_clone_to_owned().unwrap(),
        version: ContentVersion::default(),
        is_local: true,
    });
    let handle = move |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.response.body = Body::File {
            file: Arc::clone(&open),
            offset: 0,
            len: 300_003,
        };
        Outcome::Ready
    };
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::handling(&server, &client, "localhost", handle);
    let answers = pair.open().ask(GET.repeat(3));
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer.body == content));
}

/// Head and content had records of their own.
#[test]
fn pieces_of_a_response_share_records() {
    let (server, client) = ends(&TlsOptions::default());
    let handle = |exchange: &mut Exchange, _: &mut Context<'_>| {
        exchange.response.body = Body::Bytes(vec![b'x'; 40_000]);
        Outcome::Ready
    };
    let mut pair = Pair::handling(&server, &client, "localhost", handle);
    let before = pair.open().server.output.len();
    assert_eq!(pair.ask(GET)[0].body.len(), 40_000);
    let (mut rest, mut count) = (&pair.server.output[before..], 0);
    while let [_, _, _, high, low, behind @ ..] = rest {
        rest = &behind[usize::from(u16::from_be_bytes([*high, *low]))..];
        count += 1;
    }
    assert_eq!(count, 3, "records of 16 KiB");
}

#[test]
fn close_notify_in_both_directions() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    let close = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!(pair.open().ask(close)[0].body, b"GET /");
    assert!(pair.server.is_closed() && pair.client.has_ended());

    // The client's own, behind its request.
    let mut half = Pair::new(&server, &client);
    half.open().send(GET);
    half.client.finish(&mut half.out);
    half.settle().unwrap();
    assert_eq!(parse_answers(&half.plain, |_| false)[0].body, b"GET /");
    half.server.eof();
    half.settle().unwrap();
    assert!(half.server.is_closed() && half.client.has_ended());
    assert_eq!(server.counts().truncated, 0);
}

#[test]
fn an_end_without_close_notify_is_noticed() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    pair.open();
    pair.server.eof();
    assert!(pair.server.is_closed());
    assert_eq!(server.counts().truncated, 1);
    // By the client, too: where a whole answer came and no close_notify, its end of the layer is open.
    let mut pair = Pair::new(&server, &client);
    pair.open().send(GET);
    pair.settle().unwrap();
    assert_eq!(parse_answers(&pair.plain, |_| false)[0].body, b"GET /");
    assert!(!pair.client.has_ended());
}

#[test]
fn a_changed_record_ends_the_connection() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    pair.open().send(GET);
    let last = pair.out.len() - 1;
    pair.out[last] ^= 1;
    let ended = pair.settle();
    assert!(pair.server.is_closed() && pair.server.seen.is_empty());
    assert_eq!(pair.server.closes(CloseReason::BadRequest), 1);
    assert!(
        ended.is_err() || pair.client.has_ended(),
        "it gets an alert"
    );
}

#[test]
fn plain_bytes_go_nowhere_before_the_handshake() {
    let (_, client) = ends(&TlsOptions::default());
    let mut out = Buffer::default();
    let mut layer = client.connect("localhost", &mut out).unwrap();
    let hello = out.len();
    layer.send(b"secret", &mut out);
    assert_eq!(out.len(), hello);
    assert!(client.connect("not a name", &mut out).is_err());
}

#[test]
fn key_updates_without_content_end_the_connection() {
    let certificate = certificate(&["localhost"]);
    let client = Arc::new(client_of(&certificate, &[&TLS13]));
    let certificates = Arc::new(Certificates::new(vec![certificate]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    let open = || {
        let mut client = connection(&client);
        let mut driver = Driver::speaking(server.protocol(), &config(Limits::default()), echo);
        let mut seen = 0;
        exchange(&mut client, &mut driver, &mut seen);
        assert!(!client.is_handshaking());
        (client, driver, seen)
    };
    // As many as may be, and a request; twice.
    let (mut client, mut driver, mut seen) = open();
    for _ in 0..2 {
        for _ in 0..KEY_UPDATES_MAX {
            client.refresh_traffic_keys().unwrap();
            exchange(&mut client, &mut driver, &mut seen);
        }
        client.writer().write_all(GET.as_bytes()).unwrap();
        exchange(&mut client, &mut driver, &mut seen);
    }
    assert!(!driver.is_closed());
    assert_eq!(driver.seen.len(), 2);
    // One more of them, and none of the rest is computed.
    let (mut client, mut driver, mut seen) = open();
    for _ in 0..=KEY_UPDATES_MAX {
        assert!(!driver.is_closed());
        client.refresh_traffic_keys().unwrap();
        exchange(&mut client, &mut driver, &mut seen);
    }
    assert!(driver.is_closed());
    assert_eq!(driver.closes(CloseReason::BadRequest), 1);
}
