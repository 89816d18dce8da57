//! Studies that Loadline brings with it: the experiments of five papers and a comparison of servers, as
//! plans of the laboratory, and what runs of them come to.
//!
//! A plan of `lab/papers/` has two grids in one file: a reduced one, and the paper's own parameters in
//! tables named `full`. [`Grid::plan_text`] makes the plain plan of one of them, which is what a run's
//! journal keeps. The laboratory runs it as any other plan, and knows nothing of papers; this crate
//! reads the run, judges the claims of its paper ([`claims`]), and writes the pages of several runs
//! ([`results`]) and of the comparison ([`compare`]).
#![forbid(unsafe_code)]

pub mod claims;
pub mod compare;
mod error;
mod figures;
mod focus;
mod forms;
mod grid;
mod kept;
mod packed;
mod paper;
mod published;
pub mod results;
mod source;
#[cfg(test)]
mod tests;
mod times;

pub use error::{GridError, PaperError};
pub use focus::{Focused, focused};
pub use grid::{Grid, unmatched};
pub use kept::{Kept, check_whole, parts_said};
pub use paper::{PAPERS, Paper};
pub use times::{PaperTime, sum_said};

/// Each of them once, in the order in which they first come.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
