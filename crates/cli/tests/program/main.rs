//! The program as people meet it: command line, messages, exit codes, signals, logs, status page.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accounts;
mod acme;
mod admin;
mod balancer;
mod compression;
mod connection_log;
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest of it")]
#[path = "../../../acme/tests/acme/front.rs"]
mod front;
mod http2_attacks;
mod logs;
mod memory;
mod messages;
#[allow(dead_code, unreachable_pub, reason = "other tests use the rest of it")]
#[path = "../../../acme/tests/acme/player.rs"]
mod player;
mod proxy;
mod running;
mod status;
mod stopping;
mod surroundings;
mod tls;
mod util;
