//! The account with an authority, in the course of time.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loadline_acme::{AcmeOptions, Automatic, Method01, Tokens, UnixTime};
use serde_json::json;
use tempfile::TempDir;

use crate::authority;
use crate::front::{Front, ReceivedRequest};

fn open(front: &Front, folder: &TempDir, email: &str) -> Automatic {
    let options = AcmeOptions {
        email: email.into(),
        names: vec!["www.example.org".into()],
        directory: front.url("/dir"),
        trusted: front.trusted(),
        folder: folder.path().join("state"),
        terms_agreed: true,
        external_account: None,
        methods: vec![Method01::Http],
        look_every: Duration::from_millis(5),
    };
    Automatic::open(options, &Arc::default(), &Tokens::default()).unwrap()
}

fn path(front: &Front, folder: &TempDir, name: &str) -> PathBuf {
    let address = front.address();
    let of_authority = format!("{}-{}-dir", address.ip(), address.port());
    folder.path().join("state").join(of_authority).join(name)
}

/// The authority may be in error.
#[test]
fn an_account_that_the_authority_does_not_know_is_kept_beside_the_next_one() {
    let front = authority::start(json!({}), |request: &ReceivedRequest, _: &str| {
        let kind = "urn:ietf:params:acme:error:accountDoesNotExist";
        Some(match request.path.as_str() {
            "/account" => (201, json!({ "status": "valid" })),
            _ => (400, json!({ "type": kind, "detail": "who are you?" })),
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let mut automatic = open(&front, &folder, "ada@example.org");
    let account = path(&front, &folder, "account.json");
    let aside = path(&front, &folder, "account.json.old");
    let now = automatic.turn(UnixTime::now());
    let first = fs::read(&account).unwrap();
    let mut now = automatic.turn(now);
    assert!(!account.exists());
    assert_eq!(fs::read(&aside).unwrap(), first);
    assert_eq!(fs::metadata(&aside).unwrap().mode() & 0o777, 0o600);
    for _ in 0..10 {
        if account.exists() {
            break;
        }
        now = automatic.turn(now);
    }
    assert_ne!(fs::read(&account).unwrap(), first);
    assert_eq!(fs::read(&aside).unwrap(), first);
}
