//! What measured figures say about a server's capacity: statistics with intervals, the Universal
//! Scalability Law, and the search for the highest rate that a server holds.
//!
//! All of it is pure: it starts nothing and reads no clock and no file.
#![forbid(unsafe_code)]

pub mod search;
pub mod stats;
pub mod usl;
