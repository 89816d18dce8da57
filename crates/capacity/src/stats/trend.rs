//! Whether something rises or falls, and the nearest curve that does nothing else.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Larger with larger x.
    Rising,
    /// Smaller with larger x.
    Falling,
}

/// What Kendall's test finds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// Kendall's tau-b: from -1 (each pair falls) over 0 (no trend) to 1 (each rises).
    pub tau: f64,
    /// How likely so much rising is where there is no trend; one-sided.
    pub p_rising: f64,
    /// The same of falling.
    pub p_falling: f64,
}

/// Up to this number of points without ties the distribution is counted out.
const EXACT_MAX: usize = 60;

/// Kendall's rank correlation of `(x, y)`. Where x are levels with several runs each, its test is that
/// of Jonckheere and Terpstra. `None`: fewer than three points, or one of the two does not vary.
#[must_use]
pub fn kendall(points: &[(f64, f64)]) -> Option<Trend> {
    let count = points.len();
    if count < 3 {
        return None;
    }
    let mut score = 0_i64;
    for (index, (x, y)) in points.iter().enumerate() {
        for (other_x, other_y) in &points[..index] {
            let of_x = i64::from(x > other_x) - i64::from(x < other_x);
            let of_y = i64::from(y > other_y) - i64::from(y < other_y);
            score += of_x * of_y;
        }
    }
    let ties_x = ties(points.iter().map(|point| point.0));
    let ties_y = ties(points.iter().map(|point| point.1));
    let pairs = (count * (count - 1) / 2) as f64;
    let tied = |groups: &[usize]| -> f64 {
        groups
            .iter()
            .map(|size| (size * (size - 1) / 2) as f64)
            .sum()
    };
    let scale = ((pairs - tied(&ties_x)) * (pairs - tied(&ties_y))).sqrt();
    if scale == 0.0 {
        return None;
    }
    let p_at_least: Box<dyn Fn(i64) -> f64> =
        if count <= EXACT_MAX && ties_x.is_empty() && ties_y.is_empty() {
            let shares = inversion_shares(count);
            // The score is all pairs but twice the inversions.
            Box::new(move |score| {
                let inversions = (pairs as i64 - score) / 2;
                shares[..=inversions as usize].iter().sum::<f64>().min(1.0)
            })
        } else {
            let deviation = variance(count, &ties_x, &ties_y).sqrt();
            Box::new(move |score| {
                let z = (score as f64 - 1.0) / deviation;
                Normal::new(0.0, 1.0).map_or(1.0, |normal| normal.sf(z))
            })
        };
    Some(Trend {
        tau: score as f64 / scale,
        p_rising: p_at_least(score),
        p_falling: p_at_least(-score),
    })
}

/// Sizes of the groups of values that are the same.
fn ties(values: impl Iterator<Item = f64>) -> Vec<usize> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|one, other| one == other);
    groups.map(<[f64]>::len).filter(|size| *size > 1).collect()
}

/// Of the score, without a trend (Kendall and Gibbons, Rank Correlation Methods, 4.8).
fn variance(count: usize, ties_x: &[usize], ties_y: &[usize]) -> f64 {
    let term = |size: usize| (size * (size - 1) * (2 * size + 5)) as f64;
    let sum =
        |groups: &[usize], of: fn(usize) -> f64| -> f64 { groups.iter().map(|one| of(*one)).sum() };
    let twos = |size: usize| (size * (size - 1)) as f64;
    let threes = |size: usize| (size * (size - 1) * size.saturating_sub(2)) as f64;
    let plain = (term(count) - sum(ties_x, term) - sum(ties_y, term)) / 18.0;
    let of_threes = sum(ties_x, threes) * sum(ties_y, threes) / (9.0 * threes(count));
    let of_twos = sum(ties_x, twos) * sum(ties_y, twos) / (2.0 * twos(count));
    plain + of_threes + of_twos
}

/// Which share of all orders of `count` things has 0, 1, 2, ... inversions.
fn inversion_shares(count: usize) -> Vec<f64> {
    let pairs = count * (count - 1) / 2;
    let mut shares = vec![0.0; pairs + 1];
    shares[0] = 1.0;
    for size in 2..=count {
        let mut next = vec![0.0; pairs + 1];
        for (at, slot) in next.iter_mut().enumerate() {
            let from = at.saturating_sub(size - 1);
            *slot = shares[from..=at].iter().sum::<f64>() / size as f64;
        }
        shares = next;
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trend(y: &[f64]) -> Trend {
        let points: Vec<(f64, f64)> = y.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
        kendall(&points).unwrap()
    }

    #[test]
    fn exact_as_tabled() {
        let falling = trend(&[5.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(falling.tau, -1.0);
        assert!((falling.p_falling - 1.0 / 120.0).abs() < 1e-12);
        assert!((falling.p_rising - 1.0).abs() < 1e-12);
        // R: cor.test(1:9, c(2.6,3.1,2.5,5.0,3.6,4.0,5.2,2.8,3.8), method = "kendall",
        //   alternative = "greater"): T = 26, p = 0.05972, tau = 0.4444444 (Hollander and Wolfe)
        let x = [44.4, 45.9, 41.9, 53.3, 44.7, 44.1, 50.7, 45.2, 60.1];
        let y = [2.6, 3.1, 2.5, 5.0, 3.6, 4.0, 5.2, 2.8, 3.8];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let found = kendall(&points).unwrap();
        assert!((found.tau - 0.444_444_4).abs() < 1e-6);
        assert!((found.p_rising - 0.05972).abs() < 1e-5, "{found:?}");
    }

    #[test]
    fn what_does_not_vary_has_no_trend() {
        assert_eq!(kendall(&[(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]), None);
        assert_eq!(kendall(&[(1.0, 2.0), (2.0, 3.0)]), None);
    }

    proptest! {
        #[test]
        fn exact_and_approximate_agree(y in prop::collection::vec(-1e3..1e3, 30..60)) {
            let exact = trend(&y);
            let deviation = variance(y.len(), &[], &[]).sqrt();
            let pairs = (y.len() * (y.len() - 1) / 2) as f64;
            let z = (exact.tau * pairs - 1.0) / deviation;
            let approximate = Normal::new(0.0, 1.0).unwrap().sf(z);
            prop_assert!((exact.p_rising - approximate).abs() < 0.01);
        }
    }
}
