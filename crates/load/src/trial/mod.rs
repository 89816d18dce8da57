//! One trial: what its threads told, merged and judged, as one record.

pub mod distribution;
mod record;
mod rounds;

pub use distribution::{Distribution, Percentiles};
pub use record::*;

use crate::{Message, Plan, Tally};

/// Merges what threads and processes tell.
#[derive(Debug)]
pub struct Merger {}

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
    /// Label of the phase at hand.
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

impl Merger {
    /// For a plan.
    #[must_use]
    pub fn new(_plan: &Plan) -> Self {
        Self {}
    }

    /// Takes a message in, from whichever thread, in whichever order.
    pub fn take(&mut self, _message: Message) {}

    /// How things stand, `elapsed_ns` from the start.
    #[must_use]
    pub fn snapshot(&self, elapsed_ns: u64) -> Snapshot {
        Snapshot {
            elapsed_ns,
            ..Snapshot::default()
        }
    }

    /// The record.
    #[must_use]
    pub fn finish(self, ending: Ending) -> TrialRecord {
        TrialRecord {
            schema: SCHEMA.to_owned(),
            limits: ending.limits,
            ..TrialRecord::default()
        }
    }
}

/// Of several rounds: the smallest, the mean and the largest of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The mean over the rounds.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// What several rounds of the same trial have in common, of their headline groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// How many there were.
    pub count: usize,
    /// Requests due, per second.
    pub offered_per_s: Option<Spread>,
    /// Requests sent, per second.
    pub sent_per_s: Option<Spread>,
    /// Complete answers per second.
    pub completed_per_s: Option<Spread>,
    /// Good answers per second.
    pub good_per_s: Option<Spread>,
    /// Bytes received per second.
    pub bytes_received_per_s: Option<Spread>,
    /// Errors of what was offered, as a part of 1.
    pub errors_share: Option<Spread>,
    /// Latency in microseconds: percent and what it was; `None`: a round had not enough samples.
    pub latency_us: Vec<(f64, Option<Spread>)>,
    /// Service time in the same way.
    pub service_us: Vec<(f64, Option<Spread>)>,
    /// Mean latency in microseconds.
    pub latency_mean_us: Option<Spread>,
}
