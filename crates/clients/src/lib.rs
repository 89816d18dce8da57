//! Clients with behaviour: users with a scenario, video players, slow and hostile ones.
//!
//! Each is an [`Actor`], a pure state machine: it is told what happened and says what to do next.
//! The stage (`stage.rs`) carries the orders out, for thousands of actors on one thread. The load
//! generator runs that thread beside those of its plain clients, and knows nothing of what it does:
//! whoever starts a run passes it the thread ([`thread`]).
#![forbid(unsafe_code)]

mod actor;
mod caller;
mod crowd;
mod exchange;
pub mod idle;
mod pace;
pub mod player;
pub mod scenario;
pub mod slow_body;
pub mod slow_head;
pub mod slow_reader;
mod slow_sender;
mod stage;
#[cfg(test)]
mod tests;
mod timers;
pub mod vanishing;

pub use actor::{Actor, Order, Scene};
pub(crate) use caller::Caller;
pub use crowd::{Casting, Crowd};
pub use exchange::Asked;
pub(crate) use exchange::{Progress, Watch};
pub use stage::{run, thread};
