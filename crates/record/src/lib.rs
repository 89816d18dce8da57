//! What a trial of the load generator measured: the record, its assessment, and the forms in which it
//! is printed and exported.
//!
//! It opens no socket, reads no clock and starts nothing, so any program can read, assess and print a
//! record from disk. The load generator makes records from the messages of its threads.
//!
//! ```text
//!   Tally, histograms ──► TrialRecord ──► assertion   does it hold what was asked for?
//!                         verdict         may it be trusted, or was the client the limit?
//!                         report          as text, in the form of several tools
//!                         export          as JSON, CSV and HDR histogram log
//! ```
#![forbid(unsafe_code)]

pub mod assertion;
pub mod distribution;
pub mod export;
mod from_json;
mod groups;
pub mod histogram;
mod phase;
pub mod report;
mod rounds;
mod snapshot;
mod step;
pub mod tally;
mod trial;
pub mod verdict;
mod watched;

pub use assertion::Assertion;
pub use distribution::Distribution;
pub use from_json::from_json;
pub use groups::HTTP2_GROUP;
pub use histogram::latencies;
pub use phase::PhaseRecord;
pub use rounds::Spread;
pub use snapshot::Snapshot;
pub use step::StepReport;
pub use tally::{ErrorKind, Tally};
pub use trial::*;
pub use watched::{WatchedRecord, WatchedSample};
