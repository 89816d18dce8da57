//! The options of `loadline lab report`, `loadline lab verify` and `loadline lab results` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_VERIFY_EXIT_CODES: &str = "\
Exit codes:
  0    the report says what the raw files say
  1    it does not: what differs is listed
  2    bad usage: an option, a folder without a run, a file that is no report";

pub(crate) const LAB_REPORT_MORE: &str = "\
Examples:
  loadline lab report runs/service-time
      writes runs/service-time/report.html, one file that a browser opens from the disk
  loadline lab report runs/service-time --figures figures --csv trials.csv
      writes each chart as SVG, too, and every trial as a line of a table

Exit codes:
  0    written
  1    a file cannot be written
  2    bad usage: an option, or a folder without a run";

pub(crate) const LAB_RESULTS_MORE: &str = "\
Examples:
  loadline lab results runs/P1 runs/P2 runs/P3 runs/P4 runs/P5
      writes docs/papers-results.md, with the pictures of each run in a folder beside it
  loadline lab results docs/papers-results/P1.jsonl docs/papers-results/P2.jsonl
      the same of papers that were measured by parts, whose runs may be gone; sections of other
      papers stay on the page as they are
  loadline lab results runs/mine --out mine.md --title 'What my servers carry'
      the same for any runs

Exit codes:
  0    written
  1    a file cannot be written
  2    bad usage: an option, a folder without a run, a README without a place for it";

/// The options of `loadline lab report`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabReportFlags {
    /// The folder of the run.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub(crate) run: PathBuf,

    /// The report [default: report.html in the folder of the run].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Write each chart as a picture, NAME.svg, into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) figures: Option<PathBuf>,

    /// Write every trial as a line of a table.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Write everything that the report says as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

/// The options of `loadline lab verify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabVerifyFlags {
    /// The folder of the run.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub(crate) run: PathBuf,

    /// The report [default: report.html in the folder of the run].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
}

/// The options of `loadline lab results`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabResultsFlags {
    /// The folders of the runs, or what `loadline lab paper --keep` has kept of papers (P1.jsonl), in the
    /// order of the page.
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
