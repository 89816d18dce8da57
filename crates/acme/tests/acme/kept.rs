//! A certificate that was kept before the start: who gets it, and what an authority is asked about it.

use std::fs::{self, DirBuilder};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, Method01, UnixTime};
use loadline_tls::{Profile, TlsClient, TlsClientOptions, Trust};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::authority;
use crate::front::{Answer, Front, ReceivedRequest};
use crate::site::Site;

const NAME: &str = "a.example.org";

/// Makes a state directory that has the certificate of `NAME`, valid for these years.
fn keep(front: &Front, folder: &TempDir, years: [i32; 2]) -> PathBuf {
    let (state, address) = (folder.path().join("state"), front.address());
    let of_authority = state.join(format!("{}-{}-dir", address.ip(), address.port()));
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&of_authority).unwrap();
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.use_authority_key_identifier_extension = true;
    [params.not_before, params.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem() + &params.self_signed(&key).unwrap().pem();
    fs::write(of_authority.join(format!("{NAME}.pem")), pem).unwrap();
    of_authority
}

pub fn open(site: &Site, front: &Front, folder: &TempDir, names: &[&str]) -> Automatic {
    let options = AcmeOptions {
        email: "you@example.org".into(),
        names: names.iter().map(|it| (*it).to_owned()).collect(),
        directory: front.url("/dir"),
        trusted: front.trusted(),
        folder: folder.path().join("state"),
        terms_agreed: true,
        external_account: None,
        methods: vec![Method01::Http],
        look_every: Duration::from_millis(5),
    };
    Automatic::open(options, &site.certificates, &site.tokens).unwrap()
}

/// Opens a state directory that has an account and a certificate of `NAME` that lasts.
fn open_lasting(site: &Site, front: &Front, folder: &TempDir, names: &[&str]) -> Automatic {
    let of_authority = keep(front, folder, [1975, 4096]);
    let account = json!({ "contact": "mailto:you@example.org" });
    fs::write(of_authority.join("account.json"), account.to_string()).unwrap();
    open(site, front, folder, names)
}

#[test]
fn a_name_without_a_certificate_does_not_get_that_of_another() {
    let (front, site) = (Front::start(Box::new(|_, _| None)), Site::start());
    let folder = tempfile::tempdir().unwrap();
    let automatic = open_lasting(&site, &front, &folder, &[NAME, "b.example.org"]);
    assert_eq!(automatic.report().lock().unwrap().names_without, 1);
    let client = TlsClient::with(&TlsClientOptions {
        trust: Trust::Anyone,
        profile: Profile::Intermediate,
        certificate: None,
        resumes: false,
        key_exchange: None,
        cipher: None,
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
        let front = Front::start(Box::new(move |request: &ReceivedRequest, base: &str| {
            let (status, fields) = match request.path.as_str() {
                "/dir" => directory.clone(),
                _ => info.clone()?,
            };
            let url = format!("{base}/info");
            let content = json!({ "renewalInfo": url }).to_string().into_bytes();
            Some(Answer {
                status,
                fields,
                content,
            })
        }));
        let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
        let mut automatic = open_lasting(&site, &front, &folder, &[NAME]);
        let now = automatic.turn(UnixTime::now());
        let next = automatic.turn(now);
        let pause_s = next.since(now).as_secs();
        assert!(pauses_s.contains(&pause_s), "{pause_s}");
    }
}

/// Makes accounts. Fails at orders that take the place of a certificate, and refuses others.
fn failing(request: &ReceivedRequest, replacing: &Mutex<Vec<bool>>) -> (u16, Value) {
    match request.path.as_str() {
        "/account" => (201, json!({ "status": "valid" })),
        "/order" => {
            let jws: Value = serde_json::from_slice(&request.body).unwrap();
            let order = jws["payload"].as_str().unwrap();
            let order = BASE64URL_NOPAD.decode(order.as_bytes()).unwrap();
            let order: Value = serde_json::from_slice(&order).unwrap();
            let is_replacing = order.get("replaces").is_some();
            replacing.lock().unwrap().push(is_replacing);
            (if is_replacing { 500 } else { 403 }, json!({}))
        }
        _ => (404, json!({})), // there is no suggestion
    }
}

/// A renewal would be impossible until the certificate ends.
#[test]
fn an_order_at_whose_predecessor_the_authority_always_fails_becomes_a_plain_one() {
    let replacing = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&replacing);
    let front = authority::start(json!({}), move |request: &ReceivedRequest, _: &str| {
        Some(failing(request, &seen))
    });
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    keep(&front, &folder, [2026, 2027]);
    let mut automatic = open(&site, &front, &folder, &[NAME]);
    let mut now = UnixTime(1_796_083_200); // 1 December 2026: it is to be renewed
    for _ in 0..40 {
        now = automatic.turn(now);
        if replacing.lock().unwrap().contains(&false) {
            break;
        }
    }
    let expected = [true, true, true, true, false];
    assert_eq!(*replacing.lock().unwrap(), expected);
}
