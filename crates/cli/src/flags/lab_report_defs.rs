//! The options of `loadline lab report` and `loadline lab verify` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_REPORT_EXIT_CODES: &str = "\
Exit codes:
  0    written
  1    a file cannot be written
  2    bad usage: an option, or a folder without a run";

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
      writes each chart as SVG, too, and every trial as a line of a table";

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
