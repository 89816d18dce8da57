//! What a link has carried in a trial.

use serde::{Deserialize, Serialize};

/// A link, and what became of its packets from its beginning to its end: the load with its warm-up and its
/// connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFacts {
    /// As a plan may write it: "delay=75ms,bandwidth=2Mbit,loss=1%".
    pub settings: String,
    /// From the client to the server.
    pub up: DirectionFacts,
    /// From the server to the client.
    pub down: DirectionFacts,
    /// CPU time of the relay.
    pub cpu_s: f64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionFacts {
    /// Packets that came to the relay.
    pub packets: u64,
    /// Their bytes, with the headers of IP.
    pub bytes: u64,
    /// Those that the link lost, as its loss wants it.
    pub lost: u64,
    /// Those that found its buffer full.
    pub dropped: u64,
    /// Those that the kernel did not keep until the relay read them, or did not take from it: 0, unless
    /// the relay was at its end.
    pub refused: u64,
    /// The most that waited in the buffer.
    pub waiting_bytes_max: u64,
    /// How much later than due packets left the relay, in microseconds: half of them at most by this;
    /// `None`: none left.
    pub late_p50_us: Option<u64>,
    /// All but one in a hundred.
    pub late_p99_us: Option<u64>,
    /// The latest.
    pub late_max_us: Option<u64>,
}
