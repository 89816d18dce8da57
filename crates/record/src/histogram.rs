//! The histograms of a trial: all of them have the same bounds, so that they can be added up.

use hdrhistogram::Histogram;

/// Latencies are recorded in microseconds, from 1 us to 10 min, with 3 significant digits.
pub const LATENCY_US_MAX: u64 = 600_000_000;
/// Significant decimal digits of every histogram.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram of latencies.
#[must_use]
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS)
        .unwrap_or_else(|_| unreachable!("the bounds are valid"))
}
