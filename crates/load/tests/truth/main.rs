//! The load generator against a stub whose truth is known: what it reports is what happened.
//!
//! Two kinds of assertions stand here. What no clock has a part in is exact: counts, and that no time
//! is reported that is shorter than the true one (kinds of errors are counted in the program `load`,
//! which need not be alone). What a clock has a part in is held to 2 % or 50 us of what the stub
//! recorded; a run that is not good is repeated, up to four times, with new seeds. If none was good, an
//! observer says what a client without fault would have found on this machine (see `observer`): a case
//! that is beyond that has failed; one that is within proves nothing, and is reported as skipped on
//! standard error, or is a failure, too, if `LOADLINE_TRUTH_STRICT` is set. The quickest requests are
//! held to 90 us in every run, or to what the observer's quickest wake-ups take, and nothing else excuses
//! them.
//!
//! `table` says what is checked over which protocol: HTTP/1.1 and HTTP/2, in the clear and over TLS.
//!
//! What is drawn by chance is so by a seed that is printed; `LOADLINE_SEED` repeats it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "tests say what they saw")]

mod connections;
mod distributions;
mod h2load;
mod observer;
mod protocol;
mod queues;
mod run;
mod stalls;
mod statistics;
mod table;
