//! What whoever waits for a run gets to know of it while it lasts.

use std::time::Duration;

use crate::expand::PlannedTrial;
use crate::journal::Trial;

/// The longest wait for the CPUs to be idle, before a trial is run again.
pub const IDLE_WAIT_MAX: Duration = Duration::from_secs(30);

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunProgress {
    /// Trials that are recorded.
    pub recorded: usize,
    /// How long what is left will take.
    pub left_s: f64,
}

/// Is notified of each step of a run.
pub trait RunObserver {
    /// Other processes use the CPUs: the run waits for them, and then runs this trial again.
    fn waits(&mut self, planned: &PlannedTrial, progress: &RunProgress);
    /// A trial begins.
    fn begins(&mut self, planned: &PlannedTrial, progress: &RunProgress);
    /// It is recorded.
    fn recorded(&mut self, trial: &Trial, progress: &RunProgress);
}
