//! The client's end of a connection of HTTP/2 as a state machine, driven by a server in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "modules of tests")]

mod cuts;
mod faults;
mod requests;
mod responses;
mod tape;
mod windows;
