//! How a trial stands while it runs: what the live view shows.

use crate::{SecondRecord, Tally};

/// How a trial stands at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// From the start, in nanoseconds.
    pub elapsed_ns: u64,
    /// To be reached by `elapsed_ns`; `None`: the run ends with its requests.
    pub planned_ns: Option<u64>,
    /// To be reached by the requests of `total` that have ended, with or without an answer.
    pub requests_max: Option<u64>,
    /// Label of the phase at hand; empty: it is the only one that counts.
    pub phase: String,
    /// The rate planned for it, per second.
    pub planned_per_s: Option<f64>,
    /// Connections that were open before the start.
    pub connections: u64,
    /// The last full second of the headline group; `None` in the first one.
    pub last: Option<SecondRecord>,
    /// Complete answers in each of the last full seconds, oldest first; at most 60.
    pub recent_completed: Vec<u64>,
    /// Counts of the headline group so far, all phases.
    pub total: Tally,
    /// Names and counts of the other groups so far.
    pub others: Vec<(String, Tally)>,
}
