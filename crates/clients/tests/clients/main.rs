//! Actors on the real stage, over sockets, against small servers of the tests' own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod crowds;
mod idle;
mod player;
mod server;
mod slow;
mod stage;
