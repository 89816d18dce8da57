//! An authority that plays a recorded exchange, and checks what it is asked as one that is real.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;

use crate::front::{Answer, Front, ReceivedRequest};

/// What stands in the file for the authority's address.
pub const BASE: &str = "https://authority";

/// The challenge over TLS (RFC 8737).
const TLS_ALPN_01: &str = "tls-alpn-01";

/// The response to a GET of a path at the server that is validated.
type Fetch = dyn Fn(&str) -> String + Send;

/// The certificate of a handshake for `acme-tls/1` with it; `None`: there is no connection.
type Handshake = dyn Fn() -> Option<Vec<u8>> + Send;

/// What is answered to requests that are known by what comes before; `None`: as it was then.
type OtherAnswer = dyn FnMut() -> Option<Answer> + Send;

/// An answer that was not given then.
struct Other {
    /// Parts of the paths of two requests, of which the second is answered so if it follows the first at once.
    paths: [&'static str; 2],
    answer: Box<OtherAnswer>,
    /// How often.
    left: usize,
}

/// The recorded exchange, played.
pub struct Played {
    pub front: Front,
    pub record: Value,
    other: Arc<Mutex<Option<Other>>>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Played {
    /// Validates over HTTP alone.
    pub fn start(fetch: Box<Fetch>) -> Self {
        Self::validating(fetch, Box::new(|| None))
    }

    /// The same over TLS, too: as if the record had that challenge in place of the one over HTTP.
    pub fn validating(fetch: Box<Fetch>, handshake: Box<Handshake>) -> Self {
        let text = fs::read_to_string(file()).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let faults = Arc::new(Mutex::new(Vec::new()));
        let other = Arc::default();
        let mut player = Player::new(
            &record,
            fetch,
            handshake,
            Arc::clone(&faults),
            Arc::clone(&other),
        );
        let play = move |request: &ReceivedRequest, base: &str| player.play(request, base);
        let front = Front::start(Box::new(play));
        Self {
            front,
            record,
            other,
            faults,
        }
    }

    /// Gives this answer so many times: to requests with the second part in their paths that follow one with
    /// the first at once.
    #[allow(dead_code, reason = "not all who play it have it answer anything else")]
    pub fn answer_otherwise(&self, paths: [&'static str; 2], times: usize, answer: Answer) {
        *self.other.lock().unwrap() = Some(Other {
            paths,
            answer: Box::new(move || Some(answer.clone())),
            left: times,
        });
    }

    /// Looks at something before such a request is answered for the first time.
    #[allow(dead_code, reason = "not all who play it look at anything")]
    pub fn look_before(&self, paths: [&'static str; 2], mut look: impl FnMut() + Send + 'static) {
        *self.other.lock().unwrap() = Some(Other {
            paths,
            answer: Box::new(move || {
                look();
                None
            }),
            left: 1,
        });
    }

    pub fn name(&self) -> &str {
        self.record["name"].as_str().unwrap()
    }

    /// The token of the challenge of this kind.
    pub fn token(&self, kind: &str) -> String {
        let challenge = challenge(&self.record, kind);
        challenge["token"].as_str().unwrap().to_owned()
    }

    /// Puts the files of then into a state directory.
    pub fn keep(&self, state: &Path) -> PathBuf {
        let address = self.front.address();
        let folder = state.join(format!("{}-{}-dir", address.ip(), address.port()));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder).unwrap();
        for (name, what) in [
            ("account.json".to_owned(), "account"),
            (format!("{}.order.json", self.name()), "order"),
        ] {
            let text = self.record[what].as_str().unwrap();
            let text = text.replace(BASE, &self.front.url(""));
            let mut kept: Value = serde_json::from_str(&text).unwrap();
            if what == "account" {
                kept["contact"] = "mailto:you@example.org".into();
            }
            fs::write(folder.join(name), kept.to_string()).unwrap();
        }
        folder
    }

    /// Whether everything was asked as it should be.
    pub fn check(&self) {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

/// Where it is, from the folder of any crate.
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../acme/tests/acme/recorded.json")
}

/// Plays the responses: those to the same request in their order, the last one again and again.
struct Player {
    answers: HashMap<(String, String), Vec<Answer>>,
    nonces: Vec<String>,
    fetch: Box<Fetch>,
    handshake: Box<Handshake>,
    faults: Arc<Mutex<Vec<String>>>,
    other: Arc<Mutex<Option<Other>>>,
    /// The path of the last request.
    last: String,
}

impl Player {
    fn new(
        record: &Value,
        fetch: Box<Fetch>,
        handshake: Box<Handshake>,
        faults: Arc<Mutex<Vec<String>>>,
        other: Arc<Mutex<Option<Other>>>,
    ) -> Self {
        let mut answers: HashMap<_, Vec<_>> = HashMap::new();
        for it in record["exchanges"].as_array().unwrap().iter().rev() {
            let text = |name: &str| it[name].as_str().unwrap().to_owned();
            let answer = answer(it);
            let key = (text("method"), text("path"));
            let all = answers.entry(key).or_default();
            // How often it was looked whether an order is done says nothing.
            let is_again = |last: &Answer| last.status == 200 && last.content == answer.content;
            if it["method"] == "POST" && all.last().is_some_and(is_again) {
                continue;
            }
            all.push(answer);
        }
        let (path, ready) = ready_over_tls(record);
        answers.insert(("POST".to_owned(), path), vec![ready]);
        Self {
            answers,
            nonces: Vec::new(),
            fetch,
            handshake,
            faults,
            other,
            last: String::new(),
        }
    }

    fn play(&mut self, request: &ReceivedRequest, base: &str) -> Option<Answer> {
        if request.method == "POST" {
            self.check(request, base);
        }
        let last = std::mem::replace(&mut self.last, request.path.clone());
        if let Some(other) = self.other_answer(&last, &request.path) {
            return Some(other);
        }
        let key = (request.method.clone(), request.path.clone());
        let Some(answers) = self.answers.get_mut(&key) else {
            self.fault(format!("{key:?} was not asked then"));
            return None;
        };
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop().unwrap(),
        };
        let content = String::from_utf8(answer.content.clone()).unwrap();
        if request.path.contains("chalZ") && answer.status == 200 {
            self.validate(&content)?;
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

    /// The answer to a request that is not answered as it was then.
    fn other_answer(&self, last: &str, path: &str) -> Option<Answer> {
        let mut other = self.other.lock().unwrap();
        let other = other.as_mut()?;
        let [before, part] = other.paths;
        if other.left == 0 || !last.contains(before) || !path.contains(part) {
            return None;
        }
        other.left -= 1;
        (other.answer)()
    }

    /// What every authority checks of what is signed: its URL, and a nonce that it has given.
    fn check(&mut self, request: &ReceivedRequest, base: &str) {
        let jws: Value = serde_json::from_slice(&request.body).unwrap();
        let head = BASE64URL_NOPAD
            .decode(jws["protected"].as_str().unwrap().as_bytes())
            .unwrap();
        let head: Value = serde_json::from_slice(&head).unwrap();
        if head["url"] != format!("{base}{}", request.path) {
            self.fault(format!("{}: signed for {}", request.path, head["url"]));
        }
        let nonce = head["nonce"].as_str().unwrap_or_default();
        match self.nonces.iter().position(|it| it == nonce) {
            Some(at) => {
                self.nonces.swap_remove(at);
            }
            None => self.fault(format!("{}: an unknown nonce", request.path)),
        }
    }

    /// Looks for the response to a challenge where an authority does. `None`: it is not there.
    fn validate(&self, challenge: &str) -> Option<()> {
        let challenge: Value = serde_json::from_str(challenge).unwrap();
        let token = challenge["token"].as_str().unwrap();
        if challenge["type"] == TLS_ALPN_01 {
            let certificate = (self.handshake)();
            if certificate.is_none() {
                self.fault(format!("a challenge over TLS: no certificate, {token}"));
            }
            return certificate.map(drop);
        }
        let get = |token: &str| (self.fetch)(&format!("/.well-known/acme-challenge/{token}"));
        let (response, other) = (get(token), get("other"));
        let is_right = response.starts_with("HTTP/1.1 200 ")
            && response.contains(&format!("\r\n\r\n{token}."));
        if !is_right || other.starts_with("HTTP/1.1 200 ") {
            self.fault(format!("a challenge: {response}, {other}"));
            return None;
        }
        Some(())
    }

    fn fault(&self, text: String) {
        self.faults.lock().unwrap().push(text);
    }
}

/// Of a recorded exchange.
fn answer(exchange: &Value) -> Answer {
    Answer {
        status: u16::try_from(exchange["status"].as_u64().unwrap()).unwrap(),
        fields: serde_json::from_value(exchange["fields"].clone()).unwrap(),
        content: exchange["content"].as_str().unwrap().to_owned().into(),
    }
}

/// The first exchange with such a path.
fn exchange<'r>(record: &'r Value, part: &str) -> &'r Value {
    let mut all = record["exchanges"].as_array().unwrap().iter();
    let is_it = |it: &&Value| it["path"].as_str().unwrap().contains(part);
    all.find(is_it).unwrap()
}

/// The challenge of this kind, as the authorization has it.
fn challenge(record: &Value, kind: &str) -> Value {
    let authorization = exchange(record, "authZ")["content"].as_str().unwrap();
    let authorization: Value = serde_json::from_str(authorization).unwrap();
    let mut all = authorization["challenges"].as_array().unwrap().iter();
    all.find(|it| it["type"] == kind).unwrap().clone()
}

/// Where a client says that the challenge over TLS can be looked at, and the response to that: it was the one
/// over HTTP then.
fn ready_over_tls(record: &Value) -> (String, Answer) {
    let challenge = challenge(record, TLS_ALPN_01);
    let url = challenge["url"].as_str().unwrap();
    let path = url.strip_prefix(BASE).unwrap().to_owned();
    let answer = Answer {
        content: challenge.to_string().into_bytes(),
        ..answer(exchange(record, "chalZ"))
    };
    (path, answer)
}
