//! The smallest axum app, under each architecture; or under axum's own `serve`, to compare, with
//! `--architecture axum` (a tokio runtime of as many threads as `--loops` says) or
//! `--architecture axum-current-thread` (tokio's runtime without threads of its own).
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use axum::Router;
use axum::routing::get;
use loadline_tower::Tower;
use tokio::runtime::Builder;

fn main() -> std::io::Result<()> {
    let args = args::Args::parse();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let mut builder = match &*args.architecture {
        "axum" => Builder::new_multi_thread(),
        "axum-current-thread" => Builder::new_current_thread(),
        _ => return args.serve(Tower::new(app)?),
    };
    let runtime = builder.worker_threads(args.loops).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen).await?;
        println!("serving at http://{}/ by axum::serve", args.listen);
        axum::serve(listener, app).await
    })
}
