//! What an app that does not work leaves in the log, by a program of its own: what listens to logs
//! listens to all threads.

#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[macro_use]
#[expect(unused_macros, reason = "a part of it is used here")]
#[path = "../../server/tests/conformance/model.rs"]
mod model;
#[path = "../../server/tests/shared/log.rs"]
mod log;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::routing::get;
use loadline_proto::Handler;
use loadline_server::Server;
use loadline_tower::Tower;
use log::Log;
use model::Model;

/// Longer than any answer takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// That this, and nothing else, has come since the last time.
fn is_one_line(log: &Log, model: Model, text: &str) {
    let logged = log.take();
    assert!(logged.contains(text), "{model:?}: {logged}");
    assert_eq!(logged.lines().count(), 1, "{model:?}: {logged}");
}

async fn panics() {
    panic!("on purpose");
}

/// A service that fails instead of answering.
async fn fails<B>(_: Request<B>) -> Result<axum::response::Response, io::Error> {
    Err(io::Error::other("as asked for"))
}

/// The whole answer to one request on a connection of its own.
fn answer(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Serves one request, which is answered with 500.
fn fail(model: Model, app: impl Handler) {
    let server = Server::new(app).options(model.options());
    let handle = server.listen(([127, 0, 0, 1], 0)).start().unwrap();
    let answer = answer(handle.tcp_address().unwrap(), "/");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{model:?}: {answer}");
    handle.drain();
    assert!(handle.wait().unwrap().is_clean(), "{model:?}");
}

#[test]
fn a_panic_and_a_failure_are_lines_in_the_log_under_every_architecture() {
    let log = Log::listen(tracing::Level::ERROR);
    for model in Model::ALL.iter().filter(|model| model.is_offered()) {
        let panicking = Tower::new(Router::new().route("/", get(panics))).unwrap();
        fail(*model, panicking);
        is_one_line(&log, *model, "an app panicked: on purpose");
        let failing = Tower::new(tower::service_fn(fails)).unwrap();
        fail(*model, failing);
        is_one_line(&log, *model, "an app failed: as asked for");
    }
}
