//! An upload of any size, hashed as it comes: no more of it than a window is ever in memory.
//!
//! `curl -T large.iso localhost:8080/upload`
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own"
)]

mod args;

use std::hash::{DefaultHasher, Hasher as _};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::put;
use futures_util::StreamExt as _;
use loadline_tower::Tower;

fn main() -> std::io::Result<()> {
    let app = Router::new().route("/upload", put(upload));
    args::Args::parse().serve(Tower::new(app)?)
}

async fn upload(body: Body) -> Result<String, StatusCode> {
    let mut content = body.into_data_stream();
    let (mut hasher, mut len) = (DefaultHasher::new(), 0);
    while let Some(bytes) = content.next().await {
        // The client has left or is too slow: this future would be dropped next anyway.
        let bytes = bytes.map_err(|_| StatusCode::BAD_REQUEST)?;
        hasher.write(&bytes);
        len += bytes.len();
    }
    Ok(format!("{len} bytes, {:016x}\n", hasher.finish()))
}
