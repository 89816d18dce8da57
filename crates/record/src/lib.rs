//! What a trial of the load generator measured: the record, the judgement of it, and the forms in
//! which it is printed and exported.
//!
//! It opens no socket, reads no clock and starts nothing, so that whoever has a record on disk can
//! read, judge and print it. How a record is made from the messages of threads is not here, but in
//! the load generator.
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
pub mod histogram;
pub mod report;
mod rounds;
mod snapshot;
mod step;
pub mod tally;
mod trial;
pub mod verdict;
mod watched;

pub use assertion::Assertion;
pub use distribution::{Distribution, Percentiles};
pub use histogram::latencies;
pub use rounds::{Rounds, Spread};
pub use snapshot::Snapshot;
pub use step::StepReport;
pub use tally::{ErrorKind, Tally};
pub use trial::*;
