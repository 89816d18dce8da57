//! How long jobs waited in a queue: counts by length, within a fifth of the truth, that can be added.

use serde::{Deserialize, Serialize};

/// Bits of a number below its highest that name its bucket: buckets are at most a quarter wide.
const BITS: u32 = 2;
/// Waits from 2^26 us (67 s) on share the last bucket.
const OCTAVES: u32 = 26;
/// Buckets of [`Waits`].
pub const BUCKETS: usize = ((OCTAVES - BITS + 1) << BITS) as usize;

/// Waits of any number of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    counts: Vec<u64>,
    sum_us: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl Waits {
    /// From counts by [`bucket`], kept elsewhere, and the sum of all waits.
    #[must_use]
    pub fn from_counts(counts: impl IntoIterator<Item = u64>, sum_us: u64) -> Self {
        let mut waits = Self::default();
        for (own, count) in waits.counts.iter_mut().zip(counts) {
            *own = count;
        }
        waits.sum_us = sum_us;
        waits
    }

    /// Adds the wait of one job.
    pub fn record(&mut self, wait_us: u64) {
        self.counts[bucket(wait_us)] += 1;
        self.sum_us += wait_us;
    }

    /// Adds the waits of others.
    pub fn merge(&mut self, others: &Self) {
        for (own, count) in self.counts.iter_mut().zip(&others.counts) {
            *own += count;
        }
        self.sum_us += others.sum_us;
    }

    /// How many jobs waited, those that began at once included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The mean wait in microseconds; 0 without jobs.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_us as f64 / count as f64,
        }
    }

    /// The wait in microseconds that this share of the jobs did not exceed; 0 without jobs.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.count() as f64).ceil().max(1.0);
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += count;
            if below as f64 >= wanted {
                return middle_us(index);
            }
        }
        0.0
    }
}

/// The bucket of a wait, below [`BUCKETS`].
#[must_use]
pub fn bucket(wait_us: u64) -> usize {
    let wait_us = wait_us.min((1 << OCTAVES) - 1);
    let exponent = (wait_us | 1).ilog2().saturating_sub(BITS);
    (((exponent << BITS) as u64) + (wait_us >> exponent)) as usize
}

/// The middle of a bucket.
fn middle_us(index: usize) -> f64 {
    let exponent = ((index >> BITS) as u32).saturating_sub(1);
    let low = (index - ((exponent as usize) << BITS)) << exponent;
    low as f64 + ((1_u64 << exponent) - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_in_a_bucket_near_it() {
        let mut last = 0;
        for wait_us in (0..10_000).chain((0..400).map(|step| 10_000 + step * 150_000)) {
            let index = bucket(wait_us);
            assert!(index >= last && index < BUCKETS, "{wait_us}: {index}");
            last = index;
            let middle_us = middle_us(index);
            assert!(
                (middle_us - wait_us as f64).abs() <= 0.125 * wait_us as f64,
                "{wait_us}: {middle_us}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_means_are_those_of_what_was_added() {
        let mut waits = Waits::default();
        assert_eq!((waits.mean_us(), waits.quantile_us(0.99)), (0.0, 0.0));
        let mut others = Waits::default();
        for _ in 0..98 {
            waits.record(0);
        }
        others.record(1000);
        others.record(3000);
        waits.merge(&others);
        assert_eq!(waits.count(), 100);
        assert_eq!(waits.mean_us(), 40.0);
        assert_eq!(waits.quantile_us(0.98), 0.0);
        assert!((900.0..1100.0).contains(&waits.quantile_us(0.99)));
        assert!((2700.0..3300.0).contains(&waits.quantile_us(1.0)));
        let counts = waits.counts.clone();
        assert_eq!(Waits::from_counts(counts, 4000), waits);
    }
}
