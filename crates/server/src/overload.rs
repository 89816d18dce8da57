//! Whether new work can be done in time: by what waits, by how long work takes, and by how long it
//! was too much.
//!
//! What decides is pure: times are arguments, in microseconds of the server's clock. `LaneControl`
//! stands before workers with a queue, `QueueControl` before a thread with a queue of its own,
//! `InProgress` before threads that share the CPUs (and lets them wait), `TurnControl` before a loop that
//! does the work itself, `AppControl` before an app that waits for something else. `docs/overload.md` explains the rules.

mod app;
mod app_requests;
mod at_once;
mod delay;
mod in_progress;
mod lanes;
mod queue;
mod retry_after;
mod turn;

#[cfg(test)]
mod simulation;

pub use app::AppCounts;
pub(crate) use app_requests::{AppRequest, AppRequests};
pub(crate) use in_progress::{InProgress, Permit, Waited};
pub(crate) use lanes::{JobWait, LaneControl, Refusal};
pub(crate) use queue::{Beside, QueueControl};
pub(crate) use turn::{TurnBegin, TurnControl};
