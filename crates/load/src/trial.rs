//! One trial: what its threads told, merged and judged, as one record.

use crate::{Message, Plan};

/// Merges what threads and processes tell.
#[derive(Debug)]
pub struct Merger {}

/// Everything measured in one trial; serialised as the JSON that `--json` writes.
#[derive(Clone, Debug)]
pub struct TrialRecord {}

/// How a trial ended, and what is known of it beside the messages.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Stopped before its time.
    pub is_interrupted: bool,
    /// What was found to be short (descriptors, ports) and what was done about it, in sentences.
    pub limits: Vec<String>,
}

impl Merger {
    /// For a plan.
    #[must_use]
    pub fn new(_plan: &Plan) -> Self {
        Self {}
    }

    /// Takes a message in, from whichever thread, in whichever order.
    pub fn take(&mut self, _message: Message) {}

    /// The record.
    #[must_use]
    pub fn finish(self, _ending: Ending) -> TrialRecord {
        TrialRecord {}
    }
}
