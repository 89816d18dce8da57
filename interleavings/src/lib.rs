//! What threads share, under every interleaving: mailboxes, job queues, channels and wakers of tasks.
//!
//! The files of `crates/server` are compiled here once more over the types of loom, a model checker. It
//! runs each case again and again, with another order of the threads' steps each time and with every
//! value that the memory model lets a load see, until none is left (up to a number of preemptions).
//!
//! ```text
//! cd interleavings
//! cargo test
//! LOOM_MAX_PREEMPTIONS=4 cargo test CASE
//! LOOM_LOG=trace LOOM_LOCATION=1 cargo test CASE
//! ```
#![cfg(test)]
#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the files hold more than the cases use")]

mod cases {
    mod job_queue;
    mod local_task;
    mod mailbox;
    mod worker_task;
}
mod checker;
mod config;
mod fairness;
mod options {
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Queue {
        Shared,
        WorkStealing,
    }
}
mod overload;
mod owner;
mod site;
mod sync;
mod task;
mod telemetry;
mod worker;
