//! One trial: the messages of its threads, merged and judged, as one record.
//!
//! `merge` makes the record from messages with the sums of `sums`, `machine` says where it was run.

pub(crate) mod machine;
mod merge;
mod sums;

pub use machine::Probe;
pub use merge::Merger;

use loadline_record::{MachineRecord, WatchedRecord};
use loadline_spec::Table;

/// How a trial ended, and what is known of it beside the messages.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// The command line, one element for each word.
    pub command: Vec<String>,
    /// The options of the load that were given, without passwords.
    pub spec: Table,
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
