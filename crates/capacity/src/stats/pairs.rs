//! Two alternatives, each pair of runs from the same block: what is common to a block (the hour, the
//! neighbours of a virtual machine) cancels in the ratio.

use serde::{Deserialize, Serialize};

use super::{Interval, LEVEL, center, mean, t_test};

/// How one alternative compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Pairs that were compared.
    pub pairs: usize,
    /// Geometric mean of the ratios of each pair.
    pub ratio: f64,
    /// Of that ratio, over pairs; `None`: fewer than two pairs.
    pub interval: Option<Interval>,
    /// Of a t-test of the logarithms of the ratios against 0, two-sided; 1 where it cannot be had.
    pub p: f64,
    /// What that comes to.
    pub difference: Difference,
}

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// More, and by more than what matters.
    More,
    /// Less, and by more than what matters.
    Less,
    /// Alike: whatever difference there is is smaller than what matters.
    Alike,
    /// Not distinguishable: the interval holds both alike and different.
    Unknown,
}

/// The geometric mean of what is above 0; `None` where nothing is, or something is not.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let is_positive = |value: &f64| *value > 0.0 && value.is_finite();
    if values.is_empty() || !values.iter().all(is_positive) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    Some(mean(&logs).exp())
}

/// Compares pairs of runs: `(this, other)` of the same block, for `this / other`.
///
/// `matters` is the smallest difference that matters, decided beforehand, as a part of 1: 0.02 for
/// 2 %. It should not be below the difference of two alternatives that are the same. Pairs with a
/// value that is not above 0 cannot be compared: `None` if there are such, or no pairs.
#[must_use]
pub fn compare(pairs: &[(f64, f64)], matters: f64) -> Option<Comparison> {
    compare_at(pairs, matters, LEVEL)
}

fn compare_at(pairs: &[(f64, f64)], matters: f64, level: f64) -> Option<Comparison> {
    let ratios: Vec<f64> = pairs.iter().map(|(this, other)| this / other).collect();
    let is_positive = |ratio: &f64| *ratio > 0.0 && ratio.is_finite();
    let (ratio, interval) = center(&ratios, level).filter(|_| ratios.iter().all(is_positive))?;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    Some(Comparison {
        pairs: pairs.len(),
        ratio,
        interval,
        p: t_test(&logs),
        difference: interval.map_or(Difference::Unknown, |interval| judged(&interval, matters)),
    })
}

/// What was measured, and how far the truth may lie from it for reasons that no repetition shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The truth is not below it.
    pub low: f64,
    /// What was measured.
    pub value: f64,
    /// The truth is not above it.
    pub high: f64,
}

impl Range {
    /// A value that is what it is.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            low: value,
            value,
            high: value,
        }
    }

    /// Whether it is more than a value.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.low >= self.high
    }

    /// What `self / other` can be.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        Self {
            low: self.low / other.high,
            value: self.value / other.value,
            high: self.high / other.low,
        }
    }
}

/// As [`compare`], for ratios that are known to lie in a range only: the interval reaches from the low
/// end of the lowest to the high end of the highest.
#[must_use]
pub fn compare_ranges(ratios: &[Range], matters: f64) -> Option<Comparison> {
    compare_ranges_at(ratios, matters, LEVEL)
}

/// As [`compare_ranges`], with an interval of this level.
#[must_use]
pub fn compare_ranges_at(ratios: &[Range], matters: f64, level: f64) -> Option<Comparison> {
    let of = |end: fn(&Range) -> f64| -> Option<Comparison> {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (end(ratio), 1.0)).collect();
        compare_at(&pairs, matters, level)
    };
    let measured = of(|ratio| ratio.value)?;
    if ratios.iter().all(Range::is_exact) {
        return Some(measured);
    }
    let (low, high) = (of(|ratio| ratio.low)?, of(|ratio| ratio.high)?);
    let interval = low.interval.zip(high.interval).map(|(low, high)| Interval {
        low: low.low,
        high: high.high,
        level: low.level,
    });
    Some(Comparison {
        interval,
        // The larger of the two: that the ratio is 1 is rejected at both ends on the same side.
        p: match (low.ratio - 1.0) * (high.ratio - 1.0) > 0.0 {
            true => low.p.max(high.p),
            false => 1.0,
        },
        difference: interval.map_or(Difference::Unknown, |interval| judged(&interval, matters)),
        ..measured
    })
}

/// More or less only where the whole interval is on one side of 1 and the estimate beyond what
/// matters; alike where the whole interval is within it.
fn judged(interval: &Interval, matters: f64) -> Difference {
    let (least, most) = (1.0 / (1.0 + matters), 1.0 + matters);
    let middle = (interval.low * interval.high).sqrt();
    if interval.low >= least && interval.high <= most {
        Difference::Alike
    } else if interval.low > 1.0 && middle > most {
        Difference::More
    } else if interval.high < 1.0 && middle < least {
        Difference::Less
    } else {
        Difference::Unknown
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::LEVEL;

    #[test]
    fn what_is_called_what() {
        let level = LEVEL;
        for (low, high, difference) in [
            (1.05, 1.10, Difference::More),
            (0.90, 0.95, Difference::Less),
            (0.99, 1.01, Difference::Alike),
            (1.001, 1.019, Difference::Alike), // it differs, but not by what matters
            (0.95, 1.05, Difference::Unknown),
            (1.001, 1.03, Difference::Unknown),
        ] {
            let interval = Interval { low, high, level };
            assert_eq!(judged(&interval, 0.02), difference, "{low} to {high}");
        }
    }

    #[test]
    fn ratios_are_of_pairs() {
        // The blocks differ by a factor of 10, the pairs by 10 to 12 %.
        let pairs = [(110.0, 100.0), (1120.0, 1000.0), (11.0, 10.0), (56.0, 50.0)];
        let comparison = compare(&pairs, 0.02).unwrap();
        assert_eq!(comparison.pairs, 4);
        assert!((comparison.ratio - 1.11).abs() < 0.001);
        assert_eq!(comparison.difference, Difference::More);
        assert!(comparison.p < 0.001, "{}", comparison.p);
        assert_eq!(compare(&[(1.0, 0.0)], 0.02), None);
        assert_eq!(compare(&[], 0.02), None);
        let single = compare(&[(2.0, 1.0)], 0.02).unwrap();
        assert_eq!(
            (single.interval, single.difference),
            (None, Difference::Unknown)
        );
    }

    #[test]
    fn a_range_widens_the_interval_to_its_ends() {
        let wide = |low: f64, high: f64| Range {
            low,
            value: low,
            high,
        };
        let exact: Vec<Range> = [1.10, 1.12, 1.11].map(Range::exact).into();
        let pairs = [(1.10, 1.0), (1.12, 1.0), (1.11, 1.0)];
        assert_eq!(compare_ranges(&exact, 0.02), compare(&pairs, 0.02));
        let above = [wide(1.10, 1.5), wide(1.12, 1.6), wide(1.11, 1.55)];
        let above = compare_ranges(&above, 0.02).unwrap();
        assert!((above.ratio - 1.11).abs() < 0.001);
        let interval = above.interval.unwrap();
        assert!(interval.low < 1.11 && interval.low > 1.08 && interval.high > 1.5);
        assert_eq!(above.difference, Difference::More);
        // Below or above, for all that is known.
        let both = [wide(0.9, 1.5), wide(0.91, 1.5)];
        let both = compare_ranges(&both, 0.02).unwrap();
        assert_eq!((both.difference, both.p), (Difference::Unknown, 1.0));
        let ratio = wide(900.0, 1800.0).over(&wide(300.0, 600.0));
        assert_eq!((ratio.low, ratio.value, ratio.high), (1.5, 3.0, 6.0));
    }

    proptest! {
        #[test]
        fn swapping_turns_the_ratio_over(pairs in prop::collection::vec((1.0..1e6, 1.0..1e6), 1..20)) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let one = compare(&pairs, 0.02).unwrap();
            let other = compare(&swapped, 0.02).unwrap();
            prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
            prop_assert!((one.p - other.p).abs() < 1e-9);
        }

        #[test]
        fn a_factor_common_to_a_block_cancels(
            pairs in prop::collection::vec((1.0..1e3, 1.0..1e3, 0.1..10.0), 2..10),
        ) {
            let plain: Vec<(f64, f64)> = pairs.iter().map(|(a, b, _)| (*a, *b)).collect();
            let scaled: Vec<(f64, f64)> = pairs.iter().map(|(a, b, f)| (a * f, b * f)).collect();
            let (one, other) = (compare(&plain, 0.02).unwrap(), compare(&scaled, 0.02).unwrap());
            prop_assert!((one.ratio / other.ratio - 1.0).abs() < 1e-9);
        }
    }
}
