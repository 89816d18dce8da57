//! An authority whose clock is ahead: its certificates are not valid yet when they come.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loadline_acme::{AcmeOptions, Automatic, Method01, UnixTime};
use loadline_tls::{Profile, TlsClient, TlsClientOptions, Trust};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::player::Played;
use crate::site::Site;

const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn open(played: &Played, site: &Site, state: &Path) -> Automatic {
    let options = AcmeOptions {
        email: "you@example.org".into(),
        names: vec![played.name().to_owned()],
        directory: played.front.url("/dir"),
        trusted: played.front.trusted(),
        folder: state.to_owned(),
        terms_agreed: true,
        external_account: None,
        methods: vec![Method01::Http],
        look_every: Duration::from_millis(5),
    };
    Automatic::open(options, &site.certificates, &site.tokens).unwrap()
}

/// What a client gets that asks for this name, valid or not.
fn served(site: &Site, name: &str) -> Vec<u8> {
    let client = TlsClient::with(&TlsClientOptions {
        trust: Trust::Anyone,
        profile: Profile::Intermediate,
        certificate: None,
        resumes: false,
        key_exchange: None,
        cipher: None,
    });
    let socket = TcpStream::connect(site.https()).unwrap();
    let mut stream = client.unwrap().stream(name, socket).unwrap();
    stream.conn.complete_io(&mut stream.sock).unwrap();
    let chain = stream.conn.peer_certificates().unwrap();
    chain[0].to_vec()
}

/// Clients refused the new one until then, though there was one of before that they took.
#[test]
fn a_certificate_that_is_not_valid_yet_is_served_as_soon_as_it_is() {
    let site = Arc::new(Site::start());
    let validated = Arc::clone(&site);
    let played = Played::start(Box::new(move |path| validated.get(path)));
    let (name, folder) = (played.name(), tempfile::tempdir().unwrap());
    let state = folder.path().join("state");
    let kept = played.keep(&state);
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    let key = KeyPair::generate().unwrap();
    let old = params.self_signed(&key).unwrap();
    let pem = key.serialize_pem() + &old.pem();
    fs::write(kept.join(format!("{name}.pem")), pem).unwrap();
    // The record's certificate is valid from its time on.
    let recorded = UnixTime(played.record["now"].as_u64().unwrap());
    let mut automatic = open(&played, &site, &state);
    automatic.turn(recorded.minus(DAY));
    played.check();
    assert_eq!(automatic.report().lock().unwrap().issued, 1);
    assert_eq!(served(&site, name), old.der().to_vec());
    // A restart forgets neither of them.
    drop(automatic);
    site.certificates.replace(Vec::new());
    let mut automatic = open(&played, &site, &state);
    automatic.turn(recorded.minus(DAY / 2));
    assert_eq!(served(&site, name), old.der().to_vec());
    automatic.turn(recorded.plus(DAY));
    assert_ne!(served(&site, name), old.der().to_vec());
    assert_eq!(site.certificates.all().len(), 1);
}
