//! An account that is bound to one that the authority has: what is sent, seen by an authority that looks at
//! nothing else.

use std::fs;
use std::time::Duration;

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, ExternalAccount, Method01, UnixTime};
use serde_json::{Value, json};

use crate::authority;
use crate::front::ReceivedRequest;
use crate::site::Site;

const KEY: [u8; 32] = [7; 32];

/// Makes accounts for those alone who have one already.
fn answer(request: &ReceivedRequest, base: &str) -> Option<(u16, Value)> {
    if request.path != "/account" {
        return None;
    }
    let refusal = |kind: &str, detail: &str| {
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let problem = json!({ "type": kind, "detail": detail, "status": 403 });
        (403, problem)
    };
    Some(match is_bound(&request.body, &format!("{base}/account")) {
        None => refusal("externalAccountRequired", "who are you?"),
        Some(false) => refusal("unauthorized", "wrong key"),
        Some(true) => (201, json!({ "status": "valid" })),
    })
}

/// Whether a request for an account is bound to ours: RFC 8555 section 7.3.4. `None`: to none.
fn is_bound(body: &[u8], url: &str) -> Option<bool> {
    let decoded = |jws: &Value, part: &str| -> Value {
        let text = jws[part].as_str().unwrap();
        serde_json::from_slice(&BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()).unwrap()
    };
    let jws: Value = serde_json::from_slice(body).unwrap();
    let payload = decoded(&jws, "payload");
    let binding = payload.get("externalAccountBinding")?;
    assert_eq!(
        decoded(binding, "protected"),
        json!({ "alg": "HS256", "kid": "kid-1", "url": url })
    );
    assert_eq!(
        decoded(binding, "payload"),
        decoded(&jws, "protected")["jwk"],
        "the new account's key is signed"
    );
    let text = |part: &str| binding[part].as_str().unwrap();
    let signed = format!("{}.{}", text("protected"), text("payload"));
    let signature = BASE64URL_NOPAD
        .decode(text("signature").as_bytes())
        .unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &KEY);
    Some(hmac::verify(&key, signed.as_bytes(), &signature).is_ok())
}

#[test]
fn an_account_is_bound_to_one_that_the_authority_has() {
    let front = authority::start(json!({ "externalAccountRequired": true }), answer);
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    let account = |key: &[u8]| {
        let path = folder.path().join("eab.key");
        fs::write(&path, BASE64URL_NOPAD.encode(key)).unwrap();
        Some(ExternalAccount::from_file("kid-1", &path).unwrap())
    };
    for (name, external_account, refusal) in [
        ("none", None, "external account binding"),
        ("wrong", account(&[8; 32]), "wrong key"),
        ("right", account(&KEY), ""),
    ] {
        let options = AcmeOptions {
            email: "you@example.org".into(),
            names: vec!["www.example.org".into()],
            directory: front.url("/dir"),
            trusted: front.trusted(),
            folder: folder.path().join(name),
            terms_agreed: true,
            external_account,
            methods: vec![Method01::Http],
            look_every: Duration::from_millis(5),
        };
        let automatic = Automatic::open(options, &site.certificates, &site.tokens);
        let mut automatic = automatic.unwrap();
        automatic.turn(UnixTime::now());
        let report = automatic.report();
        let said = report.lock().unwrap().last_error.clone();
        assert!(said.contains(refusal), "{name}: {said}");
        assert_eq!(said.is_empty(), refusal.is_empty(), "{name}: {said}");
        drop(automatic);
        let files = fs::read_dir(folder.path().join(name)).unwrap().flatten();
        let mut folders = files.filter(|it| it.path().is_dir());
        let has_account = folders.any(|it| it.path().join("account.json").exists());
        assert_eq!(has_account, refusal.is_empty(), "{name}");
    }
}
