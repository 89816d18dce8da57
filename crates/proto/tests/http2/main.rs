//! A connection of HTTP/2 as a state machine, driven by a client in memory; and the client's end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "modules of tests")]

mod client;
mod connection;
mod faults;
mod floods;
mod kept;
mod priorities;
mod proxy_floods;
mod requests;
mod shutdown;
mod states;
mod tasks;
mod timeouts;
mod turns;
mod windows;
