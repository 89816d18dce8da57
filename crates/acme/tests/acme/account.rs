//! The account with an authority, in the course of time.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, Method01, Tokens, UnixTime};
use serde_json::{Value, json};
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

/// Does what is due until this is so.
fn turn_until(automatic: &mut Automatic, mut now: UnixTime, is_so: impl Fn() -> bool) -> UnixTime {
    for _ in 0..20 {
        if is_so() {
            return now;
        }
        now = automatic.turn(now);
    }
    panic!("it is not so after many turns");
}

/// The authority may be in error, and more than once.
#[test]
fn accounts_that_the_authority_does_not_know_are_kept_beside_the_next_one() {
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
    let asides = ["account.json.old", "account.json.old.2"];
    let asides = asides.map(|name| path(&front, &folder, name));
    let (mut now, mut lost) = (UnixTime::now(), Vec::new());
    for _ in &asides {
        now = turn_until(&mut automatic, now, || account.exists());
        lost.push(fs::read(&account).unwrap());
        now = turn_until(&mut automatic, now, || !account.exists());
    }
    turn_until(&mut automatic, now, || account.exists());
    assert_ne!(lost[0], lost[1]);
    for (aside, account) in asides.iter().zip(&lost) {
        assert_eq!(fs::read(aside).unwrap(), *account);
        assert_eq!(fs::metadata(aside).unwrap().mode() & 0o777, 0o600);
    }
}

/// The key of its certificate is nowhere else. If another account may not have it, that ends it.
#[test]
fn an_order_whose_certificate_may_exist_outlasts_its_account() {
    let mut accounts = 0;
    let answer = move |request: &ReceivedRequest, base: &str| {
        let problem = |kind: &str| json!({ "type": format!("urn:ietf:params:acme:error:{kind}") });
        accounts += usize::from(request.path == "/account");
        let finalize = format!("{base}/finalize");
        let order = json!({ "status": "ready", "authorizations": [], "finalize": finalize });
        Some(match request.path.as_str() {
            "/account" => (201, json!({ "status": "valid" })),
            "/order" => (201, order),
            "/finalize" => (503, json!({})),
            // The order, which has the URL that all responses name.
            _ if accounts == 1 => (400, problem("accountDoesNotExist")),
            _ => (403, problem("unauthorized")),
        })
    };
    let front = authority::start(json!({}), answer);
    let folder = tempfile::tempdir().unwrap();
    let mut automatic = open(&front, &folder, "ada@example.org");
    let order = path(&front, &folder, "www.example.org.order.json");
    let aside = path(&front, &folder, "account.json.old");
    let now = turn_until(&mut automatic, UnixTime::now(), || order.exists());
    let kept = fs::read(&order).unwrap();
    let now = turn_until(&mut automatic, now, || aside.exists());
    assert_eq!(fs::read(&order).unwrap(), kept);
    turn_until(&mut automatic, now, || !order.exists());
    let paths = front.take_paths();
    let count = |path: &str| paths.iter().filter(|it| *it == path).count();
    let counts = ["/account", "/order", "/account/1"].map(count);
    assert_eq!(counts, [2, 1, 5], "{paths:?}");
}

/// The contact that a request for or about an account has.
fn contact(body: &[u8]) -> Value {
    let jws: Value = serde_json::from_slice(body).unwrap();
    let payload = jws["payload"].as_str().unwrap();
    let payload = BASE64URL_NOPAD.decode(payload.as_bytes()).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    payload["contact"].clone()
}

#[test]
fn the_contact_of_an_account_follows_the_address() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let contacts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&contacts);
    let answer = move |request: &ReceivedRequest, _: &str| {
        let valid = json!({ "status": "valid" });
        if !request.path.starts_with("/account") {
            return Some((404, json!({})));
        }
        let mut seen = seen.lock().unwrap();
        seen.push(contact(&request.body));
        Some(match seen.len() {
            1 => (201, valid),
            2 | 3 => (500, json!({})),
            _ => (200, valid),
        })
    };
    let front = authority::start(json!({}), answer);
    let folder = tempfile::tempdir().unwrap();
    let now = UnixTime::now();
    let [ada, eve, mel] = ["ada@example.org", "eve@example.org", "mel@example.org"];
    let turn = |email: &str, days: u32| {
        open(&front, &folder, email).turn(now.plus(days * DAY));
        contacts.lock().unwrap().len()
    };
    assert_eq!(turn(ada, 0), 1, "it is made");
    assert_eq!(turn(ada, 1), 1);
    assert_eq!(turn(eve, 2), 2, "it is refused");
    assert_eq!(turn(eve, 2), 2, "a restart is no reason to try again");
    assert_eq!(turn(mel, 2), 3, "another address is one");
    let mut automatic = open(&front, &folder, mel);
    for (days, count) in [(2_u32, 3), (4, 4), (6, 4)] {
        automatic.turn(now.plus(days * DAY));
        assert_eq!(contacts.lock().unwrap().len(), count, "day {days}");
    }
    drop(automatic);
    assert_eq!(turn(mel, 8), 4, "it is kept");
    let expected = [ada, eve, mel, mel].map(|it| json!([format!("mailto:{it}")]));
    assert_eq!(*contacts.lock().unwrap(), expected);
}

#[test]
fn the_contact_of_an_account_does_not_change_while_the_authority_is_left_alone() {
    let answer = |request: &ReceivedRequest, _: &str| match request.path.as_str() {
        "/account" => Some((201, json!({ "status": "valid" }))),
        "/account/1" => Some((200, json!({ "status": "valid" }))),
        _ => None,
    };
    let front = authority::start(json!({}), answer);
    let folder = tempfile::tempdir().unwrap();
    let mut automatic = open(&front, &folder, "ada@example.org");
    let now = automatic.turn(UnixTime::now());
    let now = automatic.turn(now); // there is no response to the order
    drop(automatic);
    front.take_paths();
    let mut automatic = open(&front, &folder, "eve@example.org");
    let next = automatic.turn(now);
    assert!(next > now, "a pause");
    let paths = front.take_paths();
    assert!(paths.is_empty(), "{paths:?}");
    automatic.turn(next);
    let paths = front.take_paths();
    assert!(paths.iter().any(|it| it == "/account/1"), "{paths:?}");
}
