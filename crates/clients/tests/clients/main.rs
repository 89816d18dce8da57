//! Virtual users on the real executor, over sockets, against small servers of the tests' own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod executor;
mod idle;
mod player;
mod server;
mod slow;
mod user_groups;
