//! The intervals of a run.

use serde::{Deserialize, Serialize};

/// An interval with results of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseRecord {
    /// "warm-up", "500/s".
    pub label: String,
    /// When it began, from the start.
    pub begin_s: f64,
    /// When it ended, from the start; earlier than planned if the run ended in it.
    pub end_s: f64,
    /// The rate that was planned for it, per second on average; null in a closed loop.
    pub planned_per_s: Option<f64>,
    /// Whether it is in the totals: the warm-up is not.
    pub counted: bool,
}

impl PhaseRecord {
    /// How long it was.
    #[must_use]
    pub fn len_s(&self) -> f64 {
        (self.end_s - self.begin_s).max(0.0)
    }
}
