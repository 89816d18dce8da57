//! The load generator's own tests but those of its times, which are in `truth`: one program, since
//! each takes its time to link.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod engine;
mod faults;
mod inputs;
#[allow(
    dead_code,
    clippy::print_stderr,
    reason = "a part of it is for times alone"
)]
#[path = "../truth/run.rs"]
mod stubbed;
mod trial;
