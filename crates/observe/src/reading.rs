//! What is read of a server at one moment.

use std::time::{Duration, Instant};

use loadline_proto::latency::HistogramCounts;
use loadline_server::Snapshot;

/// What is read at one moment.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) snapshot: Snapshot,
    /// All listeners and mounts together.
    pub(crate) latencies: HistogramCounts,
    pub(crate) jobs: HistogramCounts,
    /// CPU time of the process.
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: Option<u64>,
    /// Sizes of other parts of the program.
    pub(crate) sizes: Vec<(&'static str, u64)>,
}
