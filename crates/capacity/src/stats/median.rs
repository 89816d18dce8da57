//! The usual value, by order statistics: it asks nothing of the distribution.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::Interval;

/// The middle value, or the mean of the two in the middle; `None` without a value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The value below which a share of the values lies, in a straight line between the two nearest
/// (Hyndman and Fan's type 7); `None` without a value.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let above = (below + 1).min(last);
    Some(sorted[below] + part * (sorted[above] - sorted[below]))
}

/// The interval of the median by order statistics: the narrowest symmetric one that reaches `level`,
/// or from the smallest value to the largest one where that takes more runs than there are, with
/// the level that this has (two runs 50 %, three 75 %, five 94 %; six are needed for 95 %).
/// `None`: fewer than two runs.
#[must_use]
pub fn median_interval(values: &[f64], level: f64) -> Option<Interval> {
    let sorted = sorted(values);
    let runs = sorted.len();
    if runs < 2 {
        return None;
    }
    let below = Binomial::new(0.5, runs as u64).ok()?;
    // The values with `skipped` others beyond them on either side miss the median when at most so
    // many of all lie on one side of it.
    let level_of = |skipped: usize| 1.0 - 2.0 * below.cdf(skipped as u64);
    let widest = (runs - 1) / 2;
    let skipped = (0..=widest).rev().find(|one| level_of(*one) >= level);
    let skipped = skipped.unwrap_or(0);
    Some(Interval {
        low: sorted[skipped],
        high: sorted[runs - 1 - skipped],
        level: level_of(skipped),
    })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|one| !one.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::LEVEL;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[10.0, 20.0], 0.9), Some(19.0));
    }

    #[test]
    fn levels_are_those_of_the_binomial_distribution() {
        // David and Nagaraja, Order Statistics, 7.1.
        for (runs, skipped, level) in [
            (2, 0, 0.5),
            (3, 0, 0.75),
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (9, 1, 0.9609375),
            (10, 1, 0.978515625),
        ] {
            let values: Vec<f64> = (0..runs).map(f64::from).collect();
            let interval = median_interval(&values, LEVEL).unwrap();
            assert_eq!(interval.low, f64::from(skipped), "{runs}");
            assert_eq!(interval.high, f64::from(runs - 1 - skipped), "{runs}");
            assert!((interval.level - level).abs() < 1e-9, "{runs}");
        }
        assert_eq!(median_interval(&[1.0], LEVEL), None);
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median(values in prop::collection::vec(-1e6..1e6, 2..60)) {
            let interval = median_interval(&values, LEVEL).unwrap();
            prop_assert!(interval.contains(median(&values).unwrap()));
            prop_assert!(values.len() < 6 || interval.level >= LEVEL);
        }

        #[test]
        fn quantiles_rise(values in prop::collection::vec(-1e6..1e6, 1..60), a in 0.0..1.0, b in 0.0..1.0) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(quantile(&values, low) <= quantile(&values, high));
            let (middle, median) = (quantile(&values, 0.5).unwrap(), median(&values).unwrap());
            prop_assert!((middle - median).abs() <= 1e-9 * median.abs().max(1.0));
        }
    }
}
