//! What is looked at beside the run: the machine before and after, and the processes watched.

use loadline_record::{MachineRecord, WatchedRecord};

use super::RunError;
use crate::trial::Probe;
use crate::watch::{Target, Watch};

/// What is being looked at.
#[derive(Debug)]
pub(super) struct Environment {
    probe: Probe,
    watch: Option<Watch>,
}

impl Environment {
    /// Takes a first look.
    pub(super) fn look(watched: &[Target]) -> Result<Self, RunError> {
        let watch = match watched {
            [] => None,
            targets => Some(
                Watch::begin(targets.to_vec())
                    .map_err(|error| RunError::Refused(error.to_string()))?,
            ),
        };
        Ok(Self {
            probe: Probe::begin(),
            watch,
        })
    }

    /// Takes the last look at a run that began at `start_ns` of the monotonic clock.
    pub(super) fn end(self, start_ns: u64) -> (MachineRecord, Vec<WatchedRecord>) {
        let watched = self.watch.map(|watch| watch.end(start_ns));
        (self.probe.end(), watched.unwrap_or_default())
    }
}
