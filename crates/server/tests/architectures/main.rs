//! Black-box tests of what each architecture has of its own. What all have in common is in the
//! conformance suite.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[allow(unreachable_pub, reason = "shared with other test programs")]
#[macro_use]
#[path = "../conformance/model.rs"]
mod model;

mod blocking;
mod cpu_use;
mod fairness;
mod files_beside_apps;
mod loops;
mod lost_threads;
mod memory;
mod shared;
mod system_calls;
