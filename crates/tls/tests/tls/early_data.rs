//! Requests that come before the handshake is done.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use loadline_proto::{Body, Context, Exchange, Limits, Outcome};
use loadline_tls::{Certificates, TlsOptions, TlsServer};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::drive::{Driver, config, parse_answers};
use crate::pair::certificate;

/// A server, and a client that sends early data where it may.
fn ends(early_data: bool) -> (TlsServer, Arc<ClientConfig>) {
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
    (
        TlsServer::new(&certificates, &options).unwrap(),
        Arc::new(client),
    )
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
    let (is_early, answers) = ask(&server, &client, POST, &mut Vec::new());
    assert!(is_early && answers.len() == 1);
    assert_eq!(answers[0].0, 425);
    assert_eq!(server.counts().resumed, 2);
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
