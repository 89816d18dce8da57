//! Figures that several forms show, taken from results.

use hdrhistogram::Histogram;

use crate::{ErrorKind, Results, Tally, TrialRecord};

/// What became of the requests of a tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Complete answers that were good.
    pub(super) good: u64,
    /// Complete answers that were not.
    pub(super) failed: u64,
    /// No complete answer, though it was tried.
    pub(super) errored: u64,
    /// Never tried: no connection was free, and queueing was not wanted.
    pub(super) dropped: u64,
}

impl Fates {
    pub(super) fn of(tally: &Tally) -> Self {
        let dropped = tally.errors_of(ErrorKind::Dropped);
        let failed = tally.requests_completed().saturating_sub(tally.good);
        let others = tally.errors_total().saturating_sub(dropped);
        Self {
            good: tally.good,
            failed,
            errored: others.saturating_sub(failed),
            dropped,
        }
    }

    /// Those that were tried and ended.
    pub(super) fn done(self) -> u64 {
        self.good + self.failed + self.errored
    }
}

/// The counts of what had ended when the run did, with all that had become due.
pub(super) fn in_time(results: &Results) -> Tally {
    Tally {
        offered: results.tally.offered,
        ..results.tally.without(&results.after_end)
    }
}

/// A count over a time, or over another count; 0 of nothing.
pub(super) fn over(count: f64, of: f64) -> f64 {
    match of > 0.0 {
        true => count / of,
        false => 0.0,
    }
}

/// Requests whose connections did not come to be.
pub(super) fn unconnected(tally: &Tally) -> u64 {
    let kinds = [
        ErrorKind::Refused,
        ErrorKind::ConnectTimeout,
        ErrorKind::ConnectFailed,
    ];
    kinds.map(|kind| tally.errors_of(kind)).iter().sum()
}

/// Threads that the plain clients had; of a run of user groups alone, all.
pub(super) fn threads(record: &TrialRecord) -> usize {
    let plain = record.threads.iter().filter(|thread| thread.group == 0);
    match plain.count() {
        0 => record.threads.len(),
        count => count,
    }
}

/// Mean, standard deviation, largest, and the percentage within one deviation of the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) mean: f64,
    pub(super) stdev: f64,
    pub(super) max: f64,
    pub(super) within_percent: f64,
}

impl Moments {
    /// Of a histogram; all zero without a sample.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let (mean, stdev) = (histogram.mean(), histogram.stdev());
        let low = (mean - stdev).max(0.0).ceil() as u64;
        let high = (mean + stdev).floor() as u64;
        let within = histogram.count_between(low, high.max(low));
        Self {
            mean,
            stdev,
            max: histogram.max() as f64,
            within_percent: within as f64 / histogram.len() as f64 * 100.0,
        }
    }

    /// Of single values; all zero without one. The deviation is that of a sample, as in wrk.
    pub(super) fn of_values(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stdev = match values.len() {
            1 => 0.0,
            _ => (squares / (count - 1.0)).sqrt(),
        };
        let is_within = |value: &&f64| (**value - mean).abs() <= stdev;
        let within = values.iter().filter(is_within).count();
        Self {
            mean,
            stdev,
            max: values.iter().copied().fold(0.0, f64::max),
            within_percent: within as f64 / count * 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_one_fate() {
        let mut tally = Tally {
            offered: 100,
            sent: 95,
            completed: 80,
            good: 70,
            ..Tally::default()
        };
        tally.errors[ErrorKind::Status5xx as usize] = 10;
        tally.errors[ErrorKind::Timeout as usize] = 12;
        tally.errors[ErrorKind::Refused as usize] = 3;
        tally.errors[ErrorKind::Dropped as usize] = 5;
        let fates = Fates::of(&tally);
        let expected = Fates {
            good: 70,
            failed: 10,
            errored: 15,
            dropped: 5,
        };
        assert_eq!(fates, expected);
        assert_eq!(fates.done() + fates.dropped, tally.offered);
    }

    #[test]
    fn answers_that_were_tried_again_hide_no_request_without_one() {
        let mut tally = Tally {
            offered: 1000,
            sent: 1000,
            completed: 1200,
            good: 900,
            retries: 300,
            ..Tally::default()
        };
        tally.retried[ErrorKind::Status5xx as usize] = 300;
        tally.retried[ErrorKind::Reset as usize] = 50;
        tally.errors[ErrorKind::Timeout as usize] = 100;
        let fates = Fates::of(&tally);
        let expected = Fates {
            good: 900,
            errored: 100,
            ..Fates::default()
        };
        assert_eq!(fates, expected);
        let mut results = Results {
            tally,
            ..Results::default()
        };
        results.after_end.completed = 20;
        results.after_end.good = 10;
        results.after_end.retried[ErrorKind::Status5xx as usize] = 10;
        assert_eq!(Fates::of(&in_time(&results)).done(), fates.done() - 10);
    }

    #[test]
    fn moments_of_few_values() {
        assert_eq!(Moments::of_values(&[]), Moments::default());
        let one = Moments::of_values(&[5.0]);
        assert_eq!((one.mean, one.stdev, one.within_percent), (5.0, 0.0, 100.0));
        let some = Moments::of_values(&[1.0, 2.0, 3.0]);
        assert_eq!((some.mean, some.stdev, some.max), (2.0, 1.0, 3.0));
        assert_eq!(Moments::of(&crate::latencies()), Moments::default());
    }
}
