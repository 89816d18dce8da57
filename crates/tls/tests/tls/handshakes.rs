//! Handshakes: computed elsewhere, bounded in number and time, resumed; and clients that speak
//! something else.

use std::sync::Arc;

use loadline_proto::{CloseReason, Limits};
use loadline_tls::{HandshakeCounts, Tickets, TlsOptions, TlsServer};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::version::TLS12;
use rustls::{ClientConfig, HandshakeKind};

use crate::drive::{Driver, config, echo, parse_answers};
use crate::pair::{Pair, certificate, client_of, connection, ends, exchange, trusting};

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn driver(server: &TlsServer) -> Driver<'static> {
    Driver::speaking(server.protocol(), &config(Limits::default()), echo)
}

#[test]
fn a_handshake_is_computed_elsewhere() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    pair.server.hold_computing = true;
    pair.settle().unwrap();
    assert!(pair.server.output.is_empty());
    assert_eq!(pair.server.deadline(), None, "the server itself is awaited");
    assert_eq!(pair.server.reading, Some(false));
    pair.server.computed(true);
    // What is left of it needs no worker.
    let answers = pair.open().ask(GET);
    assert_eq!(answers[0].body, b"GET /");
    assert!(pair.server.computing.is_none());
    assert_eq!(server.counts().full, 1);
}

#[test]
fn bytes_that_come_while_it_is_computed_are_kept() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    pair.server.hold_computing = true;
    pair.settle().unwrap();
    pair.server.receive_anyway(b"\x14\x03\x03\x00\x01\x01"); // a change of cipher that says nothing
    pair.server.computed(true);
    assert_eq!(pair.open().ask(GET)[0].body, b"GET /");
}

#[test]
fn without_room_a_handshake_ends() {
    let options = TlsOptions {
        handshakes_max: 1,
        ..TlsOptions::default()
    };
    let (server, client) = ends(&options);
    let mut first = Pair::new(&server, &client);
    first.server.hold_computing = true;
    first.settle().unwrap();
    let mut second = Pair::new(&server, &client);
    second.settle().unwrap();
    assert!(second.server.is_closed());
    assert_eq!(second.server.closes(CloseReason::Refused), 1);
    // There is room again once the first one is done.
    first.server.computed(true);
    first.open();
    Pair::new(&server, &client).open();
    // Workers that have no time.
    let mut third = Pair::new(&server, &client);
    third.server.hold_computing = true;
    third.settle().unwrap();
    third.server.computed(false);
    assert!(third.server.is_closed());
    Pair::new(&server, &client).open();
    let counts = server.counts();
    assert_eq!((counts.full + counts.resumed, counts.refused), (3, 2));
}

#[test]
fn a_client_that_stops_in_the_middle_is_closed() {
    let (server, client) = ends(&TlsOptions::default());
    let timeout_ms = Limits::default().handshake_timeout_ms;
    let hello = Pair::new(&server, &client).out.to_vec();
    for (before, sent) in (0..).zip([0, 1, 4, 5, 100, hello.len() - 1, hello.len()]) {
        let mut driver = driver(&server);
        driver.feed(&hello[..sent]);
        driver.pass(timeout_ms - 1);
        assert!(!driver.is_closed());
        assert_eq!(server.counts().timed_out, before);
        driver.pass(1);
        assert_eq!(driver.closes(CloseReason::Slow), 1, "{sent} bytes");
        assert_eq!(server.counts().timed_out, before + 1, "{sent} bytes");
    }
    // A byte a second gains nothing.
    let mut driver = driver(&server);
    for byte in &hello[..10] {
        driver.drip(&[*byte]).pass(timeout_ms / 10);
    }
    assert!(driver.is_closed());
}

#[test]
fn a_client_that_leaves_in_the_middle() {
    let (server, client) = ends(&TlsOptions::default());
    let hello = Pair::new(&server, &client).out.to_vec();
    let mut left = driver(&server);
    left.hold_computing = true;
    left.feed(&hello).peer_gone();
    assert!(left.is_closed());
    assert_eq!(server.counts().failed, 1);
    drop(left.computing.take()); // as the worker does
    for (failed, sent) in (2..).zip([1, 50, hello.len()]) {
        let mut ended = driver(&server);
        ended.feed(&hello[..sent]).eof();
        assert!(ended.is_closed());
        assert_eq!(server.counts().failed, failed, "{sent} bytes");
    }
    Pair::new(&server, &client).open();
    let counts = server.counts();
    assert_eq!((counts.full, counts.truncated), (1, 0));
}

#[test]
fn a_client_that_leaves_without_a_word_has_not_failed() {
    let (server, _) = ends(&TlsOptions::default());
    let [mut ended, mut gone] = [(); 2].map(|()| driver(&server));
    ended.eof();
    gone.peer_gone();
    assert!(ended.is_closed() && gone.is_closed());
    assert_eq!(server.counts(), HandshakeCounts::default());
}

#[test]
fn a_client_that_leaves_after_a_failure_is_counted_once() {
    let (server, client) = ends(&TlsOptions::default());
    let mut hello = Pair::new(&server, &client).out.to_vec();
    hello[5] = 99; // another message
    let mut failed = driver(&server);
    failed.hold_output = true;
    failed.feed(&hello).peer_gone();
    let mut plain = driver(&server);
    plain.hold_output = true;
    plain.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").peer_gone();
    assert!(failed.is_closed() && plain.is_closed());
    let counts = server.counts();
    assert_eq!((counts.failed, counts.plaintext), (1, 1));
}

#[test]
fn what_is_no_tls_ends_at_once() {
    let (server, _) = ends(&TlsOptions::default());
    for (bytes, answer) in [
        (&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..], true),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
        (b"SSH-2.0-x\r\n", true),
        (b"\x00\x01\x02", false),
        (b"\x16\x02", false),
        (b"\x80\x2e\x01\x00\x02", false), // SSL 2
        (b"\x16\x03\x01\xff\xff", false), // longer than a record may be
    ] {
        let mut driver = driver(&server);
        driver.feed(bytes);
        assert!(driver.is_closed(), "{bytes:?}");
        assert!(driver.seen.is_empty() && driver.computing.is_none());
        assert_eq!(driver.output.starts_with(b"HTTP/1.1 400 "), answer);
        if answer {
            let said = b"\r\n\r\nThis port speaks HTTPS: the address begins with https.";
            assert!(driver.output.ends_with(said));
        }
    }
    assert_eq!(server.counts().plaintext, 7);
}

#[test]
fn a_hello_that_is_none_fails() {
    let (server, client) = ends(&TlsOptions::default());
    let mut wrong = Pair::new(&server, &client).out.to_vec();
    wrong[5] = 99; // another message
    let mut driver = driver(&server);
    driver.feed(&wrong);
    assert!(driver.is_closed());
    assert_eq!(driver.output.first(), Some(&21), "an alert");
    assert_eq!(server.counts().failed, 1);
}

#[test]
fn sessions_are_resumed() {
    let (server, client) = ends(&TlsOptions::default());
    for (full, resumed) in [(1, 0), (1, 1), (1, 2)] {
        let mut pair = Pair::new(&server, &client);
        assert_eq!(pair.open().ask(GET).len(), 1);
        let counts = server.counts();
        assert_eq!((counts.full, counts.resumed), (full, resumed));
    }
}

#[test]
fn sessions_without_tickets_are_remembered_up_to_a_bound() {
    const SESSIONS_MAX: usize = 1024;
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(loadline_tls::Certificates::new(vec![own.clone()]));
    let server = TlsServer::new(&certificates, &TlsOptions::default()).unwrap();
    let ask = |client: &Arc<ClientConfig>| {
        let (mut client, mut driver) = (connection(client), driver(&server));
        exchange(&mut client, &mut driver, &mut 0);
        client.handshake_kind().unwrap()
    };
    let new_client = || {
        let mut client = client_of(&own, &[&TLS12]);
        let ids = Tls12Resumption::SessionIdOnly;
        client.resumption = Resumption::in_memory_sessions(1).tls12_resumption(ids);
        Arc::new(client)
    };
    let first = new_client();
    assert_eq!(ask(&first), HandshakeKind::Full);
    assert_eq!(ask(&first), HandshakeKind::Resumed);
    let last = new_client();
    ask(&last);
    for _ in 1..SESSIONS_MAX {
        ask(&new_client());
    }
    assert_eq!(ask(&last), HandshakeKind::Resumed);
    assert_eq!(ask(&first), HandshakeKind::Full, "it was forgotten");
}

#[test]
fn a_session_is_resumed_on_another_machine() {
    let certificate = certificate(&["localhost"]);
    let client = trusting(&certificate);
    let certificates = Arc::new(loadline_tls::Certificates::new(vec![certificate]));
    let machine = |key: &[u8]| {
        let options = TlsOptions {
            tickets: Arc::new(Tickets::given([("key", key)]).unwrap()),
            ..TlsOptions::default()
        };
        TlsServer::new(&certificates, &options).unwrap()
    };
    let (first, second, stranger) = (machine(&[7; 80]), machine(&[7; 80]), machine(&[8; 80]));
    for (server, is_resumed) in [(&first, false), (&second, true), (&stranger, false)] {
        assert_eq!(Pair::new(server, &client).open().ask(GET).len(), 1);
        assert_eq!(server.counts().resumed == 1, is_resumed);
    }
}

#[test]
fn a_drain_ends_an_idle_connection_with_close_notify() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    assert_eq!(pair.open().ask(GET).len(), 1);
    pair.server.draining();
    pair.settle().unwrap();
    use loadline_proto::Layer as _;
    assert!(pair.server.is_closed() && pair.client.has_ended());
}

/// Its computation was abandoned. In a drain a client in the middle of a handshake is about to ask.
#[test]
fn a_drain_awaits_a_handshake_that_is_computed() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    pair.server.hold_computing = true;
    pair.settle().unwrap();
    pair.server.draining();
    assert!(!pair.server.is_closed());
    pair.server.computed(true);
    let answers = pair.open().ask(GET);
    assert_eq!(answers[0].field("connection"), Some("close"));
    assert!(pair.server.is_closed());
}

/// What rustls keeps of a record was nothing to its connection.
#[test]
fn half_a_record_is_a_request_that_arrives() {
    let (server, client) = ends(&TlsOptions::default());
    let mut pair = Pair::new(&server, &client);
    assert_eq!(pair.open().ask(GET).len(), 1);
    assert!(pair.server.is_idle());
    pair.send(GET);
    let record = std::mem::take(&mut pair.out);
    let (half, rest) = record.split_at(record.len() / 2);
    pair.server.feed(half);
    assert!(!pair.server.is_idle());
    pair.server.draining();
    assert!(!pair.server.is_closed());
    pair.server.feed(rest);
    pair.settle().unwrap();
    let answers = parse_answers(&pair.plain, |_| false);
    assert_eq!(answers[0].field("connection"), Some("close"));
}
