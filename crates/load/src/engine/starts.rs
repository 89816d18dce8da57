//! When requests of an open loop are due.

use std::sync::Arc;

use crate::Share;
use crate::pacer::Pacer;

/// Due times of one thread, on the monotonic clock, never decreasing. A clone goes on from where
/// the original is.
#[derive(Clone, Debug)]
pub(super) struct IntendedStarts {
    source: Source,
    start_ns: u64,
    /// Requests that may still be taken.
    left: u64,
    /// The next one; `u64::MAX`: there is none.
    next_ns: u64,
}

/// What says when they are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Paced(Pacer),
    Listed {
        due_ns: Arc<[u64]>,
        at: usize,
        step: usize,
    },
}

impl IntendedStarts {
    /// The share's lines of a log, at most `count_max` of them.
    pub(super) fn listed(due_ns: Arc<[u64]>, share: Share, count_max: u64) -> Self {
        let source = Source::Listed {
            due_ns,
            at: share.index as usize,
            step: share.of.max(1) as usize,
        };
        Self::new(source, count_max)
    }

    /// As the source has it, at most `count_max` of them.
    pub(super) fn new(source: Source, count_max: u64) -> Self {
        Self {
            source,
            start_ns: 0,
            left: count_max,
            next_ns: u64::MAX,
        }
    }

    /// The run starts.
    pub(super) fn start(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.look_ahead();
    }

    /// Takes the next one.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.look_ahead();
    }

    /// When the next one is due; `u64::MAX`: none is.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether all that were allowed have been taken.
    pub(super) fn is_exhausted(&self) -> bool {
        self.next_ns == u64::MAX
    }

    #[inline]
    fn look_ahead(&mut self) {
        let next = match &mut self.source {
            _ if self.left == 0 => None,
            Source::Paced(pacer) => pacer.next(),
            Source::Listed { due_ns, at, step } => {
                let next = due_ns.get(*at).copied();
                *at = at.saturating_add(*step);
                next
            }
        };
        self.next_ns = next.map_or(u64::MAX, |ns| self.start_ns.saturating_add(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(starts: &mut IntendedStarts) -> Vec<u64> {
        let mut taken = Vec::new();
        while !starts.is_exhausted() {
            taken.push(starts.next_ns());
            starts.pop();
        }
        taken
    }

    #[test]
    fn shares_of_a_log_take_turns() {
        let due_ns: Arc<[u64]> = Arc::new([1, 2, 3, 4, 5]);
        let share = |index| Share { index, of: 2 };
        let mut first = IntendedStarts::listed(Arc::clone(&due_ns), share(0), u64::MAX);
        let mut second = IntendedStarts::listed(Arc::clone(&due_ns), share(1), u64::MAX);
        let mut bounded = IntendedStarts::listed(due_ns, share(0), 2);
        for starts in [&mut first, &mut second, &mut bounded] {
            assert!(starts.is_exhausted());
            starts.start(100);
        }
        assert_eq!(taken(&mut first), [101, 103, 105]);
        assert_eq!(taken(&mut second), [102, 104]);
        assert_eq!(taken(&mut bounded), [101, 103]);
    }
}
