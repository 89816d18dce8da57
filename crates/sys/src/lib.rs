//! Linux: epoll, io_uring, sockets, files, processes. The only crate with system calls.
//!
//! It is no portability layer and makes no policy. Functions do one thing, never wait unless their
//! name says so, and name the operation in their errors if the caller cannot know it.
//!
//! Unsafe policy: every public function is safe. A call goes through a safe wrapper (`rustix`) if
//! there is one. Otherwise the `unsafe` block holds that one call, and its `SAFETY:` comment names
//! what has to hold, and the code that makes it hold.

pub mod affinity;
pub mod arrival;
pub mod clock;
pub mod connect;
pub mod echo;
pub mod file;
pub mod memory;
pub mod memory_limit;
pub mod network;
pub mod poll;
pub mod poller;
pub mod process;
pub mod ring;
pub mod socket;
pub mod time_slice;
pub mod tun;
pub mod usage;
pub mod waker;
pub mod write;

pub use poll::{has_hung_up, is_gone, wait_any, wait_readable, wait_socket, wait_writable};
pub use poller::{Event, Events, Interest, Poller};
pub use socket::{Accepted, ListenAddr, ListenOptions};
pub use waker::Waker;
pub use write::{WriteProgress, write};
