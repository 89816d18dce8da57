//! What came out, as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::trial::Outcome;
use crate::stats::quantile;

/// A line for each kind of load, then those that are off.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut by_name: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        by_name.entry(&outcome.name).or_default().push(outcome);
        by_name.entry("~ all").or_default().push(outcome);
    }
    let mut text = String::from(
        "load                                      n   share min   5%  50%   p99 50%  95% (again 95%)  settle 95%  changes>1  leaps\n",
    );
    for (name, list) in by_name {
        let of = |what: fn(&Outcome) -> f64, share: f64| {
            let values: Vec<f64> = list.iter().map(|outcome| what(outcome)).collect();
            quantile(&values, share).unwrap_or(f64::NAN)
        };
        let restless = list.iter().filter(|one| one.changes > 1).count();
        let leaps = list.iter().filter(|one| one.leaps > 0).count();
        let _ = writeln!(
            text,
            "{name:40}{:4}  {:9.3}{:6.3}{:6.3}   {:6.2}{:6.2}  {:6.2}        {:6.1}   {restless:4}  {leaps:4}",
            list.len(),
            of(|o| o.share, 0.0),
            of(|o| o.share, 0.05),
            of(|o| o.share, 0.5),
            of(|o| o.p99, 0.5),
            of(|o| o.p99, 0.95),
            of(|o| o.p99_again, 0.95),
            of(|o| o.settle_s, 0.95),
        );
    }
    for one in outcomes {
        let is_slow = one.p99 > 1.15 * one.p99_again.max(1.0);
        if one.share < 0.95 || is_slow || one.changes > 1 || one.leaps > 0 {
            let _ = writeln!(
                text,
                "{:6} {:40} best {:3} size {:3} share {:.3} p99 {:.2} (again {:.2}) settle {:.1} changes {}",
                one.seed,
                one.name,
                one.best,
                one.size,
                one.share,
                one.p99,
                one.p99_again,
                one.settle_s,
                one.changes
            );
        }
    }
    text
}
