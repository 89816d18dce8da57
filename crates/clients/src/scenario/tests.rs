//! Scenarios against servers that are functions, with a clock that the test moves.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use loadline_record::{ErrorKind, Tally};

use super::{Scenario, Setting};
use crate::harness::Harness;
use crate::{Event, Order, VirtualUser};

mod behaviour;
mod files;
mod setup;

const MS: u64 = 1_000_000;
/// How long a connection takes to come to be, and an answer to come, in every test.
const CONNECT_NS: u64 = 2 * MS;
const ANSWER_NS: u64 = 5 * MS;

/// A request as a server sees it.
struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Request {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.split("\r\n");
        let words: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert_eq!((words.len(), words[2]), (3, "HTTP/1.1"));
        let mut headers = BTreeMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(
                headers
                    .insert(name.to_lowercase(), value.to_owned())
                    .is_none(),
                "{name} twice"
            );
        }
        let request = Self {
            method: words[0].to_owned(),
            target: words[1].to_owned(),
            headers,
            body: body.to_owned(),
        };
        let len = request.header("content-length");
        assert_eq!(
            if len.is_empty() { "0" } else { len },
            body.len().to_string()
        );
        request
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// What a server does with a request.
enum Reaction {
    Answer(Vec<u8>),
    /// The bytes, then the end.
    Close(Vec<u8>),
    Reset,
    Silence,
}

fn answer(status: u16, headers: &str, content: &str) -> Reaction {
    let len = content.len();
    let head = format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {len}\r\n\r\n");
    Reaction::Answer([head.as_bytes(), content.as_bytes()].concat())
}

fn ok(content: &str) -> Reaction {
    answer(200, "", content)
}

/// One user, and what it did.
struct Play {
    harness: Harness<dyn VirtualUser>,
    connects: usize,
    closes: usize,
    is_connected: bool,
    /// Due times cannot be seen; when requests were sent can.
    sent_ns: Vec<u64>,
    lines: Vec<String>,
    /// Answers come in pieces of this number of bytes.
    piece: usize,
    is_done: bool,
    /// The server closes idle connections after this time.
    idle_ns: u64,
    refuses: bool,
    reaction: Option<Reaction>,
    /// How often it has reported that its setup is done.
    starts: usize,
    gave_up: Option<String>,
}

impl Deref for Play {
    type Target = Harness<dyn VirtualUser>;

    fn deref(&self) -> &Self::Target {
        &self.harness
    }
}

impl DerefMut for Play {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.harness
    }
}

impl Play {
    fn new(scenario: &Scenario, number: u64, seed: u64) -> Self {
        Self {
            harness: Harness::new((scenario.factory(setting()))(number, seed)),
            connects: 0,
            closes: 0,
            is_connected: false,
            sent_ns: Vec::new(),
            lines: Vec::new(),
            piece: usize::MAX,
            is_done: false,
            idle_ns: u64::MAX,
            refuses: false,
            reaction: None,
            starts: 0,
            gave_up: None,
        }
    }

    /// Carries out `count` orders against a server.
    fn run(&mut self, orders: usize, mut server: impl FnMut(Request) -> Reaction) -> &mut Self {
        for _ in 0..orders {
            match self.order() {
                Order::Connect => {
                    assert!(!self.is_connected, "connected already");
                    self.now_ns += CONNECT_NS;
                    if self.refuses {
                        self.on_event(Event::Failed(ErrorKind::Refused));
                        continue;
                    }
                    self.is_connected = true;
                    self.connects += 1;
                    self.on_event(Event::Connected);
                }
                Order::Send(bytes) => {
                    assert!(self.is_connected && !self.is_ending);
                    self.sent_ns.push(self.now_ns);
                    let request = Request::parse(&bytes);
                    self.lines.push(request.line());
                    self.reaction = Some(server(request));
                    self.on_event(Event::Sent);
                }
                Order::ReceiveUntil { ns, .. } => {
                    let reaction = self.reaction.take();
                    self.react(reaction.unwrap_or(Reaction::Silence), ns);
                }
                Order::SleepUntil { ns } => {
                    assert!(ns > self.now_ns, "sleeps in the past");
                    if self.is_connected && ns - self.now_ns > self.idle_ns {
                        self.now_ns += self.idle_ns;
                        self.is_connected = false;
                        self.on_event(Event::Closed);
                    } else {
                        self.now_ns = ns;
                        self.on_event(Event::Woken);
                    }
                }
                Order::Close { .. } => {
                    assert!(self.is_connected);
                    self.is_connected = false;
                    self.closes += 1;
                }
                Order::AwaitStart => self.starts += 1,
                Order::GiveUp(why) => {
                    self.gave_up = Some(why);
                    break;
                }
                Order::Receive { .. } => panic!("waits without an end"),
                Order::Done => {
                    assert!(!self.is_connected);
                    self.is_done = true;
                    break;
                }
            }
        }
        self
    }

    fn react(&mut self, reaction: Reaction, until_ns: u64) {
        let (bytes, ends) = match reaction {
            Reaction::Answer(bytes) => (bytes, false),
            Reaction::Close(bytes) => (bytes, true),
            Reaction::Reset => {
                self.is_connected = false;
                return self.on_event(Event::Failed(ErrorKind::Reset));
            }
            Reaction::Silence => {
                self.now_ns = until_ns;
                return self.on_event(Event::Woken);
            }
        };
        self.now_ns += ANSWER_NS;
        for piece in bytes.chunks(self.piece) {
            self.on_event(Event::Received(piece));
        }
        if ends {
            self.is_connected = false;
            self.on_event(Event::Closed);
        }
    }
}

fn setting() -> Setting {
    Setting {
        is_https: false,
        authority: "shop:8080".to_owned(),
        authorization: None,
        path_prefix: String::new(),
        timeout_ns: 2_000 * MS,
        deadline_ns: None,
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml", Path::new("")).unwrap()
}

fn documented() -> Scenario {
    let page = include_str!("../../../../docs/scenarios.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    scenario(example)
}

/// A shop that accepts no request without a token, a session and a name of its own.
#[derive(Default)]
struct Shop {
    sessions: usize,
    logins: Vec<String>,
    bought: Vec<String>,
}

impl Shop {
    fn serve(&mut self, request: &Request) -> Reaction {
        assert_eq!(request.header("accept"), "text/html");
        assert_eq!(request.header("host"), "shop:8080");
        let session = request
            .header("cookie")
            .strip_prefix("session=")
            .unwrap_or("");
        match request.line().split('?').next().unwrap() {
            "GET /register" => {
                assert_eq!(session, "", "a new visitor has no cookies");
                self.sessions += 1;
                let number = self.sessions;
                let page = format!(
                    "<form method=post><input type=hidden name=csrf_token value='t&amp;{number}+'></form>"
                );
                answer(
                    200,
                    &format!("Set-Cookie: session=s{number}; Path=/; HttpOnly\r\n"),
                    &page,
                )
            }
            "POST /register" => {
                let number = session.strip_prefix('s').unwrap();
                let token = format!("csrf_token=t%26{number}%2B&login=user");
                assert!(request.body.starts_with(&token), "{}", request.body);
                assert!(
                    request
                        .body
                        .ends_with("&password=correct+horse+battery+staple")
                );
                assert_eq!(
                    request.header("content-type"),
                    "application/x-www-form-urlencoded"
                );
                self.logins.push(request.body.clone());
                answer(303, "Location: welcome?x=1\r\n", "")
            }
            "GET /welcome" => {
                ok("Welcome! <a class=\"product\" href=\"products/7?a=b c\">seven</a>")
            }
            "GET /products/7" => {
                assert_eq!(request.target, "/products/7?a=b%20c");
                assert_eq!(request.header("x-session"), session);
                answer(200, "ETag: \"e7\"\r\n", "seven")
            }
            "GET /search" => {
                assert_eq!(request.header("if-none-match"), "\"e7\"");
                Reaction::Answer(b"HTTP/1.1 304 x\r\n\r\n".to_vec())
            }
            "PUT /cart" => {
                assert_eq!(request.header("content-type"), "application/json");
                self.bought.push(request.body.clone());
                answer(201, "", "")
            }
            line => panic!("{line}"),
        }
    }
}

#[test]
fn the_documented_example_registers_and_buys() {
    let scenario = documented();
    for piece in [usize::MAX, 100, 7, 1] {
        let mut shop = Shop::default();
        for number in 0..3 {
            let mut play = Play::new(&scenario, number, 7);
            play.piece = piece;
            for _ in 0..100 {
                if shop.bought.len() as u64 <= number {
                    play.run(1, |request| shop.serve(&request));
                }
            }
            play.run(1, |_| unreachable!()); // its last answer
            let tally = play.tally();
            assert_eq!((tally.offered, tally.sent), (6, 6));
            assert_eq!(
                (tally.completed, tally.good, tally.errors_total()),
                (6, 6, 0)
            );
            assert_eq!(tally.status_codes, [(200, 3), (201, 1), (303, 1), (304, 1)]);
            assert_eq!((play.connects, play.closes), (1, 0));
        }
        assert_eq!(shop.bought[2], "{\"user\": 3, \"visit\": 1}");
        let mut logins = shop.logins.clone();
        logins.sort_unstable();
        logins.dedup();
        assert_eq!(logins.len(), 3, "names of their own");
    }
    let steps = scenario.steps();
    assert_eq!(steps[1].name, "register");
    assert_eq!(
        (steps[1].requests, steps[1].failures, steps[1].successes),
        (24, 0, 12),
        "with the redirect"
    );
}

#[test]
fn a_seed_repeats_a_user() {
    let scenario = documented();
    let play = |number, seed| {
        let mut shop = Shop::default();
        let mut play = Play::new(&scenario, number, seed);
        play.run(100, |request| shop.serve(&request));
        (play.sent_ns, shop.logins)
    };
    assert_eq!(play(1, 7), play(1, 7));
    assert_ne!(play(1, 7).0, play(1, 8).0);
    assert_ne!(play(1, 7).0, play(2, 7).0);
}

const TWO_STEPS: &str = r#"
[[step]]
name = "first"
path = "/one"
[[step]]
path = "/two"
expect.contains = "fine"
capture.id = { header = "X-Id" }
"#;

#[test]
fn a_step_that_fails_is_counted_and_the_user_begins_anew() {
    let good = || answer(200, "X-Id: 1\r\n", "fine");
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine".to_vec();
    let long = b"HTTP/1.1 204 x\r\n\r\nmore".to_vec();
    let missing = answer(404, "", "");
    let redirect = answer(302, "Location: /\r\n", "");
    let bad = answer(200, "X-Id: 1\r\n", "bad");
    use ErrorKind::*;
    for (reaction, kind, words) in [
        (missing, Status4xx, "the status 404, not 200 to 299"),
        (answer(503, "", ""), Status5xx, "503"),
        (redirect, OtherStatus, "302"),
        (bad, WrongContent, "does not contain `fine`"),
        (ok("fine"), WrongContent, "has no header `X-Id`"),
        (Reaction::Close(Vec::new()), ClosedEarly, "closed before"),
        (Reaction::Close(short), ShortBody, "within the content"),
        (
            Reaction::Answer(b"SSH-2.0\r\n".to_vec()),
            Malformed,
            "HTTP/1",
        ),
        (Reaction::Answer(long), LongBody, "behind"),
        (Reaction::Reset, Reset, "reset"),
        (Reaction::Silence, Timeout, "timeout"),
    ] {
        let scenario = scenario(TWO_STEPS);
        let mut play = Play::new(&scenario, 4, 1);
        let mut reaction = Some(reaction);
        play.run(30, |request| match request.target.as_str() {
            "/one" => {
                assert_eq!(request.header("cookie"), "", "begins without cookies");
                answer(200, "Set-Cookie: a=b\r\n", "")
            }
            _ => {
                assert_eq!(request.header("cookie"), "a=b");
                reaction.take().unwrap_or_else(good)
            }
        });
        let tally = play.tally();
        assert_eq!(tally.errors_of(kind), 1, "{kind:?}: {tally:?}");
        assert_eq!(tally.errors_total(), 1, "{tally:?}");
        let in_flight = tally.sent - tally.good - 1;
        assert!(in_flight <= 1, "{tally:?}");
        assert_eq!(
            play.lines[..4],
            ["GET /one", "GET /two", "GET /one", "GET /two"]
        );
        let step = &scenario.steps()[1];
        assert_eq!((step.name.as_str(), step.failures), ("step 2", 1));
        let message = step.first_failure.as_deref().unwrap();
        assert!(
            message.starts_with("user 5: ") && message.contains(words),
            "{message}"
        );
    }
}
