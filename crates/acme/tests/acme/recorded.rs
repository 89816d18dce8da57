//! An exchange with Pebble that was recorded (`record_by_hand` beside it), played by an authority that does
//! nothing else: fast, and the same each time.
//!
//! A certificate is for the key that was used then. So the exchange is played twice: from nothing, up to
//! the certificate that does not fit the new key; and from the order that was kept then, to its end.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use loadline_acme::{AcmeOptions, Automatic, Method01, UnixTime};
use loadline_tls::Certificate;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::front::{Answer, Asked, Front};
use crate::site::Site;

/// What stands in the file for the authority's address.
const BASE: &str = "https://authority";

/// Collects what passes.
#[derive(Default)]
pub struct Recorder {
    exchanges: Vec<Value>,
    /// Account and order while the order is under way.
    kept: Option<[String; 2]>,
}

impl Recorder {
    pub fn add(&mut self, asked: &Asked, answer: &Answer, kept: impl Fn() -> [String; 2]) {
        if asked.path.contains("finalize") {
            self.kept = Some(kept());
        }
        self.exchanges.push(json!({
            "method": asked.method,
            "path": asked.path,
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

/// The recorded exchange, played.
struct Played {
    front: Front,
    site: Arc<Site>,
    record: Value,
    folder: TempDir,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Played {
    fn start() -> Self {
        let text = fs::read_to_string(file()).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let site = Arc::new(Site::start());
        let faults = Arc::new(Mutex::new(Vec::new()));
        let mut player = Player::new(&record, Arc::clone(&site), Arc::clone(&faults));
        let base = Arc::new(Mutex::new(String::new()));
        let of_front = Arc::clone(&base);
        let front = Front::start(Box::new(move |asked| {
            player.play(asked, &of_front.lock().unwrap())
        }));
        *base.lock().unwrap() = front.url("");
        Self {
            front,
            site,
            record,
            folder: tempfile::tempdir().unwrap(),
            faults,
        }
    }

    fn name(&self) -> &str {
        self.record["name"].as_str().unwrap()
    }

    fn now(&self) -> UnixTime {
        UnixTime(self.record["now"].as_u64().unwrap())
    }

    fn open(&self) -> Automatic {
        let options = AcmeOptions {
            email: "you@example.org".into(),
            names: vec![self.name().to_owned()],
            directory: self.front.url("/dir"),
            trusted: self.front.trusted(),
            folder: self.folder.path().join("state"),
            terms_agreed: true,
            methods: vec![Method01::Http],
            look_every: Duration::from_millis(5),
        };
        Automatic::open(options, &self.site.certificates, &self.site.tokens).unwrap()
    }

    /// Puts the files of then where they belong.
    fn keep(&self) -> PathBuf {
        drop(self.open()); // it makes the folders
        let all = fs::read_dir(self.folder.path().join("state")).unwrap();
        let mut folders = all.flatten().map(|it| it.path()).filter(|it| it.is_dir());
        let folder = folders.next().unwrap();
        let base = self.front.url("");
        for (name, what) in [
            ("account.json".to_owned(), "account"),
            (format!("{}.order.json", self.name()), "order"),
        ] {
            let text = self.record[what].as_str().unwrap().replace(BASE, &base);
            fs::write(folder.join(name), text).unwrap();
        }
        folder
    }

    fn served(&self) -> Vec<Certificate> {
        self.site.certificates.all()
    }

    fn check(&self) {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

/// Plays the responses: those to the same request in their order, the last one again and again.
struct Player {
    answers: HashMap<(String, String), Vec<Answer>>,
    nonces: Vec<String>,
    site: Arc<Site>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Player {
    fn new(record: &Value, site: Arc<Site>, faults: Arc<Mutex<Vec<String>>>) -> Self {
        let mut answers: HashMap<_, Vec<_>> = HashMap::new();
        for it in record["exchanges"].as_array().unwrap().iter().rev() {
            let text = |name: &str| it[name].as_str().unwrap().to_owned();
            let answer = Answer {
                status: u16::try_from(it["status"].as_u64().unwrap()).unwrap(),
                fields: serde_json::from_value(it["fields"].clone()).unwrap(),
                content: text("content").into_bytes(),
            };
            let key = (text("method"), text("path"));
            answers.entry(key).or_default().push(answer);
        }
        Self {
            answers,
            nonces: Vec::new(),
            site,
            faults,
        }
    }

    fn play(&mut self, asked: &Asked, base: &str) -> Option<Answer> {
        if asked.method == "POST" {
            self.check(asked, base);
        }
        let key = (asked.method.clone(), asked.path.clone());
        let Some(answers) = self.answers.get_mut(&key) else {
            self.fault(format!("{key:?} was not asked then"));
            return None;
        };
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop().unwrap(),
        };
        let content = String::from_utf8(answer.content.clone()).unwrap();
        if asked.path.contains("chalZ") && answer.status == 200 {
            self.validate(&content);
        }
        let fields = answer.fields.into_iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| (name, value.replace(BASE, base)))
            .collect();
        let nonce = fields.iter().find(|(name, _)| name == "replay-nonce");
        self.nonces.extend(nonce.map(|(_, value)| value.clone()));
        Some(Answer {
            fields,
            content: content.replace(BASE, base).into_bytes(),
            ..answer
        })
    }

    /// What every authority checks of what is signed: its URL, and a nonce that it has given.
    fn check(&mut self, asked: &Asked, base: &str) {
        let jws: Value = serde_json::from_slice(&asked.body).unwrap();
        let head = BASE64URL_NOPAD
            .decode(jws["protected"].as_str().unwrap().as_bytes())
            .unwrap();
        let head: Value = serde_json::from_slice(&head).unwrap();
        if head["url"] != format!("{base}{}", asked.path) {
            self.fault(format!("{}: signed for {}", asked.path, head["url"]));
        }
        let nonce = head["nonce"].as_str().unwrap_or_default();
        match self.nonces.iter().position(|it| it == nonce) {
            Some(at) => {
                self.nonces.swap_remove(at);
            }
            None => self.fault(format!("{}: an unknown nonce", asked.path)),
        }
    }

    /// Looks for the response to a challenge where an authority does.
    fn validate(&self, challenge: &str) {
        let challenge: Value = serde_json::from_str(challenge).unwrap();
        let token = challenge["token"].as_str().unwrap();
        let response = self
            .site
            .get(&format!("/.well-known/acme-challenge/{token}"));
        if !response.starts_with("HTTP/1.1 200 ")
            || !response.contains(&format!("\r\n\r\n{token}."))
        {
            self.fault(format!("no response to the challenge: {response}"));
        }
        let other = self.site.get("/.well-known/acme-challenge/other");
        if !other.starts_with("HTTP/1.1 404 ") {
            self.fault(format!("a response to no challenge: {other}"));
        }
    }

    fn fault(&self, text: String) {
        self.faults.lock().unwrap().push(text);
    }
}

#[test]
fn from_nothing_everything_is_asked_as_it_was_then() {
    let played = Played::start();
    let mut automatic = played.open();
    let mut now = played.now();
    for _ in 0..2 {
        now = automatic.turn(now);
    }
    played.check();
    let recorded = played.record["exchanges"].as_array().unwrap();
    let until = recorded
        .iter()
        .position(|it| path(it).contains("certZ"))
        .unwrap();
    let mut expected: Vec<&str> = recorded[..=until].iter().map(path).collect();
    let mut asked = played.front.take_asked();
    // How often it looks whether the order is done is the clock's choice.
    expected.retain(|path| !path.contains("my-order"));
    asked.retain(|path| !path.contains("my-order"));
    assert_eq!(asked, expected);
    // The certificate of then is for another key: nobody gets it.
    let report = automatic.report();
    let error = report.lock().unwrap().last_error.clone();
    assert!(
        error.contains("does not belong to the certificate"),
        "{error}"
    );
    assert!(played.served().is_empty());
}

#[test]
fn an_order_of_before_is_gone_on_with() {
    let played = Played::start();
    let folder = played.keep();
    let mut automatic = played.open();
    let now = automatic.turn(played.now());
    played.check();
    let report = automatic.report();
    assert_eq!(report.lock().unwrap().last_error, "");
    let served = played.served();
    assert_eq!(served[0].names(), [played.name().to_owned()]);
    let kept = fs::read_to_string(folder.join(format!("{}.pem", played.name()))).unwrap();
    assert!(kept.contains("PRIVATE KEY") && kept.contains("BEGIN CERTIFICATE"));
    assert!(
        !folder
            .join(format!("{}.order.json", played.name()))
            .exists()
    );
    // The response to the challenge is gone, and the renewal is asked for.
    automatic.turn(now);
    played.check();
    let asked = played.front.take_asked();
    assert!(asked.last().unwrap().contains("renewalInfo"), "{asked:?}");
    // After a restart it is in service at once.
    drop(automatic);
    played.site.certificates.replace(Vec::new());
    let automatic = played.open();
    assert_eq!(played.served()[0].der(), served[0].der());
    drop(automatic);
}

#[test]
fn a_certificate_that_cannot_be_read_is_ordered_anew() {
    let played = Played::start();
    let folder = played.keep();
    fs::write(folder.join(format!("{}.pem", played.name())), "nothing").unwrap();
    fs::write(folder.join("schedule.json"), "{").unwrap();
    let mut automatic = played.open();
    assert!(played.served().is_empty());
    automatic.turn(played.now());
    played.check();
    assert_eq!(played.served().len(), 1);
}

#[test]
fn terms_are_agreed_to_by_option() {
    let played = Played::start();
    let options = |terms_agreed| AcmeOptions {
        email: "you@example.org".into(),
        names: vec![played.name().to_owned()],
        directory: played.front.url("/dir"),
        trusted: played.front.trusted(),
        folder: played.folder.path().join("state"),
        terms_agreed,
        methods: vec![Method01::Http],
        look_every: Duration::from_millis(5),
    };
    let open = |terms_agreed| {
        let (certificates, tokens) = (&played.site.certificates, &played.site.tokens);
        Automatic::open(options(terms_agreed), certificates, tokens)
    };
    let error = open(false).err().unwrap().to_string();
    assert!(error.contains("terms are at data:text/plain"), "{error}");
    played.front.set_down(true);
    let error = open(false).err().unwrap().to_string();
    assert!(error.contains("asked for its terms"), "{error}");
    open(true).unwrap();
    // Who has an account has agreed.
    played.keep();
    open(false).unwrap();
}

fn path(exchange: &Value) -> &str {
    exchange["path"].as_str().unwrap()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acme/recorded.json")
}
