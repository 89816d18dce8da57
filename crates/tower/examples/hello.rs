//! The smallest axum app, under each architecture or (`--architecture axum`) under axum's own
//! `serve` with as many threads as `--loops` says: for comparing them.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use axum::Router;
use axum::routing::get;
use loadline_tower::Tower;

fn main() -> std::io::Result<()> {
    let args = args::Args::parse();
    let app = Router::new().route("/", get(|| async { "hello" }));
    if args.architecture != "axum" {
        return args.serve(Tower::new(app)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.loops)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen).await?;
        println!("serving at http://{}/ by axum::serve", args.listen);
        axum::serve(listener, app).await
    })
}
