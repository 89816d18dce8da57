//! Loadline under every architecture, in plain text and over TLS, asked by clients that others wrote: the
//! `h2` crate, and tonic for gRPC. And a session, or our client, in memory with `h2` at its other end.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unreachable_pub, reason = "modules of a test")]

#[macro_use]
#[path = "../../../crates/server/tests/conformance/model.rs"]
mod model;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../../crates/tower/tests/conformance/app.rs"]
mod app;
mod client;
mod grpc;
mod http2;
mod lines;
mod pair;
mod served;
mod wire;
