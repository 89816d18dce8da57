//! An exchange with Pebble that was recorded (`record_by_hand` beside it), played by an authority that does
//! nothing else: fast, and the same each time.
//!
//! A certificate is for the key that was used then. So the exchange is played twice: from nothing, up to
//! the certificate that does not fit the new key; and from the order that was kept then, to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadline_acme::{AcmeError, AcmeOptions, Automatic, Method01, UnixTime};
use loadline_tls::Certificate;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::front::{Answer, ReceivedRequest};
use crate::player::{BASE, Played, file};
use crate::site::Site;

/// Collects what passes.
#[derive(Default)]
pub struct Recorder {
    exchanges: Vec<Value>,
    /// Account and order while the order is under way.
    kept: Option<[String; 2]>,
}

impl Recorder {
    pub fn add(
        &mut self,
        request: &ReceivedRequest,
        answer: &Answer,
        kept: impl Fn() -> [String; 2],
    ) {
        if request.path.contains("finalize") {
            self.kept = Some(kept());
        }
        self.exchanges.push(json!({
            "method": request.method,
            "path": request.path,
            "status": answer.status,
            "fields": answer.fields,
            "content": String::from_utf8(answer.content.clone()).unwrap(),
        }));
    }

    /// Whether it shows more than the shortest way, and no failure.
    pub fn is_worth_it(&self) -> bool {
        let of = |part: &str| {
            let is_it = move |it: &&Value| path(it).contains(part);
            let found = self.exchanges.iter().filter(is_it);
            found
                .map(|it| it["content"].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        let is_pending = of("my-order")
            .first()
            .is_some_and(|it| it.contains("pending"));
        let is_rejected = of("").iter().any(|it| it.contains("badNonce"));
        is_pending && is_rejected && of("dir").len() == 3
    }

    pub fn write(&self, base: &str, name: &str, now: UnixTime) {
        let [account, order] = self.kept.as_ref().unwrap();
        let record = json!({
            "name": name, "now": now, "account": account, "order": order,
            "exchanges": self.exchanges,
        });
        let text = serde_json::to_string_pretty(&record).unwrap();
        fs::write(file(), text.replace(base, BASE) + "\n").unwrap();
    }
}

/// The recorded exchange with a site in this process.
struct World {
    played: Played,
    site: Arc<Site>,
    folder: TempDir,
}

impl World {
    fn start() -> Self {
        let site = Arc::new(Site::start());
        let validated = Arc::clone(&site);
        Self {
            played: Played::start(Box::new(move |path| validated.get(path))),
            site,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn now(&self) -> UnixTime {
        UnixTime(self.played.record["now"].as_u64().unwrap())
    }

    fn open(&self) -> Automatic {
        self.try_open(true).unwrap()
    }

    fn try_open(&self, terms_agreed: bool) -> Result<Automatic, AcmeError> {
        self.try_open_for(&[self.played.name()], terms_agreed)
    }

    fn try_open_for(&self, names: &[&str], terms_agreed: bool) -> Result<Automatic, AcmeError> {
        let options = AcmeOptions {
            email: "you@example.org".into(),
            names: names.iter().map(|it| (*it).to_owned()).collect(),
            directory: self.played.front.url("/dir"),
            trusted: self.played.front.trusted(),
            folder: self.state(),
            terms_agreed,
            external_account: None,
            methods: vec![Method01::Http],
            look_every: Duration::from_millis(5),
        };
        Automatic::open(options, &self.site.certificates, &self.site.tokens)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn keep(&self) -> PathBuf {
        self.played.keep(&self.state())
    }

    fn has_order(&self, folder: &Path) -> bool {
        let file = format!("{}.order.json", self.played.name());
        folder.join(file).exists()
    }

    /// Whether an order was made since this was asked last.
    fn has_ordered(&self) -> bool {
        let paths = self.played.front.take_paths();
        paths.iter().any(|it| it == "/order-plz")
    }

    fn served(&self) -> Vec<Certificate> {
        self.site.certificates.all()
    }
}

#[test]
fn from_nothing_everything_is_asked_as_it_was_then() {
    let world = World::start();
    let mut automatic = world.open();
    let mut now = world.now();
    for _ in 0..2 {
        now = automatic.turn(now);
    }
    world.played.check();
    let recorded = world.played.record["exchanges"].as_array().unwrap();
    let until = recorded
        .iter()
        .position(|it| path(it).contains("certZ"))
        .unwrap();
    let mut expected: Vec<&str> = recorded[..=until].iter().map(path).collect();
    let mut paths = world.played.front.take_paths();
    // How often it looks whether the order is done is the clock's choice.
    expected.retain(|path| !path.contains("my-order"));
    paths.retain(|path| !path.contains("my-order"));
    assert_eq!(paths, expected);
    // The certificate of then is for another key: nobody gets it.
    let report = automatic.report();
    let error = report.lock().unwrap().last_error.clone();
    assert!(
        error.contains("does not belong to the certificate"),
        "{error}"
    );
    assert!(world.served().is_empty());
}

#[test]
fn an_order_of_before_is_gone_on_with() {
    let world = World::start();
    let folder = world.keep();
    let mut automatic = world.open();
    let now = automatic.turn(world.now());
    world.played.check();
    let report = automatic.report();
    assert_eq!(report.lock().unwrap().last_error, "");
    let served = world.served();
    assert_eq!(served[0].names(), [world.played.name().to_owned()]);
    let kept = fs::read_to_string(folder.join(format!("{}.pem", world.played.name()))).unwrap();
    assert!(kept.contains("PRIVATE KEY") && kept.contains("BEGIN CERTIFICATE"));
    assert!(!world.has_order(&folder));
    // The response to the challenge is gone, and the renewal is asked for.
    automatic.turn(now);
    world.played.check();
    let paths = world.played.front.take_paths();
    assert!(paths.last().unwrap().contains("renewalInfo"), "{paths:?}");
    // After a restart it is in service at once.
    drop(automatic);
    world.site.certificates.replace(Vec::new());
    let automatic = world.open();
    assert_eq!(world.served()[0].der(), served[0].der());
    drop(automatic);
}

/// At the look at an order that is finalized, or at the download of its certificate.
#[test]
fn a_certificate_that_the_authority_does_not_hand_out_at_once_is_not_ordered_anew() {
    for (before, part) in [("finalize-order", "my-order"), ("my-order", "certZ")] {
        let world = World::start();
        let folder = world.keep();
        let refusal = problem("malformed", 404);
        world.played.answer_otherwise([before, part], 1, refusal);
        let mut automatic = world.open();
        let now = automatic.turn(world.now());
        let report = automatic.report();
        let error = report.lock().unwrap().last_error.clone();
        assert!(error.contains("malformed"), "{part}: {error}");
        assert!(world.served().is_empty());
        assert!(world.has_order(&folder), "{part}: with its key");
        let next = automatic.turn(now);
        assert!(next > now, "{part}: a pause");
        automatic.turn(next);
        world.played.check();
        assert_eq!(world.served().len(), 1, "{part}");
        assert!(!world.has_ordered(), "{part}");
        let kept = fs::read(folder.join("schedule.json")).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let events = kept["ledger"].as_array().unwrap().iter();
        let issued = events.filter(|it| it["event"] == "certificate");
        assert_eq!(issued.count(), 1, "{part}: it counts once");
    }
}

/// The first request of a later try: by mistake, or until somebody has done something at the authority.
const LOOK_AT_ORDER: [&str; 2] = ["nonce-plz", "my-order"];

/// The request that has the authority issue the certificate.
const FINALIZATION: [&str; 2] = ["my-order", "finalize-order"];

/// The first look at an order that is finalized.
const LOOK_AT_FINALIZED: [&str; 2] = ["finalize-order", "my-order"];

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A server that is stopped in the meantime has to know it at its next start.
#[test]
fn that_a_certificate_may_exist_is_in_the_file_before_it_is_waited_for() {
    for (paths, progress, certificates) in [
        (FINALIZATION, "finalized", 0),
        (LOOK_AT_FINALIZED, "finalized", 0),
        (["my-order", "certZ"], "granted", 1),
    ] {
        let world = World::start();
        let file = world.keep().join("schedule.json");
        let kept = Arc::new(Mutex::new(Value::Null));
        let seen = Arc::clone(&kept);
        world.played.look_before(paths, move || {
            let text = fs::read(&file).unwrap();
            *seen.lock().unwrap() = serde_json::from_slice(&text).unwrap();
        });
        world.open().turn(world.now());
        assert_eq!(world.served().len(), 1);
        let kept = kept.lock().unwrap();
        assert_eq!(kept["names"][world.played.name()]["progress"], progress);
        let events = kept["ledger"].as_array().unwrap().iter();
        let issued = events.filter(|it| it["event"] == "certificate");
        assert_eq!(issued.count(), certificates, "{progress}");
    }
}

/// The authority issues the certificate, and the program ends before the response. After a restart the order's URL
/// is refused once: that ended an order that was not known to be finalized, and its key with it.
#[test]
fn an_order_is_finished_after_a_restart_though_the_program_ended_at_its_finalization() {
    let world = World::start();
    let folder = world.keep();
    let order = format!("{}.order.json", world.played.name());
    let paths = ["schedule.json", &order].map(|name| folder.join(name));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (seen, of_then) = (Arc::clone(&kept), paths.clone());
    world.played.look_before(FINALIZATION, move || {
        let files = of_then.iter().map(|path| fs::read(path).unwrap());
        *seen.lock().unwrap() = files.collect();
    });
    let mut automatic = world.open();
    let now = automatic.turn(world.now());
    drop(automatic);
    // The files of that moment.
    fs::remove_file(folder.join(format!("{}.pem", world.played.name()))).unwrap();
    for (path, content) in paths.iter().zip(kept.lock().unwrap().iter()) {
        fs::write(path, content).unwrap();
    }
    world.site.certificates.replace(Vec::new());
    let refusal = problem("userActionRequired", 403);
    world.played.answer_otherwise(LOOK_AT_ORDER, 1, refusal);
    let mut automatic = world.open();
    assert!(world.served().is_empty());
    let now = automatic.turn(now);
    assert!(world.has_order(&folder), "with its key");
    let next = automatic.turn(now);
    assert!(next > now, "a pause");
    automatic.turn(next);
    world.played.check();
    assert_eq!(world.served().len(), 1);
    assert!(!world.has_ordered());
}

/// The authority says that there is no certificate: nothing is lost with the order.
#[test]
fn an_order_that_the_authority_refuses_to_finalize_makes_room_for_another() {
    let world = World::start();
    let folder = world.keep();
    let refusal = problem("badCSR", 403);
    world.played.answer_otherwise(FINALIZATION, 1, refusal);
    let mut automatic = world.open();
    let now = automatic.turn(world.now());
    assert!(!world.has_order(&folder));
    let next = automatic.turn(now);
    assert!(next > now, "a pause");
    automatic.turn(next);
    assert!(world.has_ordered());
}

/// Of a gateway that did not wait for the authority.
#[test]
fn an_order_may_be_finalized_though_the_response_is_missing() {
    for answer in [page(504), of_gateway(408)] {
        may_be_finalized_though(answer);
    }
}

fn may_be_finalized_though(answer: Answer) {
    let world = World::start();
    let folder = world.keep();
    world.played.answer_otherwise(FINALIZATION, 1, answer);
    let mut automatic = world.open();
    let now = automatic.turn(world.now());
    let refusal = problem("userActionRequired", 403);
    world.played.answer_otherwise(LOOK_AT_ORDER, 1, refusal);
    let next = automatic.turn(now);
    assert!(next > now, "a pause");
    let now = automatic.turn(next);
    assert!(world.has_order(&folder), "it is not over");
    let next = automatic.turn(now);
    automatic.turn(next);
    world.played.check();
    assert_eq!(world.served().len(), 1);
    assert!(!world.has_ordered());
}

#[test]
fn an_order_whose_certificate_may_exist_outlasts_refusals_at_its_url() {
    let world = World::start();
    let folder = world.keep();
    let fault = problem("serverInternal", 503);
    world.played.answer_otherwise(LOOK_AT_FINALIZED, 1, fault);
    let mut automatic = world.open();
    let mut now = automatic.turn(world.now());
    let refusal = problem("userActionRequired", 403);
    world.played.answer_otherwise(LOOK_AT_ORDER, 5, refusal);
    for refusals in 0..5 {
        assert!(world.has_order(&folder), "{refusals}");
        let next = automatic.turn(now);
        assert!(next > now, "{refusals}: a pause");
        now = automatic.turn(next);
        assert!(!world.has_ordered(), "{refusals}");
    }
    assert!(!world.has_order(&folder), "it is refused for good");
    let next = automatic.turn(now);
    automatic.turn(next);
    assert!(world.has_ordered());
}

/// Looks at an order whose certificate may exist, until it is given up.
#[test]
fn an_order_whose_certificate_does_not_come_for_a_week_makes_room_for_another() {
    for (answer, pauses) in [
        (page(200), true),
        (page(503), true),
        (problem("serverInternal", 500), true),
        // It is not known any more, as those say who do not know the authority.
        (page(404), false),
        (page(410), false),
        (without("type", problem("malformed", 404)), false),
        (of_gateway(404), false),
    ] {
        let world = World::start();
        let folder = world.keep();
        let said = said(&answer);
        world
            .played
            .answer_otherwise(LOOK_AT_FINALIZED, 1, page(200));
        let mut automatic = world.open();
        let now = automatic.turn(world.now());
        world.played.answer_otherwise(LOOK_AT_ORDER, 2, answer);
        let next = automatic.turn(now);
        automatic.turn(next);
        assert!(world.has_order(&folder), "it may come yet: {said}");
        let now = automatic.turn(now.plus(WEEK));
        assert!(!world.has_order(&folder), "{said}");
        assert!(!world.has_ordered(), "{said}");
        let next = automatic.turn(now);
        assert_eq!(world.has_ordered(), !pauses, "{said}");
        if pauses {
            automatic.turn(next);
            assert!(world.has_ordered(), "{said}");
        }
    }
}

/// There is no certificate of it that could come yet.
#[test]
fn an_order_that_is_never_finalized_makes_room_for_another_after_a_week() {
    for answer in [page(200), page(503), problem("serverInternal", 500)] {
        let world = World::start();
        let folder = world.keep();
        let said = said(&answer);
        world.played.answer_otherwise(LOOK_AT_ORDER, 2, answer);
        let mut automatic = world.open();
        let now = automatic.turn(world.now());
        assert!(world.has_order(&folder), "{said}");
        let now = automatic.turn(now.plus(WEEK));
        assert!(!world.has_order(&folder), "{said}");
        assert!(!world.has_ordered(), "{said}");
        let next = automatic.turn(now);
        assert!(next > now, "{said}: a pause");
        automatic.turn(next);
        assert!(world.has_ordered(), "{said}");
    }
}

/// A missing page at another URL, or a fault of the authority in a problem that does not repeat its status.
#[test]
fn an_order_outlasts_responses_that_say_nothing_of_it() {
    for (paths, answer) in [
        (["dir", "nonce-plz"], page(404)),
        (LOOK_AT_ORDER, without("status", problem("malformed", 503))),
    ] {
        let world = World::start();
        let folder = world.keep();
        world.played.answer_otherwise(paths, 1, answer);
        let mut automatic = world.open();
        let now = automatic.turn(world.now());
        assert!(world.has_order(&folder), "{paths:?}");
        let next = automatic.turn(now);
        assert!(next > now, "{paths:?}: a pause");
        automatic.turn(next);
        world.played.check();
        assert_eq!(world.served().len(), 1, "{paths:?}");
        assert!(!world.has_ordered(), "{paths:?}");
    }
}

#[test]
fn a_page_in_place_of_an_order_keeps_no_other_name_from_its_own() {
    for (paths, answer) in [
        (LOOK_AT_ORDER, page(200)),
        (LOOK_AT_ORDER, page(403)),
        (LOOK_AT_FINALIZED, page(404)),
        (["my-order", "certZ"], page(404)),
    ] {
        let world = World::start();
        let folder = world.keep();
        let names = [world.played.name(), "z.example.org"]; // this one is the second
        world.played.answer_otherwise(paths, 1, answer);
        let mut automatic = world.try_open_for(&names, true).unwrap();
        let now = automatic.turn(world.now());
        assert!(world.has_order(&folder), "{paths:?}");
        assert!(!world.has_ordered(), "{paths:?}");
        automatic.turn(now);
        assert!(world.has_ordered(), "{paths:?}: of the other, at once");
    }
}

#[test]
fn an_order_without_a_certificate_ends_when_it_is_refused_or_unknown() {
    for (refusal, pauses) in [
        (problem("unauthorized", 403), true),
        (problem("malformed", 404), false),
        (without("status", problem("malformed", 404)), false),
        (problem("malformed", 410), false),
        (page(404), false),
        (page(410), false),
        (of_gateway(404), false),
        (of_gateway(403), true),
    ] {
        let world = World::start();
        let folder = world.keep();
        world.played.answer_otherwise(LOOK_AT_ORDER, 1, refusal);
        let mut automatic = world.open();
        let now = automatic.turn(world.now());
        assert!(!world.has_order(&folder));
        automatic.turn(now);
        assert_eq!(world.has_ordered(), !pauses);
    }
}

#[test]
fn a_certificate_that_cannot_be_read_is_ordered_anew() {
    let world = World::start();
    let folder = world.keep();
    fs::write(
        folder.join(format!("{}.pem", world.played.name())),
        "nothing",
    )
    .unwrap();
    fs::write(folder.join("schedule.json"), "{").unwrap();
    let mut automatic = world.open();
    assert!(world.served().is_empty());
    automatic.turn(world.now());
    world.played.check();
    assert_eq!(world.served().len(), 1);
}

#[test]
fn a_name_whose_file_cannot_be_read_keeps_no_other_from_its_certificate() {
    let world = World::start();
    let (folder, names) = (world.keep(), ["a.example.org", world.played.name()]);
    fs::create_dir(folder.join("a.example.org.order.json")).unwrap();
    let mut automatic = world.try_open_for(&names, true).unwrap();
    let now = automatic.turn(world.now());
    let report = automatic.report();
    let error = report.lock().unwrap().last_error.clone();
    assert!(error.contains("a.example.org.order.json: "), "{error}");
    automatic.turn(now);
    world.played.check();
    assert_eq!(world.served().len(), 1);
}

#[test]
fn terms_are_agreed_to_by_option() {
    let world = World::start();
    let error = world.try_open(false).err().unwrap().to_string();
    assert!(error.contains("terms are at data:text/plain"), "{error}");
    world.played.front.set_down(true);
    let error = world.try_open(false).err().unwrap().to_string();
    assert!(error.contains("asked for its terms"), "{error}");
    world.open();
    // Who has an account has agreed.
    world.keep();
    world.try_open(false).unwrap();
}

/// Of a failed assertion.
fn said(answer: &Answer) -> String {
    let content = String::from_utf8_lossy(&answer.content);
    format!("{}: {content}", answer.status)
}

/// The answer of something that knows no problem documents.
fn page(status: u16) -> Answer {
    Answer {
        status,
        fields: Vec::new(),
        content: b"nothing".to_vec(),
    }
}

/// The answer of something that knows them, and no authority.
fn of_gateway(status: u16) -> Answer {
    let problem = json!({ "type": "about:blank", "title": "no", "status": status });
    document(&problem, status)
}

/// The answer of an authority that refuses something.
fn problem(kind: &str, status: u16) -> Answer {
    let kind = format!("urn:ietf:params:acme:error:{kind}");
    let problem = json!({ "type": kind, "detail": "not here", "status": status });
    document(&problem, status)
}

fn document(problem: &Value, status: u16) -> Answer {
    let field = ("content-type", "application/problem+json");
    Answer {
        status,
        fields: vec![(field.0.to_owned(), field.1.to_owned())],
        content: problem.to_string().into_bytes(),
    }
}

/// All members are optional (RFC 9457 section 3.1).
fn without(member: &str, mut answer: Answer) -> Answer {
    let mut problem: Value = serde_json::from_slice(&answer.content).unwrap();
    problem.as_object_mut().unwrap().remove(member);
    answer.content = problem.to_string().into_bytes();
    answer
}

fn path(exchange: &Value) -> &str {
    exchange["path"].as_str().unwrap()
}
