//! What tells one load from another.

use std::collections::VecDeque;

use super::sample::Sample;

/// A load that differs by this share is another,
const SHIFT: f64 = 0.25;
/// if it differs by so many standard errors, too.
const ERRORS: f64 = 4.0;

/// A load, from several intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) jobs: u64,
    pub(super) jobs_per_s: Mean,
    pub(super) service_us: Mean,
    pub(super) cpu_us: Mean,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean {
    mean: f64,
    error: f64,
}

impl Load {
    pub(super) fn new(intervals: &VecDeque<Sample>) -> Self {
        Self {
            jobs: intervals.iter().map(|one| one.jobs).sum(),
            jobs_per_s: Mean::new(intervals, |one| (one.jobs as f64 * 1e6, one.time_us)),
            service_us: Mean::new(intervals, |one| (one.busy_us, one.jobs as f64)),
            cpu_us: Mean::new(intervals, |one| (one.cpu_us, one.jobs as f64)),
        }
    }
}

impl Mean {
    /// The ratio of two sums, and its error by how the intervals differ from it.
    fn new(intervals: &VecDeque<Sample>, of: impl Fn(&Sample) -> (f64, f64)) -> Self {
        let parts: Vec<_> = intervals.iter().map(of).collect();
        let (above, below) = parts
            .iter()
            .fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let mean = above / below.max(1e-9);
        let squares: f64 = parts
            .iter()
            .map(|(above, below)| (above - mean * below).powi(2))
            .sum();
        Self {
            mean,
            error: squares.sqrt() / below.max(1e-9),
        }
    }

    pub(super) fn differs(&self, other: &Self) -> bool {
        let apart = (self.mean - other.mean).abs();
        let error = self.error.hypot(other.error);
        apart > SHIFT * self.mean.min(other.mean) && apart > ERRORS * error
    }
}
