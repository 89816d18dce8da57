//! The claims of the five papers, each judged by a test of its own on the journal's cells.
//!
//! The tests and their bounds are rows of `lab/papers/claims.toml` (`table.rs`), which the program
//! holds: they were there before any run. Blocks are the unit:
//! whatever is compared is compared within a block, pooled over the conditions that a claim does not
//! name, and given an interval over blocks. A claim holds where the whole interval is on its side of
//! the bound, does not where the whole interval is on the other, and else is undecided: the
//! reason says by how much, or which limit struck the trials out. What is the best of several is not
//! chosen first and compared then, but compared as any of them (`evidence.rs`, `envelope.rs`).
//!
//! The claims of a paper are a family, corrected for their number (`family.rs`), so that studies in which
//! nothing has an effect hold any wrong verdict in one of twenty at most.
//!
//! Times of trials in which the client was late are discarded, but bound the server's (`late.rs`).
//!
//! Where the client of a closed loop was the limit, a claim has to come out the same for what was
//! carried and for what the servers' CPU time left room for ([`loadline_lab::analysis::Measured::range`]).

mod bend;
mod envelope;
mod evidence;
mod family;
mod finding;
mod late;
mod limit;
#[cfg(test)]
mod null_tests;
mod quantity;
mod select;
mod shape;
mod table;
mod taken;
#[cfg(test)]
mod tests;
mod value;
mod zeros;

pub(crate) use table::{ClaimRow, of_paper, taken};
pub(crate) use taken::Taken;

use evidence::Layout;
use finding::JudgedClaim;
use loadline_lab::analysis::{Metric, Run};
use loadline_lab::report::Claim;

/// The claims of the paper that this run is of, judged; none, if it is of no paper.
#[must_use]
pub fn judged(run: &Run) -> Vec<Claim> {
    let measured = Layout::new(run);
    let roomy = roomy(run);
    let roomy = roomy.as_ref().map(Layout::new);
    let claims_at = |level: f64| -> Vec<JudgedClaim> {
        let measured = table::judged(&run.head.name, &measured.at(level));
        let Some(roomy) = &roomy else {
            return measured;
        };
        let both = measured
            .into_iter()
            .zip(table::judged(&run.head.name, &roomy.at(level)));
        both.map(|(measured, roomy)| measured.unless(roomy))
            .collect()
    };
    let claims = family::judged(claims_at).into_iter();
    claims
        .map(|claim| claim.into_claim(&run.head.name))
        .collect()
}

/// Whether a text of a claim contains what is looked for, in either case.
#[must_use]
pub fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}

/// The run as it would be if every server had carried all that its CPU time left room for, where the
/// client was the limit; `None`: it never was.
fn roomy(run: &Run) -> Option<Run> {
    if !run.trials.iter().any(|trial| trial.client_limited) {
        return None;
    }
    let mut roomy = run.clone();
    for trial in &mut roomy.trials {
        for &metric in Metric::ALL {
            let Some(range) = trial.range(metric) else {
                continue;
            };
            // One of the two is what was measured.
            let farthest = match range.high > range.value {
                true => range.high,
                false => range.low,
            };
            trial.values.insert(metric, farthest);
        }
        trial.client_limited = false;
    }
    Some(roomy)
}
