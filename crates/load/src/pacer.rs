//! When requests are due: a pure function of the schedule, the share and the seed.

use crate::{Arrivals, Schedule, Share};

/// The due times of one thread, in nanoseconds from the start, never decreasing.
///
/// The arrivals of all shares together are those of the whole schedule: `Constant` arrivals are
/// dealt out in turn, so that the shares interleave; `Poisson` arrivals of each share are as many as
/// the schedule asks for, spread independently, whose union is Poisson again.
#[derive(Clone, Debug)]
pub struct Pacer {}

impl Pacer {
    /// The arrivals of one share.
    #[must_use]
    pub fn new(_schedule: &Schedule, _arrivals: Arrivals, _share: Share, _seed: u64) -> Self {
        Self {}
    }

    /// When the next request is due; `None`: no more.
    #[must_use]
    pub fn peek(&self) -> Option<u64> {
        None
    }

    /// Takes the next due time.
    pub fn next(&mut self) -> Option<u64> {
        None
    }
}
