//! The claims of the five papers, each judged by a test of its own on the journal's cells.
//!
//! The tests and their bounds stand in the code, so they were there before any run. Blocks are the unit:
//! whatever is compared is compared within a block, pooled over the conditions that a claim does not
//! name, and given an interval over blocks. A claim holds where the whole interval is on its side of
//! the bound, does not where the whole interval is on the other, and else this run cannot tell: the
//! reason says by how much, or which limit struck the trials out.

mod evidence;
mod finding;
mod p1;
mod p2;
mod p3;
mod p4;
mod p5;
mod select;
#[cfg(test)]
mod tests;

use crate::analysis::Run;
use crate::report::Claim;

use evidence::Evidence;
use finding::Row;

/// The claims of the paper that this run is of, judged; none, if it is of no paper.
#[must_use]
pub fn judged(run: &Run) -> Vec<Claim> {
    let rows: fn(&Evidence<'_>) -> Vec<Row> = match run.head.name.as_str() {
        "P1" => p1::rows,
        "P2" => p2::rows,
        "P3" => p3::rows,
        "P4" => p4::rows,
        "P5" => p5::rows,
        _ => return Vec::new(),
    };
    let rows = rows(&Evidence::new(run));
    rows.into_iter()
        .map(|row| row.into_claim(&run.head.name))
        .collect()
}
