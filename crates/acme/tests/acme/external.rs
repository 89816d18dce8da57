//! An account that is bound to one that the authority has: what is sent, seen by an authority that looks at
//! nothing else.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, ExternalAccount, Method01, UnixTime};
use serde_json::{Value, json};

use crate::front::{Answer, Front, ReceivedRequest};
use crate::site::Site;

const KEY: [u8; 32] = [7; 32];

/// Makes accounts for those alone who have one already.
fn answer(request: &ReceivedRequest, base: &str) -> Option<Answer> {
    let url = |path: &str| format!("{base}{path}");
    let (status, content) = match request.path.as_str() {
        "/dir" => {
            let directory = json!({
                "newNonce": url("/nonce"), "newAccount": url("/account"), "newOrder": url("/order"),
                "revokeCert": url("/revoke"), "keyChange": url("/key"),
                "meta": { "externalAccountRequired": true },
            });
            (200, directory)
        }
        "/nonce" => (200, json!({})),
        "/account" => match is_bound(&request.body, &url("/account")) {
            None => {
                let kind = "urn:ietf:params:acme:error:externalAccountRequired";
                (
                    403,
                    json!({ "type": kind, "detail": "who are you?", "status": 403 }),
                )
            }
            Some(false) => {
                let kind = "urn:ietf:params:acme:error:unauthorized";
                (
                    403,
                    json!({ "type": kind, "detail": "wrong key", "status": 403 }),
                )
            }
            Some(true) => (201, json!({ "status": "valid" })),
        },
        _ => return None,
    };
    Some(Answer {
        status,
        fields: vec![
            ("content-type".into(), "application/json".into()),
            ("replay-nonce".into(), "nonce".into()),
            ("location".into(), url("/account/1")),
        ],
        content: content.to_string().into_bytes(),
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
    let base = Arc::new(Mutex::new(String::new()));
    let of_front = Arc::clone(&base);
    let front = Front::start(Box::new(move |request| {
        answer(request, &of_front.lock().unwrap())
    }));
    *base.lock().unwrap() = front.url("");
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
