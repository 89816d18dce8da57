//! Headless Firefox, driven over WebDriver BiDi, which it speaks without a driver beside it.
//!
//! Not a general driver: it visits pages, notes everything that went wrong on the way, and asks the
//! page questions in JavaScript.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use loadline_sys::process::die_with_parent;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Debian's and Mozilla's packages; `x` looks for the same.
const PROGRAMS: [&str; 2] = ["/usr/bin/firefox-esr", "/usr/bin/firefox"];
/// How long the browser may be silent while something is awaited: its first page takes a minute on a
/// machine that is busy.
const GRACE: Duration = Duration::from_secs(300);
/// Whatever is not on this machine is asked of a proxy that is not there.
const PREFERENCES: &str = r#"user_pref("network.proxy.type", 1);
user_pref("network.proxy.http", "127.0.0.1");
user_pref("network.proxy.http_port", 9);
user_pref("network.proxy.ssl", "127.0.0.1");
user_pref("network.proxy.ssl_port", 9);
user_pref("media.autoplay.default", 0);
"#;
const EVENTS: [&str; 5] = [
    "browsingContext.load",
    "log.entryAdded",
    "network.beforeRequestSent",
    "network.fetchError",
    "network.responseCompleted",
];

/// A process with one page; both end with the value.
pub(crate) struct Firefox {
    child: Child,
    _profile: TempDir,
    socket: WebSocket<TcpStream>,
    /// The page, as the browser calls it.
    context: Value,
    next_id: u64,
    events: VecDeque<Value>,
}

/// What happened while a page was loaded.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    /// Console errors, uncaught exceptions, requests that failed, answers of 400 and above.
    pub(crate) problems: Vec<String>,
    /// Address and status of every answer.
    pub(crate) answers: Vec<(String, u64)>,
}

impl Visit {
    /// Takes an event into account.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let url = parameters["request"]["url"].as_str().unwrap_or_default();
        match event["method"].as_str().unwrap_or_default() {
            "log.entryAdded" if parameters["level"] == "error" => {
                self.problems.push(format!("log: {parameters}"));
            }
            // A player breaks off what it does not need now, and the browser an icon of a page that
            // it leaves.
            "network.fetchError" if !is_media(url) && !is_left_icon(url, parameters) => {
                let error = &parameters["errorText"];
                self.problems
                    .push(format!("request failed: {url}: {error}"));
            }
            "network.responseCompleted" => {
                let status = parameters["response"]["status"].as_u64().unwrap_or(0);
                if status >= 400 {
                    self.problems.push(format!("{status} for {url}"));
                }
                self.answers.push((url.to_owned(), status));
            }
            _ => {}
        }
    }
}

/// Whether an address is one of sound, whose requests stay open for as long as the player likes.
fn is_media(url: &str) -> bool {
    url.ends_with(".ogg")
}

/// Whether it was the browser that broke off the request for a page's icon: it comes after all that the
/// page needs, so that the next page may be on its way.
fn is_left_icon(url: &str, parameters: &Value) -> bool {
    url.ends_with("/favicon.svg") && parameters["errorText"] == "NS_BINDING_ABORTED"
}

impl Firefox {
    /// Starts the browser and opens an empty page.
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        fs::write(profile.path().join("user.js"), PREFERENCES).expect("a file");
        let (child, address) = start(&profile);
        let host = address.trim_start_matches("ws://");
        let stream = TcpStream::connect(host).expect("the browser listens");
        stream.set_read_timeout(Some(GRACE)).expect("a timeout");
        let url = format!("{address}/session");
        let (socket, _) = tungstenite::client(url, stream).expect("a web socket");
        let mut browser = Self {
            child,
            _profile: profile,
            socket,
            context: Value::Null,
            next_id: 0,
            events: VecDeque::new(),
        };
        let any_certificate = json!({ "alwaysMatch": { "acceptInsecureCerts": true } });
        browser.call("session.new", json!({ "capabilities": any_certificate }));
        let page = browser.call("browsingContext.create", json!({ "type": "tab" }));
        browser.context = page["context"].clone();
        browser.call("session.subscribe", json!({ "events": EVENTS }));
        browser.show_as(1280);
        browser
    }

    /// Sets the width of the page.
    pub(crate) fn show_as(&mut self, width: u32) {
        let viewport = json!({ "width": width, "height": 900 });
        let what = json!({ "context": self.context, "viewport": viewport });
        self.call("browsingContext.setViewport", what);
    }

    /// Goes to `url` and waits until it is loaded, with its images decoded.
    pub(crate) fn visit(&mut self, url: &str) -> Visit {
        self.events.clear();
        let what = json!({ "context": self.context, "url": url, "wait": "none" });
        self.call("browsingContext.navigate", what);
        self.loaded()
    }

    /// Selects the link or button `selector` and waits for the page behind it.
    pub(crate) fn follow(&mut self, selector: &str) -> Visit {
        self.events.clear();
        // Once the answer is on its way: it would be lost with this page.
        let click = format!(
            "void setTimeout(() => document.querySelector({}).click())",
            json!(selector)
        );
        self.evaluate(&click);
        self.loaded()
    }

    /// The value of a JavaScript expression on the page; a promise is awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = format!("(async () => JSON.stringify((await ({expression})) ?? null))()");
        let what = json!({
            "expression": asked,
            "target": { "context": self.context },
            "awaitPromise": true,
        });
        let answer = self.call("script.evaluate", what);
        let text = answer["result"]["value"].as_str();
        let text = text.unwrap_or_else(|| panic!("{expression}: {answer}"));
        serde_json::from_str(text).expect("JSON")
    }

    /// Waits for the page's load event, for requests that are still out, and for images.
    fn loaded(&mut self) -> Visit {
        let mut visit = Visit::default();
        let mut out = HashSet::new();
        let mut is_loaded = false;
        while !is_loaded || !out.is_empty() {
            let event = self.events.pop_front().unwrap_or_else(|| self.receive());
            let parameters = &event["params"];
            if parameters["context"] != self.context && event["method"] != "log.entryAdded" {
                continue;
            }
            visit.note(&event);
            let request = &parameters["request"];
            let id = request["request"].as_str().unwrap_or_default().to_owned();
            match event["method"].as_str().unwrap_or_default() {
                "network.beforeRequestSent"
                    if !is_media(request["url"].as_str().unwrap_or_default()) =>
                {
                    out.insert(id);
                }
                "network.responseCompleted" | "network.fetchError" => {
                    out.remove(&id);
                }
                "browsingContext.load" => is_loaded = true,
                _ => {}
            }
        }
        self.evaluate(
            "Promise.allSettled([...document.images].map((image) => image.decode()))
                .then(() => true)",
        );
        while let Some(event) = self.events.pop_front() {
            visit.note(&event);
        }
        visit
    }

    /// Sends a command and waits for its result.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let command = json!({ "id": self.next_id, "method": method, "params": parameters });
        let sent = self.socket.send(Message::text(command.to_string()));
        sent.expect("the browser listens");
        loop {
            let message = self.receive();
            if message["id"] == self.next_id {
                assert_eq!(message["type"], "success", "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            let message = self.socket.read().expect("the browser answers in time");
            if let Message::Text(text) = message {
                return serde_json::from_str(&text).expect("the browser speaks JSON");
            }
        }
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill(); // what it has started ends with it
        let _ = self.child.wait();
    }
}

/// Starts the process; returns where it is reached: `ws://127.0.0.1:PORT`.
fn start(profile: &TempDir) -> (Child, String) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let program = PROGRAMS
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("Firefox is missing; install it with: apt-get install firefox-esr");
    let mut command = Command::new(program);
    command
        .args(["--headless", "--no-remote", "--remote-debugging-port", "0"])
        .arg("--profile")
        .arg(profile.path())
        .env("HOME", profile.path()) // it refuses to be root in somebody else's
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(writer);
    let child = die_with_parent(&mut command)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    drop(command); // and with it the pipe's other end
    let mut lines = BufReader::new(reader).lines();
    let mut said = String::new();
    let address = loop {
        let Some(Ok(line)) = lines.next() else {
            panic!("Firefox ended; it said:\n{said}");
        };
        if let Some((_, address)) = line.split_once("WebDriver BiDi listening on ") {
            break address.trim().to_owned();
        }
        said += &(line + "\n");
    };
    thread::spawn(move || lines.for_each(drop)); // a full pipe would stop it
    (child, address)
}
