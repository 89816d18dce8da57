//! `loadline lab run` as people meet it, and as it is met by whatever kills it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bench;
#[path = "../load/certificates.rs"]
mod certificates;
mod databases;
mod going_on;
mod https;
mod levers;
mod links;
#[allow(dead_code, reason = "the tests of the server use the rest of it")]
#[path = "../program/util.rs"]
mod program;
mod report;
mod servers;
mod trials;
