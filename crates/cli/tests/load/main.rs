//! `loadline load` as people meet it: against `loadline serve`, and against a stub whose answers are
//! known beforehand.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod certificates;
mod counts;
mod http2;
mod outputs;
mod overload;
mod peer;
#[allow(dead_code, reason = "the tests of the server use the rest of it")]
#[path = "../program/util.rs"]
mod program;
mod refusals;
mod stopping;
mod tls;
mod util;
