//! The whole life of certificates, with Pebble as authority: it takes its time, rejects good nonces,
//! refuses names, is down, and is replaced by one that knows nothing. Time is a number that the test
//! moves.

use std::fs;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::{Request, Response};
use http_body::Body as _;
use instant_acme::{
    Account, AccountCredentials, BodyWrapper, BytesResponse, Error, HttpClient, RevocationRequest,
};
use loadline_acme::{AcmeOptions, Automatic, ExternalAccount, Method01, Report, UnixTime};
use loadline_tls::Authorities;
use tempfile::TempDir;

use crate::front::{Front, ReceivedRequest, forward};
use crate::pebble::{Pebble, Trouble};
use crate::recorded::Recorder;
use crate::site::Site;

const DAY_S: u64 = 24 * 3600;
const NAME: &str = "www.example.org";
/// Steps of any part of a test: far more than it takes.
const STEPS_MAX: usize = 2000;

/// A site, Pebble, what stands between them, and the time.
struct World {
    site: Site,
    front: Front,
    pebble: Arc<Mutex<Pebble>>,
    folder: TempDir,
    names: Vec<String>,
    methods: Vec<Method01>,
    external_account: Option<ExternalAccount>,
    automatic: Option<Automatic>,
    now: UnixTime,
    /// Requests that are not passed on: those whose path has this part.
    held_up: Arc<Mutex<Option<&'static str>>>,
    recorder: Arc<Mutex<Recorder>>,
}

impl World {
    /// Without `http` nobody is at the port for HTTP-01.
    fn start(names: &[&str], methods: &[Method01], http: bool) -> Self {
        let site = Site::start();
        let pebble = start_pebble(&site, http);
        let pebble = Arc::new(Mutex::new(pebble));
        let held_up = Arc::new(Mutex::new(None));
        let recorder = Arc::new(Mutex::new(Recorder::default()));
        let (behind, holding) = (Arc::clone(&pebble), Arc::clone(&held_up));
        let recording = Arc::clone(&recorder);
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let front = Front::start(Box::new(move |request: &ReceivedRequest, _: &str| {
            let held_up: Option<&str> = *holding.lock().unwrap();
            if held_up.is_some_and(|part| request.path.contains(part)) {
                return None;
            }
            let (address, trusted) = {
                let pebble = behind.lock().unwrap();
                (pebble.address(), pebble.trusted())
            };
            let answer = forward(address, &trusted, request.raw())?;
            let kept = || {
                let names = ["account.json".to_owned(), format!("{NAME}.order.json")];
                names.map(|name| kept_file(&state, &name).unwrap())
            };
            recording.lock().unwrap().add(request, &answer, kept);
            Some(answer)
        }));
        let mut it = Self {
            site,
            front,
            pebble,
            folder,
            names: names.iter().map(|it| (*it).to_owned()).collect(),
            methods: methods.to_vec(),
            external_account: None,
            automatic: None,
            now: UnixTime::now(),
            held_up,
            recorder,
        };
        it.restart();
        it
    }

    /// Ends what there is, and begins anew with what is in the state directory.
    fn restart(&mut self) {
        self.automatic = None;
        self.site.certificates.replace(Vec::new());
        let options = AcmeOptions {
            email: "you@example.org".into(),
            names: self.names.clone(),
            directory: self.front.url("/dir"),
            trusted: self.front.trusted(),
            folder: self.state(),
            terms_agreed: true,
            external_account: self.external_account.clone(),
            methods: self.methods.clone(),
            look_every: Duration::from_millis(50),
        };
        let (certificates, tokens) = (&self.site.certificates, &self.site.tokens);
        self.automatic = Some(Automatic::open(options, certificates, tokens).unwrap());
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// What is kept about the authority.
    fn file(&self, name: &str) -> Option<String> {
        kept_file(&self.state(), name)
    }

    fn has_order(&self) -> bool {
        self.file(&format!("{NAME}.order.json")).is_some()
    }

    /// A step; the time is then when the next one is due.
    fn turn(&mut self) {
        self.now = self.automatic.as_mut().unwrap().turn(self.now);
    }

    /// Steps until something holds. Time passes as far as the steps want it to.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if holds(self) {
                return;
            }
            self.turn();
        }
        let report = self.report();
        panic!("{what}: {report:?}");
    }

    fn report(&self) -> Report {
        let report = self.automatic.as_ref().unwrap().report();
        let report = report.lock().unwrap();
        report.clone()
    }

    fn root(&self) -> Authorities {
        self.pebble.lock().unwrap().root()
    }

    /// What clients get that trust Pebble.
    fn served(&self, name: &str) -> Option<Vec<u8>> {
        self.site.certificate(name, &self.root())
    }

    /// Goes on until there is another certificate.
    fn until_renewed(&mut self, what: &str) -> Vec<u8> {
        let before = self.served(NAME);
        self.until(what, |it| it.served(NAME) != before);
        self.served(NAME).unwrap()
    }
}

fn kept_file(state: &Path, name: &str) -> Option<String> {
    let folders = fs::read_dir(state).unwrap().flatten();
    let mut paths = folders.map(|folder| folder.path().join(name));
    fs::read_to_string(paths.find(|path| path.exists())?).ok()
}

fn start_pebble(site: &Site, http: bool) -> Pebble {
    start_pebble_for(site, http, None)
}

fn start_pebble_for(site: &Site, http: bool, external_key: Option<(String, String)>) -> Pebble {
    let trouble = Trouble {
        sleep_s: 2,
        nonces_rejected_percent: 25,
        blocked: vec!["blocked.example.org".into()],
        external_key,
    };
    let http_port = match http {
        true => site.http().port(),
        false => 9, // nobody is there
    };
    Pebble::start(http_port, site.https().port(), &trouble)
}

/// Issue, renewal at its time, revocation, an authority that is down for an hour.
#[test]
#[ignore = "long: Pebble takes its time"]
fn the_life_of_a_certificate() {
    for methods in [[Method01::Http], [Method01::TlsAlpn]] {
        let mut world = World::start(&[NAME], &methods, true);
        assert_eq!(world.served(NAME), None, "there is none yet");
        let first = world.until_renewed("the first one");
        // By the time that Pebble suggests: at about two thirds of a life of six days.
        let began = world.now;
        let second = world.until_renewed("renewal");
        assert!(world.now.since(began) > Duration::from_secs(3 * DAY_S));
        assert_ne!(first, second);
        world.now = UnixTime::now(); // as Pebble has it, or the new one would be old
        // A revoked one is replaced as soon as the authority is asked, within a day, and takes the order.
        revoke(&world, &second);
        let began = world.now;
        let third = world.until_renewed("revocation");
        assert!(world.now.since(began) <= Duration::from_secs(DAY_S + 2 * 3600));
        down_for_an_hour(&mut world, &third);
    }
}

/// Nothing of this reaches clients, who get the certificate of before.
fn down_for_an_hour(world: &mut World, before: &[u8]) {
    revoke(world, before);
    world.front.take_paths();
    // Its replacement is due when the authority goes down.
    world.until("the authority is asked", |it| {
        it.front
            .take_paths()
            .iter()
            .any(|path| path.contains("renewalInfo"))
    });
    world.front.set_down(true);
    let (began, tries) = (world.now, world.front.connections());
    while world.now.since(began) < Duration::from_secs(3600) {
        assert_eq!(world.served(NAME).as_deref(), Some(before));
        world.turn();
    }
    let tries = world.front.connections() - tries;
    assert!((3..=10).contains(&tries), "{tries} tries in an hour");
    let report = world.report();
    assert!(report.failures >= 3, "{report:?}");
    assert!(report.last_error.contains("127.0.0.1"), "{report:?}");
    world.front.set_down(false);
    let up = world.now;
    world.until_renewed("the authority is back");
    assert!(world.now.since(up) <= Duration::from_secs(2 * 3600));
    assert_eq!(world.report().last_error, "");
}

/// A restart between order and certificate goes on with the order; one after it asks for nothing.
#[test]
#[ignore = "long: Pebble takes its time"]
fn a_restart_in_the_middle() {
    let mut world = World::start(&[NAME], &[Method01::Http], true);
    *world.held_up.lock().unwrap() = Some("finalize");
    world.until("it is stopped before its end", |it| {
        it.front
            .take_paths()
            .iter()
            .any(|path| path.contains("finalize"))
    });
    assert!(world.has_order(), "the order is kept");
    world.restart();
    *world.held_up.lock().unwrap() = None;
    world.front.take_paths();
    world.until_renewed("it goes on");
    let paths = world.front.take_paths();
    let is_new = |path: &String| path.contains("order-plz") || path.contains("sign-me-up");
    assert!(!paths.iter().any(is_new), "{paths:?}");
    assert!(!world.has_order(), "the order is done");
    let before = world.served(NAME);
    world.restart();
    assert_eq!(world.served(NAME), before, "it is in service at once");
    world.turn();
    let paths = world.front.take_paths();
    assert!(!paths.iter().any(is_new), "{paths:?}");
}

/// A name that the authority refuses keeps no other name from its certificate, and is not tried without
/// end.
#[test]
#[ignore = "long: Pebble takes its time"]
fn a_refused_name_is_alone() {
    let names = ["blocked.example.org", NAME];
    let mut world = World::start(&names, &[Method01::Http], true);
    world.until_renewed("the other one");
    let began = world.now;
    while world.now.since(began) < Duration::from_secs(DAY_S) {
        world.turn();
    }
    let paths = world.front.take_paths();
    let orders = paths
        .iter()
        .filter(|path| path.contains("order-plz"))
        .count();
    assert!((4..60).contains(&orders), "{orders} orders in a day");
    assert_eq!(world.report().names_without, 1);
    assert!(world.served(NAME).is_some());
}

/// Validation fails over HTTP, and the next one is over TLS.
#[test]
#[ignore = "long: Pebble takes its time"]
fn the_other_kind_of_validation_is_next() {
    let methods = [Method01::Http, Method01::TlsAlpn];
    let mut world = World::start(&[NAME], &methods, false);
    world.until("the first one fails", |it| {
        it.report().last_error.contains("the order failed")
    });
    let failed = world.now;
    world.until_renewed("the second one");
    assert!(world.now.since(failed) < Duration::from_secs(3600));
}

/// An authority that has forgotten the account gets another one.
#[test]
#[ignore = "long: Pebble takes its time"]
fn an_authority_that_knows_nothing_any_more() {
    let mut world = World::start(&[NAME], &[Method01::Http], true);
    world.until_renewed("the first one");
    *world.pebble.lock().unwrap() = start_pebble(&world.site, true);
    world.front.take_paths();
    world.until("another account", |it| it.served(NAME).is_some());
    let paths = world.front.take_paths();
    assert!(paths.iter().any(|path| path.contains("sign-me-up")));
}

/// An authority that issues certificates only to those who have an account with it already.
#[test]
#[ignore = "long: Pebble takes its time"]
fn an_account_that_is_bound_to_one_of_before() {
    let mut world = World::start(&[NAME], &[Method01::Http], true);
    let key = BASE64URL_NOPAD.encode(&[7; 32]);
    let known = Some(("kid-1".to_owned(), key.clone()));
    *world.pebble.lock().unwrap() = start_pebble_for(&world.site, true, known);
    world.until("an account without it is refused", |it| {
        it.report().last_error.contains("external account binding")
    });
    let path = world.folder.path().join("eab.key");
    for (id, is_known) in [("kid-2", false), ("kid-1", true)] {
        fs::write(&path, &key).unwrap();
        world.external_account = Some(ExternalAccount::from_file(id, &path).unwrap());
        world.restart();
        if is_known {
            world.until_renewed("the certificate");
        } else {
            world.until("another one is refused", |it| {
                !it.report().last_error.is_empty()
            });
        }
        assert_eq!(world.served(NAME).is_some(), is_known, "{id}");
    }
}

/// Writes the exchange that `recorded` plays: one with a nonce that is rejected, and an order that is not
/// done at once.
#[test]
#[ignore = "by hand: writes the file that others play"]
fn record_by_hand() {
    for _ in 0..20 {
        let mut world = World::start(&[NAME], &[Method01::Http], true);
        let began = world.now;
        world.until_renewed("the certificate");
        world.until("its renewal is asked for", |it| {
            it.front
                .take_paths()
                .iter()
                .any(|path| path.contains("renewalInfo"))
        });
        let recorder = world.recorder.lock().unwrap();
        if recorder.is_worth_it() {
            recorder.write(&world.front.url(""), NAME, began);
            return;
        }
    }
    panic!("twenty dull exchanges");
}

/// As an operator does it, with the account of the state directory.
fn revoke(world: &World, certificate: &[u8]) {
    let account = world.file("account.json").unwrap();
    let certificate = certificate.to_vec().into();
    let request = RevocationRequest {
        certificate: &certificate,
        reason: None,
    };
    // Three good nonces may be rejected in a row.
    for _ in 0..20 {
        let credentials: AccountCredentials = serde_json::from_str(&account).unwrap();
        let http = Direct(world.front.address(), world.front.trusted());
        let builder = Account::builder_with_http(Box::new(http));
        let account = at_once(builder.from_credentials(credentials)).unwrap();
        if at_once(account.revoke(&request)).is_ok() {
            return;
        }
    }
    panic!("it is not revoked");
}

/// A client of HTTP for the library.
struct Direct(SocketAddr, Authorities);

impl HttpClient for Direct {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (parts, body) = request.into_parts();
        let mut body = body;
        let mut context = Context::from_waker(Waker::noop());
        let body = match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap(),
            _ => Bytes::new(),
        };
        let path = parts.uri.path();
        let mut raw = format!(
            "{} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            parts.method,
            self.0,
            body.len()
        );
        for (name, value) in &parts.headers {
            raw.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        let raw = [raw.as_bytes(), b"\r\n", &body].concat();
        let answer = forward(self.0, &self.1, &raw).unwrap();
        let mut response = Response::builder().status(answer.status);
        for (name, value) in &answer.fields {
            response = response.header(name, value);
        }
        let (parts, ()) = response.body(()).unwrap().into_parts();
        Box::pin(ready(Ok(BytesResponse {
            parts,
            body: Box::new(Bytes::from(answer.content)),
        })))
    }
}

/// The result of what waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}
