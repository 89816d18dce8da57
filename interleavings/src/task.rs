//! As `src/task.rs`.

#[path = "../../crates/server/src/task/channel.rs"]
mod channel;
#[path = "../../crates/server/src/task/handle.rs"]
mod handle;
#[path = "../../crates/server/src/task/worker.rs"]
mod worker;

pub(crate) use channel::{Channel, Notify, TaskHome};
pub(crate) use handle::{Polled, TaskPool, Tasks};
pub(crate) use worker::WorkerTask;
