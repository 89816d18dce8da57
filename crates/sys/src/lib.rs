//! The Linux calls that Loadline is built on: the only floor that knows system calls.
//!
//! What it is not: a portability layer, or a policy. Functions here do one thing, never wait unless
//! their name says so, and name the operation in their errors where the caller cannot know it.
//!
//! Unsafe policy: every public function is safe. A call goes through a safe wrapper (`rustix`) where
//! there is one; where there is none, the `unsafe` block holds that one call, and its `SAFETY:`
//! comment names what has to hold and who sees to it.

pub mod affinity;
pub mod arrival;
pub mod clock;
pub mod connect;
pub mod file;
pub mod memory;
pub mod network;
pub mod poller;
pub mod process;
pub mod ring;
pub mod socket;
pub mod usage;
pub mod waker;
pub mod write;

pub use poller::{
    Event, Events, Interest, Poller, wait_any, wait_readable, wait_socket, wait_writable,
};
pub use socket::{Accepted, ListenAddr, ListenOptions};
pub use waker::Waker;
pub use write::{Progress, write};
