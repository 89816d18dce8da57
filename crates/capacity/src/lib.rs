//! What measured figures say of a server's capacity.
//!
//! All of it is pure: figures go in, and what they say comes out, with an interval. It starts nothing,
//! reads no clock and no file.
#![forbid(unsafe_code)]

pub mod search;
pub mod stats;
pub mod usl;
