//! A certificate that was kept before the start: who gets it, and what an authority is asked about it.

use std::fs::{self, DirBuilder};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadline_acme::{AcmeOptions, Automatic, Method01, UnixTime};
use loadline_tls::{Profile, TlsClient, TlsClientOptions, Trust};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::front::{Answer, Front, ReceivedRequest};
use crate::site::Site;

const NAME: &str = "a.example.org";

/// Opens a state directory that has an account and the certificate of `NAME`.
fn open(site: &Site, front: &Front, folder: &TempDir, names: &[&str]) -> Automatic {
    let (state, address) = (folder.path().join("state"), front.address());
    let of_authority = state.join(format!("{}-{}-dir", address.ip(), address.port()));
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&of_authority).unwrap();
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem() + &params.self_signed(&key).unwrap().pem();
    fs::write(of_authority.join(format!("{NAME}.pem")), pem).unwrap();
    fs::write(of_authority.join("account.json"), "{}").unwrap();
    let options = AcmeOptions {
        email: "you@example.org".into(),
        names: names.iter().map(|it| (*it).to_owned()).collect(),
        directory: front.url("/dir"),
        trusted: front.trusted(),
        folder: state,
        terms_agreed: true,
        external_account: None,
        methods: vec![Method01::Http],
        look_every: Duration::from_millis(5),
    };
    Automatic::open(options, &site.certificates, &site.tokens).unwrap()
}

#[test]
fn a_name_without_a_certificate_does_not_get_that_of_another() {
    let (front, site) = (Front::start(Box::new(|_| None)), Site::start());
    let folder = tempfile::tempdir().unwrap();
    let automatic = open(&site, &front, &folder, &[NAME, "b.example.org"]);
    assert_eq!(automatic.report().lock().unwrap().names_without, 1);
    let client = TlsClient::with(&TlsClientOptions {
        trust: Trust::Anyone,
        profile: Profile::Intermediate,
        certificate: None,
        resumes: false,
        key_exchange: None,
    });
    let client = client.unwrap();
    for (name, is_served) in [
        (NAME, true),
        ("b.example.org", false),
        ("unknown.example.org", true),
    ] {
        let socket = TcpStream::connect(site.https()).unwrap();
        let mut stream = client.stream(name, socket).unwrap();
        let handshake = stream.conn.complete_io(&mut stream.sock);
        assert_eq!(handshake.is_ok(), is_served, "{name}");
    }
}

/// Whatever is asked first or second; and what was said then does not hold for a later failure.
#[test]
fn when_to_ask_again_about_renewal_is_what_the_last_response_says() {
    let said = || vec![("retry-after".to_owned(), "7000".to_owned())];
    for (directory, info, pauses_s) in [
        ((503, said()), None, 7000..7001),
        ((200, Vec::new()), Some((503, said())), 7000..7001),
        ((200, said()), None, 45..76), // that of an authority that does not answer
    ] {
        let base = Arc::new(Mutex::new(String::new()));
        let of_front = Arc::clone(&base);
        let front = Front::start(Box::new(move |request: &ReceivedRequest| {
            let (status, fields) = match request.path.as_str() {
                "/dir" => directory.clone(),
                _ => info.clone()?,
            };
            let url = format!("{}/info", of_front.lock().unwrap());
            let content = json!({ "renewalInfo": url }).to_string().into_bytes();
            Some(Answer {
                status,
                fields,
                content,
            })
        }));
        *base.lock().unwrap() = front.url("");
        let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
        let mut automatic = open(&site, &front, &folder, &[NAME]);
        let now = automatic.turn(UnixTime::now());
        let next = automatic.turn(now);
        let pause_s = next.since(now).as_secs();
        assert!(pauses_s.contains(&pause_s), "{pause_s}");
    }
}
