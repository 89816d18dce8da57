//! Tests of pairs that ask nothing of the distribution; exact, so they need no more runs than six.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// Up to so many differences the distribution is counted out; beyond it the normal one is close
/// enough (to the third digit).
const EXACT_MAX: usize = 50;

/// The sign test of differences against 0, two-sided: its p. Differences of 0 say nothing and are
/// left out.
#[must_use]
pub fn sign_test(differences: &[f64]) -> f64 {
    let above = differences.iter().filter(|one| **one > 0.0).count();
    let below = differences.iter().filter(|one| **one < 0.0).count();
    let Ok(signs) = Binomial::new(0.5, (above + below) as u64) else {
        return 1.0;
    };
    (2.0 * signs.cdf(above.min(below) as u64)).min(1.0)
}

/// Wilcoxon's signed-rank test of differences against 0, two-sided: its p. Differences of 0 are left
/// out; those of the same size share the mean of their ranks. Up to 50 it is exact.
#[must_use]
pub fn signed_rank(differences: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|one| *one != 0.0 && !one.is_nan())
        .collect();
    if sizes.is_empty() {
        return 1.0;
    }
    sizes.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    // Twice the rank, which is whole where ranks are shared, too.
    let ranks = twice_ranks(&sizes);
    let above: usize = (sizes.iter().zip(&ranks))
        .filter(|(one, _)| **one > 0.0)
        .map(|(_, rank)| rank)
        .sum();
    let all: usize = ranks.iter().sum();
    let smaller = above.min(all - above);
    if sizes.len() <= EXACT_MAX {
        (2.0 * share_up_to(&ranks, smaller)).min(1.0)
    } else {
        let squares: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
        let deviation = (squares / 4.0).sqrt();
        // One half rank for continuity; ranks are doubled.
        let z = (smaller as f64 + 1.0 - all as f64 / 2.0) / deviation;
        Normal::new(0.0, 1.0).map_or(1.0, |normal| (2.0 * normal.cdf(z)).min(1.0))
    }
}

/// Twice the rank of each of what is sorted by size, from 1.
fn twice_ranks(sorted: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted.len());
    for group in sorted.chunk_by(|one, other| one.abs() == other.abs()) {
        let first = ranks.len() + 1;
        let last = ranks.len() + group.len();
        ranks.extend(std::iter::repeat_n(first + last, group.len()));
    }
    ranks
}

/// Which share of all choices of signs gives the positive ones at most `sum`.
fn share_up_to(ranks: &[usize], sum: usize) -> f64 {
    let all: usize = ranks.iter().sum();
    let mut share_of = vec![0.0; all + 1];
    share_of[0] = 1.0;
    for rank in ranks {
        for at in (0..=all).rev() {
            let with = at.checked_sub(*rank).map_or(0.0, |before| share_of[before]);
            share_of[at] = f64::midpoint(share_of[at], with);
        }
    }
    share_of[..=sum].iter().sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_tabled() {
        // All of one sign: 2 of 2^n choices.
        let rising: Vec<f64> = (1..=6).map(f64::from).collect();
        assert!((signed_rank(&rising) - 2.0 / 64.0).abs() < 1e-12);
        assert!((sign_test(&rising) - 2.0 / 64.0).abs() < 1e-12);
        // R: wilcox.test(c(1.83,0.50,1.62,2.48,1.68,1.88,1.55,3.06,1.30),
        //   c(0.878,0.647,0.598,2.05,1.06,1.29,1.06,3.14,1.29), paired = TRUE): V = 40, p = 0.03906
        let this = [1830, 500, 1620, 2480, 1680, 1880, 1550, 3060, 1300];
        let other = [878, 647, 598, 2050, 1060, 1290, 1060, 3140, 1290];
        let differences = this.iter().zip(other).map(|(a, b)| f64::from(a - b));
        let differences: Vec<f64> = differences.collect();
        let p = signed_rank(&differences);
        assert!((p - 0.039_062_5).abs() < 1e-9, "{p}");
        assert_eq!(signed_rank(&[]), 1.0);
        assert_eq!(sign_test(&[0.0]), 1.0);
    }

    #[test]
    fn exact_and_approximate_meet() {
        let differences: Vec<f64> = (1..=60)
            .map(|n| f64::from(n) * if n % 3 == 0 { -1.0 } else { 1.0 })
            .collect();
        let approximate = signed_rank(&differences);
        let ranks = twice_ranks(&differences);
        let above: usize = (ranks.iter().zip(&differences))
            .filter(|(_, one)| **one > 0.0)
            .map(|(rank, _)| rank)
            .sum();
        let all: usize = ranks.iter().sum();
        let exact = 2.0 * share_up_to(&ranks, above.min(all - above));
        assert!((exact - approximate).abs() < 0.002, "{exact} {approximate}");
    }

    proptest! {
        #[test]
        fn turning_all_signs_changes_nothing(differences in prop::collection::vec(-9_i32..9, 1..70)) {
            let differences: Vec<f64> = differences.into_iter().map(f64::from).collect();
            let turned: Vec<f64> = differences.iter().map(|one| -one).collect();
            for test in [sign_test, signed_rank] {
                let p = test(&differences);
                prop_assert!(p > 0.0 && p <= 1.0);
                prop_assert!((p - test(&turned)).abs() < 1e-9);
            }
        }
    }
}
