//! The options of `loadline lab results` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_RESULTS_EXIT_CODES: &str = "\
Exit codes:
  0    written
  1    a file cannot be written
  2    bad usage: an option, a folder without a run, a README without a place for it";

pub(crate) const LAB_RESULTS_MORE: &str = "\
Examples:
  loadline lab results runs/P1 runs/P2 runs/P3 runs/P4 runs/P5
      writes docs/papers-results.md, with the pictures of each run in a folder beside it
  loadline lab results runs/mine --out mine.md --title 'What my servers carry'
      the same for any runs";

/// The options of `loadline lab results`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabResultsFlags {
    /// The folders of the runs, in the order of the page.
    #[arg(value_name = "RUN", required = true, value_hint = ValueHint::DirPath)]
    pub(crate) runs: Vec<PathBuf>,

    /// The page; pictures are written to a folder of its name beside it.
    #[arg(long, value_name = "FILE", default_value = "docs/papers-results.md", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,

    /// The heading of the page.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "Five papers, measured again"
    )]
    pub(crate) title: String,

    /// Write a summary of the claims, and a link to the page, between the marks of this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) readme: Option<PathBuf>,
}
