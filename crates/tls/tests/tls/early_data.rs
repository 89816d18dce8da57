//! Requests that come before the handshake is done.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use loadline_proto::hpack::Decoder;
use loadline_proto::http2::frame::{FrameHead, Kind, PREFACE, flags, write_frame};
use loadline_proto::{Body, CloseReason, Context, Exchange, Limits, Outcome};
use loadline_tls::{Certificates, TlsOptions, TlsServer};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, Error, NamedGroup, RootCertStore};

use crate::drive::{Driver, config, parse_answers};
use crate::pair::{certificate, connection, exchange, receive, sent_by};

/// A server, and a client that sends early data where it may.
fn ends(early_data: bool) -> (TlsServer, Arc<ClientConfig>) {
    let ([server, _], client) = twins(early_data);
    (server, client)
}

/// The same with two servers of one certificate. Neither knows sessions of the other.
fn twins(early_data: bool) -> ([TlsServer; 2], Arc<ClientConfig>) {
    let own = certificate(&["localhost"]);
    let options = TlsOptions {
        early_data,
        ..TlsOptions::default()
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(own.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut client = builder.with_root_certificates(roots).with_no_client_auth();
    client.enable_early_data = true;
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let certificates = Arc::new(Certificates::new(vec![own]));
    let server = || TlsServer::new(&certificates, &options).unwrap();
    ([server(), server()], Arc::new(client))
}

fn whether_early(exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
    let is_early = exchange.security.as_ref().unwrap().is_early;
    exchange.response.body = Body::Bytes(if is_early { b"early" } else { &b"late"[..] }.to_vec());
    Outcome::Ready
}

/// Sends a request as early as it may; says whether it was early data, and what the answers are. With
/// `copy`, the first message is kept.
fn ask(
    server: &TlsServer,
    client: &Arc<ClientConfig>,
    request: &str,
    copy: &mut Vec<u8>,
) -> (bool, Vec<(u16, Vec<u8>)>) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let limits = config(Limits::default());
    let mut driver = Driver::speaking(server.protocol(), &limits, whether_early);
    let mut is_early = false;
    if let Some(mut early) = client.early_data() {
        is_early = early.write(request.as_bytes()).unwrap() == request.len();
    }
    let (mut delivered, mut plain, mut is_first) = (0, Vec::new(), true);
    let mut is_asked = is_early;
    loop {
        if !client.is_handshaking() && !is_asked {
            client.writer().write_all(request.as_bytes()).unwrap();
            is_asked = true;
        }
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
        if std::mem::take(&mut is_first) {
            copy.clone_from(&out);
        }
        driver.feed(&out);
        let new = driver.output[delivered..].to_vec();
        delivered += new.len();
        let mut rest = &new[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
            let _ = client.reader().read_to_end(&mut plain); // ends with what there is
        }
        if out.is_empty() && new.is_empty() {
            let accepted = is_early && client.is_early_data_accepted();
            let answers = parse_answers(&plain, |_| false);
            let answers = answers.into_iter().map(|it| (it.status, it.body)).collect();
            return (accepted, answers);
        }
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";

#[test]
fn early_data_is_refused_unless_asked_for() {
    let (server, client) = ends(false);
    for _ in 0..3 {
        let (is_early, answers) = ask(&server, &client, GET, &mut Vec::new());
        assert!(!is_early);
        assert_eq!(answers, [(200, b"late".to_vec())]);
    }
}

#[test]
fn safe_requests_are_served_and_others_are_not() {
    let (server, client) = ends(true);
    let (is_early, answers) = ask(&server, &client, GET, &mut Vec::new());
    assert_eq!((is_early, answers), (false, vec![(200, b"late".to_vec())]));
    let (is_early, answers) = ask(&server, &client, GET, &mut Vec::new());
    assert_eq!((is_early, answers), (true, vec![(200, b"early".to_vec())]));
    let request = POST.replace("POST", "OPTIONS");
    let (is_early, answers) = ask(&server, &client, &request, &mut Vec::new());
    assert_eq!((is_early, answers), (true, vec![(200, b"early".to_vec())]));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let request = POST.replace("POST", method);
        let (is_early, answers) = ask(&server, &client, &request, &mut Vec::new());
        assert!(is_early && answers.len() == 1, "{method}");
        assert_eq!(answers[0].0, 425, "{method}");
    }
    assert_eq!(server.counts().resumed, 6);
}

/// Of HPACK's static table (RFC 7541 appendix A).
const METHOD_GET: u8 = 0x82;
const METHOD_POST: u8 = 0x83;

/// Sends a request over HTTP/2 as early as it may; says of each request that the handler saw whether it was early
/// data, and what the statuses of all responses are.
fn ask_over_http2(
    server: &TlsServer,
    client: &Arc<ClientConfig>,
    method: u8,
) -> (Vec<bool>, Vec<String>) {
    let mut request = PREFACE.to_vec();
    write_frame(Kind::Settings, 0, 0, &[], &mut request);
    // By https, of "/", and the authority is spelled out.
    let block = [&[method, 0x87, 0x84, 0x01, 9][..], b"localhost"].concat();
    let whole = flags::END_HEADERS | flags::END_STREAM;
    write_frame(Kind::Headers, whole, 1, &block, &mut request);
    let mut seen = Vec::new();
    let handle = |exchange: &mut Exchange, cx: &mut Context<'_>| {
        seen.push(exchange.security.as_ref().unwrap().is_early);
        whether_early(exchange, cx)
    };
    let limits = config(Limits::default());
    let mut driver = Driver::speaking(server.protocol(), &limits, handle);
    let (mut client, mut received) = (connection(client), 0);
    let mut is_early = false;
    if let Some(mut early) = client.early_data() {
        is_early = early.write(&request).unwrap() == request.len();
    }
    exchange(&mut client, &mut driver, &mut received);
    if !is_early {
        client.writer().write_all(&request).unwrap();
        exchange(&mut client, &mut driver, &mut received);
    }
    assert!(!client.is_handshaking() && !driver.is_closed());
    assert_eq!(client.is_early_data_accepted(), is_early);
    let mut plain = Vec::new();
    let _ = client.reader().read_to_end(&mut plain); // ends with what there is
    drop(driver);
    (seen, statuses(&plain))
}

/// Of the responses in these frames.
fn statuses(frames: &[u8]) -> Vec<String> {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    let mut rest = frames;
    while let Some((head, behind)) = rest.split_first_chunk() {
        let head = FrameHead::parse(head);
        let (payload, next) = behind.split_at(head.len);
        rest = next;
        if head.kind == Kind::Headers {
            let field = |name: &[u8], value: &[u8]| {
                if name == b":status" {
                    found.push(String::from_utf8_lossy(value).into_owned());
                }
            };
            decoder.decode(payload, &mut Vec::new(), field).unwrap();
        }
    }
    found
}

#[test]
fn safe_requests_over_http2_are_served_and_others_are_not() {
    let (server, client) = ends(true);
    let mut client = ClientConfig::clone(&client);
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    for (method, seen, status) in [
        (METHOD_GET, &[false][..], "200"), // there is no session yet
        (METHOD_GET, &[true], "200"),
        (METHOD_POST, &[], "425"),
    ] {
        let found = ask_over_http2(&server, &client, method);
        assert_eq!(found, (seen.to_vec(), vec![status.to_owned()]));
    }
    let counts = server.counts();
    assert_eq!((counts.full, counts.resumed), (1, 2));
}

#[test]
fn a_copy_is_not_served() {
    let (server, client) = ends(true);
    let mut first = Vec::new();
    ask(&server, &client, GET, &mut first);
    ask(&server, &client, GET, &mut first);
    let mut seen = 0;
    let limits = config(Limits::default());
    let handle = |exchange: &mut Exchange, cx: &mut Context<'_>| {
        seen += 1;
        whether_early(exchange, cx)
    };
    Driver::speaking(server.protocol(), &limits, handle).feed(&first);
    assert_eq!(seen, 0);
}

/// What may come before the handshake is done, in requests of 64 bytes: 16 KiB.
const EARLY_REQUESTS_MAX: usize = 256;

/// So many requests of 64 bytes.
fn requests(count: usize) -> String {
    let target = "x".repeat(29);
    let request = format!("GET /{target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(request.len(), 64);
    request.repeat(count)
}

/// Remembers sessions as other clients do, but for how much early data the server allows.
#[derive(Debug)]
struct Boundless(ClientSessionMemoryCache);

impl ClientSessionStore for Boundless {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.0.set_tls12_session(name, session);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.0.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, session: Tls13ClientSessionValue) {
        let mut session = session;
        session._private_set_max_early_data_size(1 << 20); // the library has it for tests
        self.0.insert_tls13_ticket(name, session);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(name)
    }
}

/// A client without sessions yet that sends more early data than it may.
fn boundless(client: &ClientConfig) -> Arc<ClientConfig> {
    let mut client = client.clone();
    client.resumption = Resumption::store(Arc::new(Boundless(ClientSessionMemoryCache::new(8))));
    Arc::new(client)
}

/// Sends early data, piece by piece, without the end of a handshake; then reads what has come of it.
fn send_early(
    driver: &mut Driver<'_>,
    client: &Arc<ClientConfig>,
    pieces: &[&str],
) -> Result<(), Error> {
    let mut client = connection(client);
    for piece in pieces {
        let mut early = client.early_data().expect("a session for it");
        early.write_all(piece.as_bytes()).unwrap();
        driver.feed(&sent_by(&mut client));
    }
    let mut received = &driver.output[..];
    while !received.is_empty() {
        client.read_tls(&mut received).unwrap();
        client.process_new_packets()?;
        let _ = client.reader().read_to_end(&mut Vec::new()); // ends with what there is
    }
    Ok(())
}

/// It stayed open for as long as an idle connection.
#[test]
fn a_handshake_that_is_abandoned_behind_early_data_has_its_deadline() {
    let (server, client) = ends(true);
    ask(&server, &client, GET, &mut Vec::new());
    let limits = Limits::default();
    assert!(limits.handshake_timeout_ms < limits.idle_timeout_ms);
    let config = config(limits.clone());
    let mut driver = Driver::speaking(server.protocol(), &config, whether_early);
    send_early(&mut driver, &client, &[GET]).unwrap();
    driver.pass(limits.handshake_timeout_ms - 1);
    assert!(!driver.is_closed() && driver.seen.len() == 1);
    assert_eq!(server.counts().timed_out, 0);
    driver.pass(1);
    assert_eq!(driver.closes(CloseReason::Slow), 1);
    assert_eq!(server.counts().timed_out, 1);
}

#[test]
fn a_client_that_leaves_behind_early_data_has_failed() {
    let (server, client) = ends(true);
    for failed in [1, 2] {
        ask(&server, &client, GET, &mut Vec::new());
        let limits = config(Limits::default());
        let mut driver = Driver::speaking(server.protocol(), &limits, whether_early);
        send_early(&mut driver, &client, &[GET]).unwrap();
        match failed {
            1 => driver.eof(),
            _ => driver.peer_gone(),
        };
        assert!(driver.is_closed());
        let counts = server.counts();
        assert_eq!((counts.failed, counts.truncated), (failed, 0));
    }
}

/// Its end is in the socket, which is not read meanwhile.
#[test]
fn a_handshake_behind_early_data_does_not_end_while_the_server_responds() {
    let (server, client) = ends(true);
    ask(&server, &client, GET, &mut Vec::new());
    let limits = Limits::default();
    let config = config(limits.clone());
    let blocking = |_: &mut Exchange, _: &mut Context<'_>| Outcome::Blocking;
    let mut driver = Driver::speaking(server.protocol(), &config, blocking);
    driver.hold_blocking = true;
    let mut client = connection(&client);
    let mut early = client.early_data().expect("a session for it");
    early.write_all(GET.as_bytes()).unwrap();
    driver.feed(&sent_by(&mut client));
    receive(&mut client, &driver, &mut 0);
    driver.feed(&sent_by(&mut client));
    driver.pass(2 * limits.handshake_timeout_ms);
    assert_eq!(server.counts().resumed, 0, "it was not read yet");
    driver.complete().pass(limits.idle_timeout_ms - 1);
    assert!(!driver.is_closed());
    let counts = server.counts();
    assert_eq!((counts.resumed, counts.timed_out), (1, 0));
}

/// Two steps in a row on a connection's own thread are its share: it looks at the clock then, with an answer that
/// is not sent yet.
#[test]
fn an_answer_to_early_data_is_sent_though_the_handshake_is_late() {
    let (server, client) = ends(true);
    ask(&server, &client, GET, &mut Vec::new());
    let limits = Limits::default();
    let config = config(limits.clone());
    let blocking = |_: &mut Exchange, _: &mut Context<'_>| Outcome::Blocking;
    let mut driver = Driver::speaking(server.protocol(), &config, blocking);
    driver.hold_blocking = true;
    send_early(&mut driver, &client, &[GET]).unwrap();
    driver.pass(2 * limits.handshake_timeout_ms);
    let sent = driver.output.len();
    driver.complete_and_expire();
    assert!(driver.output.len() > sent);
    assert!(!driver.is_closed());
    driver.expire();
    assert_eq!(driver.closes(CloseReason::Slow), 1);
    assert_eq!(server.counts().timed_out, 1);
}

#[test]
fn early_data_up_to_its_bound_is_served() {
    let (server, client) = ends(true);
    ask(&server, &client, GET, &mut Vec::new());
    let most = requests(EARLY_REQUESTS_MAX);
    let (is_early, answers) = ask(&server, &client, &most, &mut Vec::new());
    assert!(is_early);
    assert_eq!(answers.len(), EARLY_REQUESTS_MAX);
    assert!(answers.iter().all(|it| *it == (200, b"early".to_vec())));
}

/// RFC 8446 section 4.2.10: the connection ends with `unexpected_message`.
#[test]
fn early_data_beyond_its_bound_ends_the_connection() {
    let (server, client) = ends(true);
    let client = boundless(&client);
    let most = requests(EARLY_REQUESTS_MAX);
    let beyond = format!("{most}G");
    let mut failed = 0;
    for (pieces, served) in [
        (&[&beyond[..]][..], 0), // one step of the handshake
        (&[&most[..], "G"][..], EARLY_REQUESTS_MAX),
    ] {
        ask(&server, &client, GET, &mut Vec::new());
        let mut seen = 0;
        let handle = |exchange: &mut Exchange, cx: &mut Context<'_>| {
            seen += 1;
            whether_early(exchange, cx)
        };
        let limits = config(Limits::default());
        let mut driver = Driver::speaking(server.protocol(), &limits, handle);
        let result = send_early(&mut driver, &client, pieces);
        let alert = Error::AlertReceived(AlertDescription::UnexpectedMessage);
        assert_eq!(result, Err(alert));
        assert!(driver.is_closed());
        drop(driver);
        assert_eq!(seen, served);
        failed += 1;
        assert_eq!(server.counts().failed, failed);
    }
}

/// A server that was restarted knows no session: it skips early data up to the bound, in encrypted bytes.
/// What is beyond is a record that cannot be decrypted. rustls 0.23 looks at a record that it skips again, and
/// counts it again, with what comes next: so half of the bound is certain.
#[test]
fn early_data_that_is_refused_is_skipped_up_to_its_bound() {
    let ([server, restarted], client) = twins(true);
    let (before, after) = (boundless(&client), boundless(&client));
    for client in [&before, &after] {
        ask(&server, client, GET, &mut Vec::new());
    }
    let (is_early, answers) = ask(&restarted, &before, &requests(120), &mut Vec::new());
    assert!(!is_early && answers.is_empty(), "{answers:?}");
    assert_eq!(restarted.counts().full, 1);
    let limits = config(Limits::default());
    let mut driver = Driver::speaking(restarted.protocol(), &limits, whether_early);
    let beyond = requests(EARLY_REQUESTS_MAX + 1);
    let result = send_early(&mut driver, &after, &[&beyond[..]]);
    let alert = Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(result, Err(alert));
    assert!(driver.is_closed());
    assert_eq!((restarted.counts().full, restarted.counts().failed), (1, 1));
}
