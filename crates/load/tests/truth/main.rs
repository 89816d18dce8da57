//! The load generator against a stub whose truth is known: what it reports is what happened.
//!
//! Two kinds of assertions stand here. What no clock has a part in is exact: counts, kinds of
//! errors, and that no time is reported that is shorter than the true one. What a clock has a part
//! in is held to 2 % or 50 us; such a run is repeated when the machine, by its own account, kept one
//! of the two sides from running for long enough to explain the difference (see `witness`). Runs of
//! which every repetition was disturbed prove nothing; that is said on standard error, and is a
//! failure if `LOADLINE_TRUTH_STRICT` is set.
//!
//! What is drawn by chance is so by a seed that is printed; `LOADLINE_SEED` repeats it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "tests say what they saw")]

mod distributions;
mod errors;
mod queues;
mod run;
mod stalls;
mod statistics;
mod witness;
