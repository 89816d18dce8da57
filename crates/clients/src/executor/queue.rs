//! Users that have something to do before the start, a few at a time.

use std::collections::VecDeque;

/// Users that wait for their turn, and how many have theirs.
#[derive(Debug, Default)]
pub(super) struct StartQueue {
    waiting: VecDeque<u32>,
    in_progress: u32,
}

impl StartQueue {
    pub(super) fn push(&mut self, index: u32) {
        self.waiting.push_back(index);
    }

    /// The next one, if fewer than `max` are in progress.
    pub(super) fn next(&mut self, max: u32) -> Option<u32> {
        (self.in_progress < max).then(|| self.waiting.pop_front())?
    }

    pub(super) fn begin(&mut self) {
        self.in_progress += 1;
    }

    pub(super) fn end(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    /// Whether no user waits or is in progress.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.in_progress == 0
    }
}
