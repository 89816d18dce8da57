//! The tests of the reactor, under the proactor: loops, workers, accepting, bounds and going down are
//! the same there. Only `--socket-io worker` is not.
//!
//! Where the machine has no io_uring, none of them runs, and a line on standard error says so.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../reactor/balance.rs"]
mod balance;
#[path = "../reactor/descriptors.rs"]
mod descriptors;
#[path = "../reactor/drain.rs"]
mod drain;
#[path = "../reactor/events.rs"]
mod events;
#[path = "../reactor/fairness.rs"]
mod fairness;
#[path = "../reactor/files.rs"]
mod files;
#[path = "../reactor/held_up.rs"]
mod held_up;
#[path = "../reactor/limits.rs"]
mod limits;
#[path = "../reactor/many.rs"]
mod many;
#[path = "../reactor/memory.rs"]
mod memory;
#[path = "../reactor/models.rs"]
mod models;
#[path = "../reactor/overload.rs"]
mod overload;
mod ring;
#[path = "../shared/mod.rs"]
mod shared;
#[path = "../reactor/sizes.rs"]
mod sizes;
#[path = "../reactor/util.rs"]
mod util;
#[path = "../reactor/workers.rs"]
mod workers;

pub(crate) const ARCHITECTURE: loadline_server::Architecture =
    loadline_server::Architecture::Proactor;
