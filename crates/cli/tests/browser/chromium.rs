//! Headless Chromium, driven over the DevTools protocol.
//!
//! Not a general driver: it visits pages, notes everything that went wrong on the way, asks the
//! page questions in JavaScript and takes screenshots. All tests share one process (`process.rs`);
//! each has a browser context of its own, with cookies, storage and cache of its own.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::process;

/// How long the browser may be silent while something is awaited. Its first page takes seconds on a
/// machine that has nothing else to do, and a minute on one that has.
const GRACE: Duration = Duration::from_secs(300);

/// A page in a browser context of its own; both end with the value.
pub(crate) struct Browser {
    socket: WebSocket<TcpStream>,
    session: String,
    has_scripts: bool,
    next_id: u64,
    events: VecDeque<Value>,
}

/// What happened while a page was loaded.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    /// Console errors, uncaught exceptions, requests that failed, answers of 400 and above.
    pub problems: Vec<String>,
    /// Path and status of every answer.
    pub answers: Vec<(String, u64)>,
}

impl Visit {
    /// Statuses of the answers whose path ends with `suffix`.
    pub(crate) fn statuses(&self, suffix: &str) -> Vec<u64> {
        let matching = self
            .answers
            .iter()
            .filter(|(path, _)| path.ends_with(suffix));
        matching.map(|(_, status)| *status).collect()
    }

    /// Takes an event into account.
    pub(crate) fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                self.problems
                    .push(format!("exception: {}", parameters["exceptionDetails"]));
            }
            "Runtime.consoleAPICalled" if parameters["type"] == "error" => {
                self.problems
                    .push(format!("console: {}", parameters["args"]));
            }
            "Log.entryAdded" if parameters["entry"]["level"] == "error" => {
                self.problems.push(format!("log: {}", parameters["entry"]));
            }
            // Media is read in parts, and the rest of a part that is not needed is cancelled.
            "Network.loadingFailed" if parameters["canceled"] != true => {
                self.problems.push(format!("request failed: {parameters}"));
            }
            "Network.responseReceived" => {
                let response = &parameters["response"];
                let url = response["url"].as_str().unwrap_or_default().to_owned();
                let status = response["status"].as_u64().unwrap_or_default();
                if status >= 400 {
                    self.problems.push(format!("{status} for {url}"));
                }
                self.answers.push((url, status));
            }
            _ => {}
        }
    }
}

impl Browser {
    /// Opens an empty page, in the process that all tests share.
    pub(crate) fn start() -> Self {
        let address = process::address();
        let host = address
            .trim_start_matches("ws://")
            .split('/')
            .next()
            .unwrap_or_default();
        let stream = TcpStream::connect(host)
            .unwrap_or_else(|error| panic!("cannot reach the browser at {host}: {error}"));
        stream
            .set_read_timeout(Some(GRACE))
            .expect("a read timeout");
        let (socket, _) = tungstenite::client(address, stream).expect("a web socket");
        let mut browser = Self {
            socket,
            session: String::new(),
            has_scripts: true,
            next_id: 0,
            events: VecDeque::new(),
        };
        // The context and its pages end with this connection.
        let own = json!({ "disposeOnDetach": true });
        let context = browser.call("Target.createBrowserContext", own);
        let page = browser.call(
            "Target.createTarget",
            json!({ "url": "about:blank", "browserContextId": context["browserContextId"] }),
        );
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", target);
        attached["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        // So that pages of other tests cannot take the focus away.
        browser.call(
            "Emulation.setFocusEmulationEnabled",
            json!({ "enabled": true }),
        );
        browser.show_as(1280, 900, "light");
        browser
    }

    /// Trusts every server, as a person does who clicks the warning away.
    pub(crate) fn accept_any_certificate(&mut self) {
        let any = json!({ "ignore": true });
        self.call("Security.setIgnoreCertificateErrors", any);
    }

    /// Goes to `url` and waits until it is loaded, with its images decoded.
    pub(crate) fn visit(&mut self, url: &str) -> Visit {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        self.loaded(answer["loaderId"].as_str().expect("a loader"))
    }

    /// Selects the link `selector` of the page and waits for the page behind it.
    pub(crate) fn follow(&mut self, selector: &str) -> Visit {
        self.events.clear();
        let click = format!("document.querySelector({}).click()", json!(selector));
        self.evaluate(&click);
        let mut visit = Visit::default();
        let commit = self.wait_for(&mut visit, |event| {
            event["method"] == "Page.frameNavigated"
                && event["params"]["frame"]["parentId"].is_null()
        });
        let loader = commit["params"]["frame"]["loaderId"]
            .as_str()
            .expect("a loader")
            .to_owned();
        let later = self.loaded(&loader);
        visit.problems.extend(later.problems);
        visit.answers.extend(later.answers);
        visit
    }

    /// The value of a JavaScript expression on the page; a promise is awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Sets the size of the page and whether it should be dark.
    pub(crate) fn show_as(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
    }

    /// Shows the page as on paper.
    pub(crate) fn show_as_print(&mut self) {
        self.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    }

    /// Moves the pointer to a place of the view, in pixels.
    pub(crate) fn point_at(&mut self, x: f64, y: f64) {
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": "mouseMoved", "x": x, "y": y }),
        );
    }

    /// Presses a key: "ArrowRight".
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Has pages do without their scripts. Questions are still answered, but not by promises.
    pub(crate) fn disable_scripts(&mut self) {
        self.has_scripts = false;
        self.call(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": true }),
        );
    }

    /// Saves what is seen under the build directory.
    pub(crate) fn screenshot(&mut self, name: &str) {
        self.capture(name, json!({ "format": "png" }));
    }

    /// Saves the whole page, whatever its length.
    pub(crate) fn screenshot_of_all(&mut self, name: &str) {
        let size = self.evaluate(
            "[document.documentElement.clientWidth, document.documentElement.scrollHeight]",
        );
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        self.capture(name, whole);
    }

    fn capture(&mut self, name: &str, how: Value) {
        let answer = self.call("Page.captureScreenshot", how);
        let text = answer["data"].as_str().expect("a picture");
        let picture = data_encoding::BASE64
            .decode(text.as_bytes())
            .expect("valid Base64");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../browser");
        fs::create_dir_all(&folder).expect("a folder for screenshots");
        fs::write(folder.join(format!("{name}.png")), picture).expect("a screenshot is written");
    }

    /// The next event that has come and was not looked at.
    pub(crate) fn noted(&mut self) -> Option<Value> {
        self.events.pop_front()
    }

    /// Events from now on until one is as wished; all are noted.
    pub(crate) fn wait_for(&mut self, visit: &mut Visit, wished: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.events.pop_front().unwrap_or_else(|| self.receive());
            visit.note(&event);
            if wished(&event) {
                return event;
            }
        }
    }

    /// Waits for the load event of `loader`, for requests that are still out, and for images.
    fn loaded(&mut self, loader: &str) -> Visit {
        let mut visit = Visit::default();
        let mut out = HashSet::new();
        let mut is_loaded = false;
        while !is_loaded || !out.is_empty() {
            let event = self.wait_for(&mut visit, |_| true);
            let parameters = &event["params"];
            let id = parameters["requestId"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            match event["method"].as_str().unwrap_or_default() {
                // Events of requests of the page before are over. A player keeps its
                // request open for as long as it likes.
                "Network.requestWillBeSent"
                    if parameters["loaderId"] == loader && parameters["type"] != "Media" =>
                {
                    out.insert(id);
                }
                "Network.loadingFinished" | "Network.loadingFailed" => {
                    out.remove(&id);
                }
                "Page.lifecycleEvent" => {
                    is_loaded |= parameters["loaderId"] == loader && parameters["name"] == "load";
                }
                _ => {}
            }
        }
        if self.has_scripts {
            self.evaluate(
                "Promise.allSettled([...document.images].map((image) => image.decode()))
                    .then(() => new Promise(requestAnimationFrame)).then(() => true)",
            );
        }
        while let Some(event) = self.events.pop_front() {
            visit.note(&event);
        }
        visit
    }

    /// Sends a command and waits for its result.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let mut command = json!({ "id": self.next_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(command.to_string()))
            .expect("the browser listens");
        loop {
            let message = self.receive();
            if message["id"] == self.next_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
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
