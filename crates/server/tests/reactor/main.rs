//! Black-box tests of the reactor: its models, how it spreads and bounds connections, its workers,
//! files in flight, and how it goes down. What all architectures have in common is in the
//! conformance suite.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod balance;
mod descriptors;
mod drain;
mod events;
mod fairness;
mod files;
mod held_up;
mod limits;
mod many;
mod memory;
mod models;
mod overload;
#[path = "../shared/mod.rs"]
mod shared;
mod sizes;
mod util;
mod workers;

/// What all of these run under; the proactor has the same, in a program of its own.
pub(crate) const ARCHITECTURE: loadline_server::Architecture =
    loadline_server::Architecture::Reactor;
