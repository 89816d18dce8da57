//! What an authority finds that validates a name, under every model: the response over HTTP, and the
//! certificate of a handshake, both made with the key of the account.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, Method01, UnixTime};
use serde_json::Value;

use crate::model::Model;
use crate::player::Played;
use crate::site::Site;

every_model! {
    challenges_of_both_kinds_are_answered,
}

/// The exchange is played from the order that was kept then, so that it ends with a certificate.
fn challenges_of_both_kinds_are_answered(model: Model) {
    for (method, kind) in [
        (Method01::Http, "http-01"),
        (Method01::TlsAlpn, "tls-alpn-01"),
    ] {
        let site = Arc::new(Site::start_with(model.options()));
        let (sender, found) = channel::<Vec<u8>>();
        let (by_http, by_tls) = (Arc::clone(&site), Arc::clone(&site));
        let of_tls = sender.clone();
        let fetch = move |path: &str| {
            let response = by_http.get(path);
            sender.send(response.clone().into()).unwrap();
            response
        };
        let handshake = move || {
            let certificate = by_tls.challenge(NAME)?;
            of_tls.send(certificate.clone()).unwrap();
            Some(certificate)
        };
        let played = Played::validating(Box::new(fetch), Box::new(handshake));
        assert_eq!(played.name(), NAME);
        let text = format!("{}.{}", played.token(kind), thumbprint(&played.record));
        let path = format!("/.well-known/acme-challenge/{}", played.token("http-01"));
        issue(&site, &played, method);
        let found: Vec<Vec<u8>> = found.try_iter().collect();
        match method {
            Method01::Http => {
                assert_eq!(found.len(), 2, "of the token, and of another one");
                assert!(found[0].ends_with(format!("\r\n\r\n{text}").as_bytes()));
            }
            Method01::TlsAlpn => {
                assert_eq!(found.len(), 1, "a handshake");
                check_certificate(&found[0], &text);
            }
        }
        // Once the certificate is there, neither is to be had.
        assert!(site.get(&path).starts_with("HTTP/1.1 404 "));
        assert_eq!(site.challenge(NAME), None);
    }
}

/// The name in the record.
const NAME: &str = "www.example.org";

/// Gets a certificate from the authority.
fn issue(site: &Site, played: &Played, method: Method01) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    played.keep(&state);
    let options = AcmeOptions {
        email: "you@example.org".into(),
        names: vec![NAME.to_owned()],
        directory: played.front.url("/dir"),
        trusted: played.front.trusted(),
        folder: state,
        terms_agreed: true,
        external_account: None,
        methods: vec![method],
        look_every: Duration::from_millis(5),
    };
    let mut automatic = Automatic::open(options, &site.certificates, &site.tokens).unwrap();
    automatic.turn(UnixTime(played.record["now"].as_u64().unwrap()));
    played.check();
    assert_eq!(automatic.report().lock().unwrap().last_error, "");
    assert_eq!(site.certificates.all()[0].names(), [NAME.to_owned()]);
}

/// RFC 8737 section 3: for this name alone, with the digest of the response in a critical extension.
fn check_certificate(der: &[u8], response: &str) {
    let digest = digest(&SHA256, response.as_bytes());
    // id-pe-acmeIdentifier, critical, the digest as an octet string in an octet string.
    let head = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01\x1f\x01\x01\xff\x04\x22\x04\x20";
    let extension = [&head[..], digest.as_ref()].concat();
    // subjectAltName, with a sequence of one DNS name.
    let len = NAME.len() as u8;
    let names = [&[0x30, len + 2, 0x82, len][..], NAME.as_bytes()].concat();
    for part in [extension, names] {
        let mut windows = der.windows(part.len());
        assert!(windows.any(|it| it == part), "{part:02x?} in {der:02x?}");
    }
}

/// What stands behind the token in each response of this account: a digest of its key (RFC 7638).
fn thumbprint(record: &Value) -> String {
    let account: Value = serde_json::from_str(record["account"].as_str().unwrap()).unwrap();
    let key = account["key_pkcs8"].as_str().unwrap();
    let key = BASE64URL_NOPAD.decode(key.as_bytes()).unwrap();
    // The point of the curve is the last of it.
    let point = &key[key.len() - 64..];
    let [x, y] = [&point[..32], &point[32..]].map(|it| BASE64URL_NOPAD.encode(it));
    let key = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    BASE64URL_NOPAD.encode(digest(&SHA256, key.as_bytes()).as_ref())
}
