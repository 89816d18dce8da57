//! Server-sent events: the time of day, each second, to as many as listen.
//!
//! With workers each listener holds one of them; `--workers 0` has the loop carry thousands.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::response::Html;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures_util::stream::{self, Stream};
use loadline_tower::Tower;

const PAGE: &str = "<!doctype html><title>Seconds</title><p id=now>…</p>
<script>new EventSource('/events').onmessage = e => now.textContent = e.data</script>";

fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/events", get(events));
    args::Args::parse().serve(Tower::new(app)?)
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let seconds = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Some((Ok(Event::default().data(now.as_secs().to_string())), ()))
    });
    Sse::new(seconds).keep_alive(KeepAlive::default())
}
