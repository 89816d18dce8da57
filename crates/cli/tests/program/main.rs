//! The program as people meet it: command line, messages, exit codes, signals, logs, status page.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accounts;
mod admin;
mod balancer;
mod connection_log;
mod logs;
mod memory;
mod messages;
mod proxy;
mod running;
mod status;
mod stopping;
mod surroundings;
mod tls;
mod util;
