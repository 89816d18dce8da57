//! A run: the rounds of a plan, carried by threads of this process or by processes like it.
//!
//! `division` fits a load to the limits of the machine, `workers` starts threads or processes,
//! `round` is one trial from begin to end, `environment` the machine and the watched processes meanwhile.

mod division;
mod environment;
mod round;
mod workers;

use std::fmt;

pub use division::{Demand, Division, Machine, PROCESSES_MAX, divide};
pub use round::{RoundNumber, RoundObserver, Run, RunChannel, run};
pub use workers::{RunEvent, carry_part};

/// Why a run does not begin or cannot go on; one line that says what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// What was asked for cannot be run here.
    Refused(String),
    /// Something failed while it was run.
    Failed(String),
}

impl std::error::Error for RunError {}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}
