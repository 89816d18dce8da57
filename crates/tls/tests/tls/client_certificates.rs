//! Clients that show a certificate, and those that should have.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_proto::{Body, Context, Exchange, Limits, Outcome};
use loadline_tls::{
    Authorities, Certificate, Certificates, ClientAuthorityFile, ClientCertificates, Profile,
    Tickets, TlsClient, TlsOptions, TlsServer,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SerialNumber,
};

use rustls::client::{ResolvesClientCert, Resumption, Tls12Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SignatureScheme, SupportedProtocolVersion};

use crate::drive::{Driver, config, parse_answers};
use crate::pair::{Pair, certificate, client_of, connection, exchange, receive, sent_by, trusting};

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// An authority, and a client's certificate of it.
fn authority_and_client() -> (Authorities, Certificate) {
    let (ca_pem, client) = pem_and_client();
    let authority = Authorities::from_pem("ca.pem", ca_pem.as_bytes()).unwrap();
    (authority, client)
}

/// An authority in PEM, and what it signs with.
fn issuer() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name
        .push(DnType::CommonName, "our authority");
    let pem = ca.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(ca, key))
}

/// An authority in PEM, and a client's certificate of it.
fn pem_and_client() -> (String, Certificate) {
    let (ca_pem, issuer) = issuer();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Example");
    params.distinguished_name.push(DnType::CommonName, "ada");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = params.signed_by(&key, &issuer).unwrap().pem();
    let client = Certificate::from_pem(
        ("client.pem", client.as_bytes()),
        ("key.pem", key.serialize_pem().as_bytes()),
    );
    (ca_pem, client.unwrap())
}

fn whoami(exchange: &mut Exchange, _: &mut Context<'_>) -> Outcome {
    let security = exchange.security.as_deref().unwrap();
    let subject = match security.client_subject.as_deref() {
        Some(subject) => subject,
        None if security.has_client_certificate => "somebody",
        None => "nobody",
    };
    exchange.response.body = Body::Bytes(subject.as_bytes().to_vec());
    Outcome::Ready
}

/// Whom the server takes the client for; `None`: there is no connection.
fn ask(server: &TlsServer, client: &TlsClient) -> Option<String> {
    ask_in_pieces(server, client, usize::MAX)
}

/// The same with everything cut into pieces of so many bytes.
fn ask_in_pieces(server: &TlsServer, client: &TlsClient, piece: usize) -> Option<String> {
    let mut pair = Pair::handling(server, client, "localhost", whoami);
    pair.piece = piece;
    pair.settle().ok()?;
    if pair.server.is_closed() {
        return None;
    }
    Some(String::from_utf8(pair.ask(GET).remove(0).body).unwrap())
}

#[test]
fn the_subject_reaches_apps() {
    let (authority, certificate_of_ada) = authority_and_client();
    let (_, certificate_of_a_stranger) = authority_and_client();
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let trusted = Authorities::one(own.der()).unwrap();
    let with = |certificate| {
        TlsClient::with_certificate(&trusted, Profile::Intermediate, certificate).unwrap()
    };
    let (ada, stranger) = (with(&certificate_of_ada), with(&certificate_of_a_stranger));
    let nobody = trusting(&own);
    let server = |client_certificates| {
        let options = TlsOptions {
            client_certificates,
            ..TlsOptions::default()
        };
        TlsServer::new(&certificates, &options).unwrap()
    };
    let optional = server(ClientCertificates::Optional(authority.clone()));
    let required = server(ClientCertificates::Required(authority));
    assert_eq!(ask(&optional, &ada).as_deref(), Some("CN=ada,O=Example"));
    assert_eq!(ask(&optional, &nobody).as_deref(), Some("nobody"));
    // The second time by a ticket.
    for resumed in 0..2 {
        assert_eq!(ask(&required, &ada).as_deref(), Some("CN=ada,O=Example"));
        assert_eq!(required.counts().resumed, resumed);
    }
    assert_eq!(ask(&optional, &stranger), None);
    assert_eq!(ask(&required, &stranger), None);
    assert_eq!(ask(&required, &nobody), None);
    for piece in [1, 2, 7, 44, 100, 500] {
        let seen = ask_in_pieces(&required, &with(&certificate_of_ada), piece);
        assert_eq!(seen.as_deref(), Some("CN=ada,O=Example"), "by {piece}");
    }
}

/// A file of authorities, a server that asks for their certificates, and who trusts the server.
fn asking_by(path: &Path) -> (ClientAuthorityFile, TlsServer, Authorities) {
    let file = ClientAuthorityFile::load(path.to_owned(), false).unwrap();
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let options = TlsOptions {
        client_certificates: file.certificates().clone(),
        ..TlsOptions::default()
    };
    let server = TlsServer::new(&certificates, &options).unwrap();
    let trusted = Authorities::one(own.der()).unwrap();
    (file, server, trusted)
}

#[test]
fn authorities_of_clients_are_taken_up_again_and_stay_if_the_new_ones_are_broken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let [(first, of_ada), (second, of_eve)] = [(), ()].map(|()| pem_and_client());
    fs::write(&path, &first).unwrap();
    let (mut file, server, trusted) = asking_by(&path);
    let clients = [&of_ada, &of_eve].map(|certificate| {
        TlsClient::with_certificate(&trusted, Profile::Intermediate, certificate).unwrap()
    });
    let are_let_in = || [0, 1].map(|index| ask(&server, &clients[index]).is_some());
    assert_eq!(are_let_in(), [true, false]);
    assert!(file.refresh(&[&server]).is_none(), "nothing has changed");
    fs::write(&path, "nothing").unwrap();
    assert!(file.refresh(&[&server]).is_none(), "it may be half written");
    assert!(file.refresh(&[&server]).unwrap().is_err());
    assert!(file.reload(&[&server]).is_err());
    assert_eq!(are_let_in(), [true, false]);
    assert_eq!(server.counts().resumed, 1);
    fs::write(&path, &second).unwrap();
    assert!(file.refresh(&[&server]).is_none());
    assert!(matches!(file.refresh(&[&server]), Some(Ok(()))));
    assert_eq!(are_let_in(), [false, true], "the first one has a ticket");
    assert_eq!(server.counts().resumed, 1);
    fs::write(&path, first).unwrap();
    file.reload(&[&server]).unwrap();
    assert_eq!(are_let_in(), [true, false]);
}

/// It had authorities enough, and refused the clients of those that were yet to be written.
#[test]
fn a_file_of_authorities_that_is_half_written_is_not_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let [(first, of_ada), (second, of_eve)] = [(), ()].map(|()| pem_and_client());
    fs::write(&path, &second).unwrap();
    let (mut file, server, trusted) = asking_by(&path);
    let are_let_in = || {
        [&of_ada, &of_eve].map(|certificate| {
            let profile = Profile::Intermediate;
            let client = TlsClient::with_certificate(&trusted, profile, certificate).unwrap();
            ask(&server, &client).is_some()
        })
    };
    // As by `cat first.pem second.pem > ca.pem`.
    fs::write(&path, &first).unwrap();
    assert!(file.refresh(&[&server]).is_none());
    assert_eq!(are_let_in(), [false, true]);
    fs::write(&path, [first, second].concat()).unwrap();
    assert!(file.refresh(&[&server]).is_none(), "it goes on");
    assert_eq!(are_let_in(), [false, true]);
    assert!(matches!(file.refresh(&[&server]), Some(Ok(()))));
    assert_eq!(are_let_in(), [true, true]);
}

/// A ticket says who its client is, so that one of a server that did not ask is worth nothing to others.
#[test]
fn a_ticket_is_for_servers_that_ask_for_the_same() {
    let (authority, of_ada) = authority_and_client();
    let (other_authority, _) = authority_and_client();
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let trusted = Authorities::one(own.der()).unwrap();
    let tickets = Arc::new(Tickets::rotating());
    let server = |client_certificates: &ClientCertificates| {
        let options = TlsOptions {
            client_certificates: client_certificates.clone(),
            tickets: Arc::clone(&tickets),
            ..TlsOptions::default()
        };
        TlsServer::new(&certificates, &options).unwrap()
    };
    let required = ClientCertificates::Required(authority.clone());
    for first in [
        ClientCertificates::NotAsked,
        ClientCertificates::Optional(authority),
    ] {
        let nobody = trusting(&own);
        assert_eq!(ask(&server(&first), &nobody).as_deref(), Some("nobody"));
        assert_eq!(ask(&server(&required), &nobody), None, "{first:?}");
    }
    let ada = TlsClient::with_certificate(&trusted, Profile::Intermediate, &of_ada).unwrap();
    for resumed in 0..2 {
        let server = server(&required);
        assert_eq!(ask(&server, &ada).as_deref(), Some("CN=ada,O=Example"));
        assert_eq!(
            server.counts().resumed,
            resumed,
            "by the ticket of the one before"
        );
    }
    let of_others = server(&ClientCertificates::Required(other_authority));
    assert_eq!(
        ask(&of_others, &ada),
        None,
        "they do not trust ada's authority"
    );
    let not_asking = server(&ClientCertificates::NotAsked);
    assert_eq!(ask(&not_asking, &ada).as_deref(), Some("nobody"));
}

#[test]
fn authorities_that_are_none() {
    let error = Authorities::from_pem("ca.pem", b"nothing").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("ca.pem: no certificate in it"),
        "{error}"
    );
    assert!(Authorities::from_file("/nowhere".as_ref()).is_err());
}

/// A client that has one certificate after the other, and keeps its sessions.
#[derive(Debug)]
struct InTurn {
    all: Vec<Arc<CertifiedKey>>,
    now: AtomicUsize,
}

impl ResolvesClientCert for InTurn {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.all.get(self.now.load(Ordering::Relaxed)).cloned()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Whom the server takes a client of rustls alone for; `None`: there is no connection.
fn ask_by(server: &TlsServer, client: &Arc<ClientConfig>) -> Option<String> {
    ask_across(server, client, || {})
}

/// The same if this happens behind the server's first answer. The client sends its request as soon as it may.
fn ask_across(
    server: &TlsServer,
    client: &Arc<ClientConfig>,
    event: impl FnOnce(),
) -> Option<String> {
    let limits = config(Limits::default());
    let mut driver = Driver::speaking(server.protocol(), &limits, whoami);
    let (mut client, mut seen) = (connection(client), 0);
    driver.feed(&sent_by(&mut client));
    event();
    client.writer().write_all(GET.as_bytes()).unwrap();
    receive(&mut client, &driver, &mut seen);
    exchange(&mut client, &mut driver, &mut seen);
    let mut plain = Vec::new();
    let _ = client.reader().read_to_end(&mut plain); // ends with what there is
    let answer = parse_answers(&plain, |_| false).into_iter().next();
    let is_handled = !driver.seen.is_empty();
    assert_eq!(is_handled, answer.is_some());
    Some(String::from_utf8(answer?.body).unwrap())
}

/// A client's certificate that ends then.
fn signed(
    issuer: &Issuer<'_, KeyPair>,
    (name, key): (&str, &KeyPair),
    ends: SystemTime,
) -> Arc<CertifiedKey> {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let since_1970 = ends.duration_since(UNIX_EPOCH).unwrap();
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970;
    certified(&params, issuer, key)
}

fn certified(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    key: &KeyPair,
) -> Arc<CertifiedKey> {
    let signed = params.signed_by(key, issuer).unwrap();
    let chain = vec![CertificateDer::from(signed.der().to_vec())];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = aws_lc_rs::default_provider();
    let key = provider.key_provider.load_private_key(key).unwrap();
    Arc::new(CertifiedKey::new(chain, key))
}

/// Its old sessions would be refused until they end, as long as it has no other way to show the new one.
#[test]
fn a_client_whose_certificate_has_expired_shows_the_next_one() {
    let (ca_pem, issuer) = issuer();
    let [first, second] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let authority = Authorities::from_pem("ca.pem", ca_pem.as_bytes()).unwrap();
    let clients = |ends: SystemTime| {
        [&TLS12, &TLS13].map(|version| {
            let options = TlsOptions {
                client_certificates: ClientCertificates::Required(authority.clone()),
                ..TlsOptions::default()
            };
            let in_turn = Arc::new(InTurn {
                all: vec![
                    signed(&issuer, ("first", &first), ends),
                    signed(
                        &issuer,
                        ("second", &second),
                        ends + Duration::from_secs(3600),
                    ),
                ],
                now: AtomicUsize::new(0),
            });
            let mut client = client_of(&own, &[version]);
            client.client_auth_cert_resolver = Arc::clone(&in_turn) as Arc<_>;
            let server = TlsServer::new(&certificates, &options).unwrap();
            (server, Arc::new(client), in_turn)
        })
    };
    // On a busy machine the certificate may end before it was shown.
    let in_time = (0..5).find_map(|_| {
        let ends = SystemTime::now() + Duration::from_secs(4);
        let clients = clients(ends);
        let seen = clients.each_ref().map(|(server, client, in_turn)| {
            let seen = [(); 2].map(|()| (ask_by(server, client), server.counts().resumed));
            in_turn.now.store(1, Ordering::Relaxed);
            seen
        });
        // Certificates have whole seconds.
        let is_in_time = SystemTime::now() + Duration::from_secs(1) < ends;
        is_in_time.then_some((ends, clients, seen))
    });
    let (ends, clients, seen) = in_time.expect("four handshakes within three seconds");
    for seen in &seen {
        let seen = seen.each_ref();
        let seen = seen.map(|(name, resumed)| (name.as_deref(), *resumed));
        assert_eq!(seen, [(Some("CN=first"), 0), (Some("CN=first"), 1)]);
    }
    while SystemTime::now() < ends + Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(10));
    }
    for (server, client, _) in &clients {
        for (full, resumed) in [(2, 1), (2, 2)] {
            assert_eq!(ask_by(server, client).as_deref(), Some("CN=second"));
            let counts = server.counts();
            assert_eq!((counts.full, counts.resumed), (full, resumed));
        }
    }
}

/// A client of rustls alone that shows this certificate, or none.
fn showing(
    shown: Option<&Arc<CertifiedKey>>,
    trusted: &Certificate,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut client = client_of(trusted, &[version]);
    client.client_auth_cert_resolver = Arc::new(InTurn {
        all: shown.into_iter().cloned().collect(),
        now: AtomicUsize::new(0),
    });
    client
}

/// Such a client was taken for one without, so that an app compressed what may have secrets of it.
#[test]
fn a_certificate_whose_subject_cannot_be_read_is_one() {
    let (ca_pem, issuer) = issuer();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.serial_number = Some(SerialNumber::from(vec![1; 30])); // RFC 5280 has 20 at most
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let shown = certified(&params, &issuer, &key);
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let authority = Authorities::from_pem("ca.pem", ca_pem.as_bytes()).unwrap();
    let options = TlsOptions {
        client_certificates: ClientCertificates::Optional(authority),
        ..TlsOptions::default()
    };
    let server = TlsServer::new(&certificates, &options).unwrap();
    for version in [&TLS12, &TLS13] {
        for (shown, seen) in [(Some(&shown), "somebody"), (None, "nobody")] {
            let client = Arc::new(showing(shown, &own, version));
            // The second time by a ticket.
            for _ in 0..2 {
                assert_eq!(ask_by(&server, &client).as_deref(), Some(seen));
            }
        }
    }
}

#[test]
fn sessions_of_each_kind_end_with_their_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let (first, issuer) = issuer();
    let (second, _) = pem_and_client();
    let key = KeyPair::generate().unwrap();
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let ada = signed(&issuer, ("ada", &key), in_an_hour);
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let new = |version| showing(Some(&ada), &own, version);
    let mut by_id = new(&TLS12);
    let ids = Tls12Resumption::SessionIdOnly;
    by_id.resumption = Resumption::in_memory_sessions(1).tls12_resumption(ids);
    for (kind, client) in [
        ("TLS 1.3", new(&TLS13)),
        ("TLS 1.2", new(&TLS12)),
        ("TLS 1.2 without tickets", by_id),
    ] {
        let client = Arc::new(client);
        fs::write(&path, &first).unwrap();
        let mut file = ClientAuthorityFile::load(path.clone(), false).unwrap();
        let options = TlsOptions {
            client_certificates: file.certificates().clone(),
            ..TlsOptions::default()
        };
        let server = TlsServer::new(&certificates, &options).unwrap();
        for resumed in 0..2 {
            assert_eq!(ask_by(&server, &client).as_deref(), Some("CN=ada"));
            assert_eq!(server.counts().resumed, resumed, "{kind}");
        }
        // As on SIGHUP: the file may be as it was.
        file.reload(&[&server]).unwrap();
        assert_eq!(ask_by(&server, &client).as_deref(), Some("CN=ada"));
        assert_eq!(server.counts().resumed, 2, "{kind}");
        fs::write(&path, &second).unwrap();
        file.reload(&[&server]).unwrap();
        assert_eq!(ask_by(&server, &client), None, "{kind}");
        assert_eq!(server.counts().resumed, 2, "{kind}");
    }
}

/// Its client was checked by the authorities of before, or not asked at all.
#[test]
fn a_handshake_that_began_before_its_authorities_were_replaced_is_for_the_new_ones() {
    use ClientCertificates::{NotAsked, Optional, Required};
    let (first_pem, issuer) = issuer();
    let (second_pem, _) = pem_and_client();
    let read = |pem: &str| Authorities::from_pem("ca.pem", pem.as_bytes()).unwrap();
    let (first, second) = (read(&first_pem), read(&second_pem));
    let both = read(&format!("{first_pem}{second_pem}"));
    let key = KeyPair::generate().unwrap();
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let ada = signed(&issuer, ("ada", &key), in_an_hour);
    let own = certificate(&["localhost"]);
    let certificates = Arc::new(Certificates::new(vec![own.clone()]));
    let (of_first, of_second) = (Required(first.clone()), Required(second.clone()));
    let cases = [
        (of_first.clone(), of_second, Some(&ada), None),
        (of_first.clone(), Optional(second), Some(&ada), None),
        (Optional(first.clone()), of_first.clone(), None, None),
        (NotAsked, of_first.clone(), None, None),
        (NotAsked, Optional(first), None, Some("nobody")),
        (of_first.clone(), Required(both), Some(&ada), Some("CN=ada")),
        (of_first, NotAsked, Some(&ada), Some("CN=ada")),
    ];
    for version in [&TLS12, &TLS13] {
        for (index, (before, after, shown, expected)) in cases.iter().enumerate() {
            let options = TlsOptions {
                client_certificates: before.clone(),
                ..TlsOptions::default()
            };
            let server = TlsServer::new(&certificates, &options).unwrap();
            let client = Arc::new(showing(*shown, &own, version));
            let replace = || server.replace_client_certificates(after).unwrap();
            let seen = ask_across(&server, &client, replace);
            assert_eq!(seen.as_deref(), *expected, "{version:?}, case {index}");
            let counts = server.counts();
            let is_done = u64::from(expected.is_some());
            let done_and_failed = (counts.full, counts.failed);
            assert_eq!(done_and_failed, (is_done, 1 - is_done), "case {index}");
        }
    }
}
