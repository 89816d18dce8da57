//! What measured figures say about a server's capacity: statistics with intervals, the Universal
//! Scalability Law, the search for the highest rate that a server holds; and what a server decides by
//! such figures while it runs: how many threads it has, which loop has which connection, and how far its
//! load is from what it can carry.
//!
//! All of it is pure: it starts nothing and reads no clock and no file.
#![forbid(unsafe_code)]

pub mod balance;
pub mod load_ratio;
pub mod search;
pub mod sizing;
pub mod stats;
pub mod usl;
