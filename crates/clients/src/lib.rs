//! Clients with behaviour: users with a scenario, video players, slow and hostile ones.
//!
//! Each is a [`VirtualUser`], a pure state machine: events go in, orders come out. The executor
//! (`executor.rs`) carries the orders out, for thousands of virtual users on one thread. The load
//! generator runs that thread beside those of its plain clients, and knows nothing of what it does:
//! it is passed to it when a run starts ([`thread`]).
#![forbid(unsafe_code)]

mod caller;
mod exchange;
mod executor;
#[cfg(test)]
mod harness;
pub mod idle;
mod pace;
pub mod player;
pub mod resolve;
pub mod scenario;
pub mod slow_reader;
pub mod slow_sender;
#[cfg(test)]
mod tests;
mod timers;
mod user_group;
pub mod vanishing;
mod virtual_user;

pub use exchange::RequestSpec;
pub(crate) use exchange::{ExchangeProgress, Watch};
pub use executor::{run, thread};
pub use user_group::{UserFactory, UserGroup};
pub use virtual_user::{Event, Order, UserContext, VirtualUser};
