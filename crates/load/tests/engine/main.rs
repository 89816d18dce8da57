//! The engine over real sockets, against small servers that do what their script says.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod closed;
mod errors;
mod no_alloc;
mod open;
mod run;
mod server;
