//! Black-box tests of the blocking architectures: who is served when, what a cap does, how a drain
//! ends. What all architectures have in common is in the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod descriptors;
mod fairness;
mod limits;
mod order;
mod overload;
#[path = "../shared/mod.rs"]
mod shared;
mod shutdown;
mod sizes;
mod util;
