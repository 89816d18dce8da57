//! The most workers that had a job, and the most jobs that there were, at one time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Peaks since they were last taken. One may be missed where two come at once; nothing depends on it but
/// how many workers there are to be.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    busy: AtomicUsize,
    present: AtomicUsize,
}

/// Peaks as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeaksTaken {
    /// Workers that had a job.
    pub(crate) busy: usize,
    /// Jobs, those of workers and those that waited.
    pub(crate) present: usize,
}

impl Peaks {
    /// There are so many of both now. A worker that is awake without a job counts as one that has one:
    /// it is about to look for it.
    pub(crate) fn note(&self, busy: usize, waiting: usize) {
        for (peak, now) in [(&self.busy, busy), (&self.present, busy + waiting)] {
            if now > peak.load(Relaxed) {
                peak.store(now, Relaxed);
            }
        }
    }

    /// Both since the last call, with what is now.
    pub(crate) fn take(&self, busy: usize, waiting: usize) -> PeaksTaken {
        let present = busy + waiting;
        PeaksTaken {
            busy: self.busy.swap(busy, Relaxed).max(busy),
            present: self.present.swap(present, Relaxed).max(present),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_kept_until_they_are_taken() {
        let peaks = Peaks::default();
        peaks.note(2, 5);
        peaks.note(4, 1);
        let taken = |busy, present| PeaksTaken { busy, present };
        assert_eq!(peaks.take(1, 1), taken(4, 7));
        assert_eq!(peaks.take(0, 0), taken(1, 2), "what was there then");
        assert_eq!(peaks.take(3, 0), taken(3, 3));
    }
}
