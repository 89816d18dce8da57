//! One trial: what its threads told, merged and judged, as one record.
//!
//! `record` is what is written, `merge` makes it from messages with the sums of `sums`,
//! `distribution` is a histogram with its figures, `machine` says where it was run, `rounds` what
//! several trials have in common. The judgement is `crate::verdict`'s.

pub mod distribution;
pub mod machine;
mod merge;
mod record;
mod rounds;
mod sums;

pub use distribution::{Distribution, Percentiles};
pub use machine::Probe;
pub use merge::Merger;
pub use record::*;
pub use rounds::{Rounds, Spread};

use crate::Tally;

/// How a trial ended, and what is known of it beside the messages.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// The command line, one element for each word.
    pub command: Vec<String>,
    /// What was asked for.
    pub urls: Vec<String>,
    /// Processes of the client.
    pub processes: u32,
    /// When it began: milliseconds since 1970-01-01 00:00 UTC.
    pub start_unix_ms: u64,
    /// Number of this round, from 1.
    pub round: u32,
    /// How many rounds there are.
    pub rounds: u32,
    /// Stopped before its time.
    pub is_interrupted: bool,
    /// How long it ran from the start, in nanoseconds; `None`: as the threads say.
    pub ran_ns: Option<u64>,
    /// Where it was run.
    pub machine: MachineRecord,
    /// What was found to be short (descriptors, ports) and what was done about it, in sentences.
    pub limits: Vec<String>,
    /// Processes that were watched.
    pub watched: Vec<WatchedRecord>,
}

/// How a trial stands: for the live view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// From the start, in nanoseconds.
    pub elapsed_ns: u64,
    /// To be reached by `elapsed_ns`; `None`: the run ends with its requests.
    pub planned_ns: Option<u64>,
    /// To be reached by `total.completed` and errors together.
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
