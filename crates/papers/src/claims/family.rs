//! The claims of one paper, corrected for their number.
//!
//! Holm's procedure (1979) on intervals: with `m` claims that can be judged, each is judged at a level of
//! 1 - 0.05 / m; for those that are decided the others have fewer beside them, and are judged anew, until
//! nothing more is decided. So the chance of any wrong verdict is 5 % at most, whatever the claims
//! have in common, and whichever of them are true.
//!
//! Benjamini and Hochberg's procedure would decide more, and bounds the share of wrong verdicts among
//! all. That is less than what is asked for here: claims that are rightly decided, such as that a ratio
//! of 1 is not 3, ease the level of all others, and a study without any effect has many of those.

use loadline_capacity::stats::LEVEL;
use loadline_lab::report::Verdict;

use super::finding::JudgedClaim;

/// Judges the claims that `claims_at` tests at a level, each at the level that its number asks for.
pub(super) fn judged(claims_at: impl Fn(f64) -> Vec<JudgedClaim>) -> Vec<JudgedClaim> {
    let mut claims = claims_at(LEVEL);
    let mut open: Vec<usize> = (0..claims.len())
        .filter(|index| claims[*index].finding.can_be_judged)
        .collect();
    while !open.is_empty() {
        let level = 1.0 - (1.0 - LEVEL) / open.len() as f64;
        for (index, claim) in claims_at(level).into_iter().enumerate() {
            if open.contains(&index) {
                claims[index] = claim;
            }
        }
        let before = open.len();
        open.retain(|index| claims[*index].finding.verdict == Verdict::NotTestable);
        if open.len() == before {
            break;
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::evidence::Untestable;
    use crate::claims::finding::{Bound, ClaimFinding};
    use loadline_capacity::stats::mean_interval;
    use loadline_lab::report::Undecided;

    /// Three runs of each, and a claim that the mean is above 0.
    fn claims(runs: &[[f64; 3]], level: f64) -> Vec<JudgedClaim> {
        let claim = |runs: &[f64; 3]| {
            let interval = mean_interval(runs, level);
            let finding = ClaimFinding::of("", &(1.0, interval).into(), Bound::AtLeast(0.0));
            JudgedClaim::new("", Ok(finding))
        };
        runs.iter().map(claim).collect()
    }

    fn levels(runs: &[[f64; 3]]) -> Vec<(Verdict, f64)> {
        let claims = judged(|level| claims(runs, level)).into_iter();
        claims
            .map(|claim| (claim.finding.verdict, claim.finding.interval.unwrap().level))
            .collect()
    }

    #[test]
    fn what_is_decided_leaves_the_others_a_level_of_fewer() {
        use Verdict::{NotTestable, Reproduced};
        // t is 100 for the first, and 4.58 for the others: more than the 4.30 that one of them takes.
        let (clear, faint) = ([9.9, 10.0, 10.1], [1.0, 1.4, 0.6].map(|it| it - 0.06));
        assert_eq!(levels(&[faint]), [(NotTestable, LEVEL)]);
        let faint = [1.0, 1.37, 0.63];
        assert_eq!(levels(&[faint]), [(Reproduced, LEVEL)]);
        let two = levels(&[clear, faint]);
        assert_eq!(two, [(Reproduced, 1.0 - 0.05 / 2.0), (Reproduced, LEVEL)]);
        let three = levels(&[clear, faint, faint]);
        let level = 1.0 - (1.0 - LEVEL) / 2.0;
        assert_eq!(three[1..], [(NotTestable, level), (NotTestable, level)]);
    }

    #[test]
    fn what_cannot_be_judged_is_not_counted() {
        let mut counted = Vec::new();
        for missing in [0, 5] {
            let found = judged(|level| {
                let missing = (0..missing).map(|_| {
                    JudgedClaim::new(
                        "",
                        Err(Untestable("No trial.".to_owned(), Undecided::NoTrials)),
                    )
                });
                let mut claims = claims(&[[1.0, 3.0, -1.0]; 2], level);
                claims.extend(missing);
                claims
            });
            counted.push(found[0].finding.interval.unwrap().level);
        }
        assert_eq!(counted[0], counted[1]);
    }
}
