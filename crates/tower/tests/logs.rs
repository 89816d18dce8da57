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

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Request, Response};
use axum::routing::get;
use http_body::Frame;
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

/// Content that is over at once, and may be polled once.
struct Over {
    has_ended: bool,
}

impl http_body::Body for Over {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let was_over = std::mem::replace(&mut self.has_ended, true);
        assert!(!was_over, "polled behind its end");
        Poll::Ready(None)
    }
}

/// A service whose response has less content than it says.
async fn has_nothing<B>(_: Request<B>) -> Result<Response<Over>, Infallible> {
    let response = Response::builder().header("Content-Length", "5");
    Ok(response.body(Over { has_ended: false }).unwrap())
}

/// What came of one request on a connection of its own, perhaps less than the whole answer.
fn answer(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    String::from_utf8(bytes).unwrap()
}

/// The answer to the one request that this app is asked.
fn answer_of(model: Model, app: impl Handler) -> String {
    let server = Server::new(app).options(model.options());
    let handle = server.listen(([127, 0, 0, 1], 0)).start().unwrap();
    let answer = answer(handle.tcp_address().unwrap());
    handle.drain();
    assert!(handle.wait().unwrap().is_clean(), "{model:?}");
    answer
}

/// Serves one request, which is answered with 500.
fn fail(model: Model, app: impl Handler) {
    let answer = answer_of(model, app);
    assert!(answer.starts_with("HTTP/1.1 500 "), "{model:?}: {answer}");
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
        let short = Tower::new(tower::service_fn(has_nothing)).unwrap();
        let answer = answer_of(*model, short);
        assert!(!answer.starts_with("HTTP/1.1 500 "), "{model:?}: {answer}");
        assert_eq!(log.take(), "", "{model:?}: it was polled behind its end");
    }
}
