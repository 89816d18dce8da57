//! Files (`--root`) beside an app whose every request takes 50 ms, in one of three ways: what a file
//! waits for while the app is busy is what `./x bench apps busy` measures.
//!
//! `curl localhost:8080/app/wait`, `/app/block` or `/app/compute`
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, HeaderName};
use axum::routing::get;
use loadline_apps::service_time::spend;
use loadline_apps::{Mounts, ServiceKind, StaticFiles, StaticOptions};
use loadline_tower::Tower;

const BUSY_FOR: Duration = Duration::from_millis(50);

/// An answer after which the connection closes: clients that stay would keep a server of few threads
/// from the files.
type Closing = ([(HeaderName, &'static str); 1], &'static str);

fn closing(text: &'static str) -> Closing {
    ([(CONNECTION, "close")], text)
}

fn main() -> std::io::Result<()> {
    let args = args::Args::parse();
    let app = Router::new()
        .route("/app/wait", get(wait))
        .route("/app/block", get(block))
        .route("/app/compute", get(compute));
    let files = StaticFiles::new(&args.root, StaticOptions::default())?;
    args.serve(Mounts::new(files).mount("/app", Tower::new(app)?))
}

/// Waits as apps should: whoever polls it can do something else meanwhile.
async fn wait() -> Closing {
    tokio::time::sleep(BUSY_FOR).await;
    closing("waited")
}

/// Holds its thread without using it, as a library does that knows nothing of futures.
async fn block() -> Closing {
    spend(BUSY_FOR, ServiceKind::Sleep);
    closing("blocked")
}

/// Holds its thread, and a CPU.
async fn compute() -> Closing {
    spend(BUSY_FOR, ServiceKind::Spin);
    closing("computed")
}
