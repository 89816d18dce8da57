//! A log whose listener panics at every line, and a sink of the access log that does: a program of its
//! own, since what listens to logs listens to all threads.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[macro_use]
#[path = "conformance/model.rs"]
mod model;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use loadline_apps::{StaticFiles, StaticOptions};
use loadline_proto::{
    AccessFormat, Body, Context, Exchange, Handler, Outcome, Port, Task, TaskOptions,
};
use loadline_server::{AccessLogging, AccessSink, Server, ServerHandle};
use model::Model;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

every_model! {
    a_sink_that_panics_costs_lines_alone,
}

/// Longer than any answer takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// More than there are threads of any kind.
const TIMES: usize = 20;

/// Answers that are cut short under each model: of all together, more than may be said.
const CUTS: usize = 5;

/// More than all socket buffers hold.
const LARGE: u64 = 256 << 20;

/// A listener that panics at every line.
struct Panicking;

static LINES: AtomicU64 = AtomicU64::new(0);

/// When lines were said, by the place that says them.
static TIMES_BY_PLACE: Mutex<BTreeMap<(&str, u32), Vec<Instant>>> = Mutex::new(BTreeMap::new());

/// Lines of one kind in [`WINDOW`], which begins with the first of them (`telemetry/log.rs`).
const LINES_MAX: usize = 20;

/// As `loadline_base::LogLimit` has it.
const WINDOW: Duration = Duration::from_secs(10);

/// Any ten seconds have parts of two windows.
fn no_place_says_more_than_its_limit() {
    let times_by_place = TIMES_BY_PLACE.lock().unwrap();
    assert!(times_by_place.len() >= 2, "{:?}", times_by_place.keys());
    for (place, times) in times_by_place.iter() {
        for pair in times.windows(2 * LINES_MAX + 1) {
            let apart = pair[2 * LINES_MAX] - pair[0];
            assert!(apart >= WINDOW, "{place:?}: 41 lines in {apart:?}");
        }
    }
}

impl Subscriber for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        LINES.fetch_add(1, SeqCst);
        let place = event.metadata();
        let place = (place.target(), place.line().unwrap_or(0));
        let mut times_by_place = TIMES_BY_PLACE.lock().unwrap();
        times_by_place
            .entry(place)
            .or_default()
            .push(Instant::now());
        drop(times_by_place);
        panic!("the listener, on purpose");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Panicking).unwrap();
        std::panic::set_hook(Box::new(|_| ())); // hundreds of them, on purpose
    });
}

/// Panics wherever a handler can; files are those of a folder.
struct Site(StaticFiles);

impl Handler for Site {
    type Local = <StaticFiles as Handler>::Local;

    fn local(&self) -> Self::Local {
        self.0.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        turn: &mut Context<'_>,
    ) -> Outcome {
        match exchange.request.path() {
            b"/-/panic" => panic!("on purpose"),
            b"/-/panic-blocking" | b"/-/blocking" => Outcome::Blocking,
            b"/-/panic-app" | b"/-/panic-start" | b"/-/panic-drop" | b"/-/app" => {
                Outcome::Later(TaskOptions::default())
            }
            _ => self.0.handle(local, exchange, turn),
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        match exchange.request.path() {
            b"/-/panic-blocking" => panic!("on purpose"),
            b"/-/blocking" => exchange.response.body = Body::Bytes(b"fine".to_vec()),
            _ => self.0.handle_blocking(exchange),
        }
    }

    fn start(&self, mut exchange: Box<Exchange>, port: Port) -> Task {
        assert!(exchange.request.path() != b"/-/panic-start", "on purpose");
        Box::pin(async move {
            let _late = match exchange.request.path() {
                b"/-/panic-app" => panic!("on purpose"),
                b"/-/panic-drop" => Some(PanicsWhenDropped),
                _ => None,
            };
            exchange.response.body = Body::Bytes(b"fine".to_vec());
            port.answer(exchange);
        })
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

fn start(model: Model, root: &std::path::Path) -> Server<Site> {
    let files = StaticFiles::new(root, StaticOptions::default()).unwrap();
    let server = Server::new(Site(files)).options(model.options());
    server.listen(([127, 0, 0, 1], 0))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// All that comes back for one request on a connection of its own; nothing if it was cut.
fn ask(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn is_fine(address: SocketAddr, model: Model) {
    for path in ["/-/blocking", "/-/app", "/index.html"] {
        let answer = ask(address, path);
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "{model:?} {path}: {answer}"
        );
    }
}

/// Begins to read a large file, shortens it, and reads to the end, which comes too early.
fn cut_short(address: SocketAddr, file: &std::path::Path) {
    let large = std::fs::File::create(file).unwrap();
    large.set_len(LARGE).unwrap();
    let mut stream = connect(address);
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0; 64]).unwrap();
    large.set_len(10).unwrap();
    let rest = std::io::copy(&mut stream, &mut std::io::sink());
    assert!(
        rest.is_ok_and(|bytes| bytes < LARGE - 64),
        "it cannot be whole"
    );
}

fn end(handle: ServerHandle, model: Model) {
    handle.drain();
    let ending = handle.wait();
    assert!(
        ending.as_ref().is_ok_and(|ending| ending.is_clean()),
        "{model:?}: {ending:?}"
    );
}

/// One of each kind under each of them before there are many: the rate of lines is bounded.
#[test]
fn lines_that_panic_cost_nothing_and_many_are_said_at_a_bounded_rate() {
    listen();
    let offered = Model::ALL.iter().filter(|model| model.is_offered());
    let servers: Vec<_> = offered
        .map(|model| {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join("index.html"), "fine").unwrap();
            let handle = start(*model, root.path()).start().unwrap();
            (*model, root, handle.tcp_address().unwrap(), handle)
        })
        .collect();
    for (model, root, address, _) in &servers {
        let said = LINES.load(SeqCst);
        assert!(
            ask(*address, "/-/panic-app").starts_with("HTTP/1.1 500 "),
            "{model:?}"
        );
        assert!(LINES.load(SeqCst) > said, "{model:?}: nothing was said");
        let said = LINES.load(SeqCst);
        cut_short(*address, &root.path().join("large"));
        assert!(LINES.load(SeqCst) > said, "{model:?}: nothing was said");
        is_fine(*address, *model);
    }
    for (model, root, address, _) in &servers {
        for path in [
            "/-/panic",
            "/-/panic-blocking",
            "/-/panic-app",
            "/-/panic-start",
        ] {
            for _ in 0..TIMES {
                let answer = ask(*address, path);
                assert!(
                    answer.starts_with("HTTP/1.1 500 "),
                    "{model:?} {path}: {answer}"
                );
            }
        }
        for _ in 0..TIMES {
            let answer = ask(*address, "/-/panic-drop");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{model:?}: {answer}");
        }
        for _ in 0..CUTS {
            cut_short(*address, &root.path().join("large"));
        }
        is_fine(*address, *model);
    }
    for (model, _root, _, handle) in servers {
        end(handle, model);
    }
    no_place_says_more_than_its_limit();
}

/// Panics at whatever it is offered.
#[derive(Default)]
struct PanickingSink(AtomicU64);

impl AccessSink for PanickingSink {
    fn offer(&self, _: &mut Vec<u8>) {
        self.0.fetch_add(1, SeqCst);
        panic!("the sink, on purpose");
    }
}

fn a_sink_that_panics_costs_lines_alone(model: Model) {
    listen();
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.html"), "fine").unwrap();
    let sink = Arc::new(PanickingSink::default());
    let log = AccessLogging {
        format: AccessFormat::Common,
        sink: Arc::clone(&sink) as Arc<dyn AccessSink>,
    };
    let handle = start(model, root.path()).access_log(log).start().unwrap();
    for _ in 0..TIMES {
        is_fine(handle.tcp_address().unwrap(), model);
    }
    end(handle, model);
    assert!(sink.0.load(SeqCst) > 0, "{model:?}");
}
