//! Which ends of a queue have workers, while their number changes.

use loadline_base::sorting;

use crate::fairness::lanes::LANES;
use crate::sync::deque::Worker;

/// Which ends of the queue have workers.
pub(super) struct Ends<J> {
    workers: usize,
    workers_wanted: usize,
    count: usize,
    /// Of workers that have left, or have not come yet.
    spare: Vec<End<J>>,
}

/// Of one worker.
pub(super) struct End<J> {
    /// By lane.
    pub(super) own: Option<[Worker<J>; LANES]>,
    pub(super) index: usize,
}

impl<J> Ends<J> {
    /// Ends with the numbers from 0 on, without workers.
    pub(super) fn new(spare: Vec<End<J>>) -> Self {
        Self {
            workers: 0,
            workers_wanted: 0,
            count: spare.len(),
            spare,
        }
    }

    pub(super) fn spare(&self) -> &[End<J>] {
        &self.spare
    }

    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// A worker is none any more.
    pub(super) fn count_out(&mut self) {
        self.workers -= 1;
    }

    /// Its worker has left.
    pub(super) fn give_back(&mut self, end: End<J>) {
        self.spare.push(end);
    }

    /// Takes spare ends for workers that are missing.
    pub(super) fn resize(&mut self, workers: usize) -> Vec<End<J>> {
        self.workers_wanted = workers;
        let missing = workers.saturating_sub(self.workers);
        // The first ones last: few deques are to be searched then.
        sorting::sort_by_key(&mut self.spare, |end| usize::MAX - end.index);
        let rest = self.spare.len().saturating_sub(missing);
        let added = self.spare.split_off(rest);
        self.workers += added.len();
        added.into_iter().rev().collect()
    }

    /// All that are not spare come before this one.
    pub(super) fn used(&self) -> usize {
        let is_spare = |index: &usize| self.spare.iter().any(|end| end.index == *index);
        let last = (0..self.count).rev().find(|index| !is_spare(index));
        last.map_or(0, |last| last + 1)
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.workers > self.workers_wanted
    }

    /// Counts a worker out if there are too many.
    pub(super) fn leave(&mut self) -> bool {
        let leaves = self.is_crowded();
        self.workers -= usize::from(leaves);
        leaves
    }
}
