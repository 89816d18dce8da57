//! Many alternatives: which is best, and which cannot be distinguished from it.

use loadline_base::sorting::sort_by;
use serde::{Deserialize, Serialize};

use super::{Comparison, Difference, LEVEL, compare, geometric_mean};

/// One of several alternatives, ranked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankedAlternative {
    /// Position in what was given.
    pub index: usize,
    /// Geometric mean over blocks.
    pub value: f64,
    /// With the best one, this over that; `None` for the best itself.
    pub to_best: Option<Comparison>,
    /// The test's p, corrected for the number of pairs of alternatives (Holm); 1 for the best.
    pub p_corrected: f64,
    /// Not distinguishable from the best.
    pub is_tied_with_best: bool,
}

/// Ranks alternatives by their values in the same blocks, `values[alternative][block]`, the largest
/// first, and says of each whether it can be distinguished from the best.
///
/// It can if the difference is beyond what `matters` (a part of 1), and the test, corrected for all
/// pairs of alternatives, rejects that they are the same: which of them is the best was found by
/// the same runs, so any pair may be the one that is compared. Alternatives with a value that is not
/// above 0 are left out; blocks beyond the shortest list are not looked at.
#[must_use]
pub fn rank(values: &[Vec<f64>], matters: f64) -> Vec<RankedAlternative> {
    let blocks = values.iter().map(Vec::len).min().unwrap_or(0);
    let of_blocks = values.iter().map(|of_one| &of_one[..blocks]).enumerate();
    let mut ranked: Vec<(usize, f64)> = of_blocks
        .filter_map(|(index, of_one)| Some((index, geometric_mean(of_one)?)))
        .collect();
    sort_by(&mut ranked, |one, other| {
        other.1.total_cmp(&one.1).then(one.0.cmp(&other.0))
    });
    let Some((best, _)) = ranked.first().copied() else {
        return Vec::new();
    };
    let to = |index: usize, other: usize| {
        let pairs = values[index].iter().zip(&values[other]).take(blocks);
        let pairs: Vec<(f64, f64)> = pairs.map(|(one, other)| (*one, *other)).collect();
        compare(&pairs, matters)
    };
    // All pairs, those with the best first.
    let order = ranked.iter().map(|(index, _)| *index);
    let pairs = ranked.iter().enumerate().flat_map(|(rank, (better, _))| {
        let worse = order.clone().skip(rank + 1);
        worse.map(move |index| to(index, *better))
    });
    let compared: Vec<Option<Comparison>> = pairs.collect();
    let p: Vec<f64> = compared
        .iter()
        .map(|one| one.map_or(1.0, |one| one.p))
        .collect();
    let corrected = holm(&p);
    let mut ranks = vec![RankedAlternative {
        index: best,
        value: ranked[0].1,
        to_best: None,
        p_corrected: 1.0,
        is_tied_with_best: true,
    }];
    for (((index, value), to_best), p) in ranked[1..].iter().zip(compared).zip(corrected) {
        let is_less = to_best.is_some_and(|one| one.difference == Difference::Less);
        ranks.push(RankedAlternative {
            index: *index,
            value: *value,
            to_best,
            p_corrected: p,
            is_tied_with_best: !is_less || p > 1.0 - LEVEL,
        });
    }
    ranks
}

/// Corrects the p of several tests for there being several: with these, a test that rejects below
/// 0.05 does so wrongly for any of them in one of twenty families of tests at most (Holm 1979).
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    sort_by(&mut order, |one, other| p[*one].total_cmp(&p[*other]));
    let mut corrected = vec![1.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in order.iter().enumerate() {
        let factor = (p.len() - rank) as f64;
        largest = largest.max((p[*index] * factor).min(1.0));
        corrected[*index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use statrs::distribution::{ContinuousCDF, Normal};

    use super::*;

    #[test]
    fn holm_as_published() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, right) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - right).abs() < 1e-12, "{corrected:?}");
        }
    }

    /// Families of alternatives that are all the same, of 1000, in which any is distinguished from the
    /// best; each run has noise of its own, and each block an effect.
    #[test]
    fn alternatives_that_are_the_same_are_not_distinguished() {
        let normal = Normal::new(0.0, 1.0).unwrap();
        let distinguishes = |alternatives: usize, blocks: usize, seed: u64| {
            let mut generator = Pcg64Mcg::seed_from_u64(seed);
            let mut drawn = || normal.inverse_cdf(generator.random_range(1e-12..1.0));
            let of_blocks: Vec<f64> = (0..blocks).map(|_| 0.1 * drawn()).collect();
            let mut values = || -> Vec<f64> {
                let runs = of_blocks.iter().map(|block| (block + 0.05 * drawn()).exp());
                runs.collect()
            };
            let values: Vec<Vec<f64>> = (0..alternatives).map(|_| values()).collect();
            rank(&values, 0.0)
                .iter()
                .any(|rank| !rank.is_tied_with_best)
        };
        for alternatives in [2, 3, 6] {
            for blocks in [3, 5] {
                let wrong = (0..1000).filter(|seed| distinguishes(alternatives, blocks, *seed));
                let wrong = wrong.count();
                // 5 % and three standard deviations of what is counted.
                assert!(
                    wrong <= 71,
                    "{alternatives} in {blocks} blocks: {wrong} of 1000"
                );
            }
        }
    }

    #[test]
    fn those_that_are_as_good_are_tied() {
        let values = vec![
            vec![100.0, 210.0, 99.0, 151.0, 120.0], // as good as the best
            vec![101.0, 209.0, 100.0, 150.0, 121.0],
            vec![80.0, 165.0, 78.0, 121.0, 97.0], // a fifth less in every block
        ];
        let ranks = rank(&values, 0.02);
        let ties: Vec<(usize, bool)> = ranks
            .iter()
            .map(|rank| (rank.index, rank.is_tied_with_best))
            .collect();
        assert_eq!(ties, [(1, true), (0, true), (2, false)]);
        assert!(rank(&[], 0.02).is_empty());
        assert_eq!(rank(&[vec![0.0], vec![1.0]], 0.02).len(), 1);
    }

    proptest! {
        #[test]
        fn correction_keeps_the_order_and_never_helps(p in prop::collection::vec(0.0..1.0, 1..20)) {
            let corrected = holm(&p);
            for (one, found) in p.iter().zip(&corrected) {
                prop_assert!(found >= one && *found <= 1.0);
            }
            for (i, one) in p.iter().enumerate() {
                for (j, other) in p.iter().enumerate() {
                    prop_assert!(one > other || corrected[i] <= corrected[j]);
                }
            }
        }
    }
}
