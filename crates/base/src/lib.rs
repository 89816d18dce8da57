//! Data structures for all other crates: buffers, slab, timer wheel, files and batches of output.
//!
//! Plain data and its bookkeeping: no I/O, no clock, no threads, no HTTP.
#![forbid(unsafe_code)]

pub mod box_pool;
pub mod buffer;
pub mod choices;
pub mod counter;
pub mod file;
pub mod index_list;
pub mod log_limit;
pub mod memory;
pub mod millis;
pub mod slab;
pub mod sorting;
pub mod timer_wheel;
pub mod token;
pub mod transmit;

pub use box_pool::BoxPool;
pub use buffer::{Buffer, BufferPool};
pub use counter::Counter;
pub use file::{ContentVersion, OpenFile};
pub use index_list::IndexList;
pub use log_limit::{LogLimit, Suppressed};
pub use memory::{MemoryAccount, MemoryBudget, MemoryPressure};
pub use millis::Millis;
pub use slab::Slab;
pub use timer_wheel::TimerWheel;
pub use token::Token;
pub use transmit::{Chunk, Segment, Transmit};
