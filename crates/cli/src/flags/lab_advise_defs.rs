//! The options of `loadline lab advise` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use loadline_lab::advice::Goal;
use loadline_lab::journal::Level;
use loadline_spec::{ValueError, one_of};

pub(crate) const LAB_ADVISE_MORE: &str = "\
Examples:
  loadline lab advise runs/service-time --for service_us=200
      the architecture, loops and workers for that workload, and the command line to start it
  loadline lab advise runs/P1 --series reactors --for service_us=200
      of one series of a run that has several
  loadline lab advise runs/compare --series rate --for rate_per_s=5000 --goal latency
      by the 99th percentile of the latency instead of the throughput

Exit codes:
  0    the advice was printed
  1    a file cannot be written
  2    bad usage: an option, or a folder without a run
  3    no advice: the workload was not measured, or not often enough";

/// The options of `loadline lab advise`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabAdviseFlags {
    /// The folder of the run.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub(crate) run: PathBuf,

    /// The series, if the run has several: their cells differ in more than their levels.
    #[arg(long, value_name = "NAME")]
    pub(crate) series: Option<String>,

    /// The workload, as levels of factors that were varied; may also name a choice that you have
    /// made (architecture=reactor).
    #[arg(long = "for", value_name = "FACTOR=LEVEL", value_delimiter = ',', value_parser = level)]
    pub(crate) workload: Vec<(String, Level)>,

    /// What is better: more good responses a second, a lower 99th percentile of the latency, less
    /// CPU time of the server for a response, or less memory.
    #[arg(long, value_name = "GOAL", default_value = "throughput",
        value_parser = one_of(Goal::ALL, Goal::name))]
    pub(crate) goal: Goal,

    /// Write the advice also as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

/// `service_us=200`: a number where it reads as one.
fn level(text: &str) -> Result<(String, Level), ValueError> {
    let (factor, level) = text
        .split_once('=')
        .map(|(factor, level)| (factor.trim(), level.trim()))
        .filter(|(factor, level)| !factor.is_empty() && !level.is_empty())
        .ok_or("right would be a factor and its level, as in service_us=200")?;
    let number = level.parse::<f64>().ok().filter(|it| it.is_finite());
    let level = number.map_or_else(|| Level::Text(level.to_owned()), Level::Number);
    Ok((factor.to_owned(), level))
}
