//! Black-box tests of what each architecture has of its own. What all have in common is in the
//! conformance suite.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod blocking;
mod fairness;
mod loops;
mod memory;
mod shared;
