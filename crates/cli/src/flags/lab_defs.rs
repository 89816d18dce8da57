//! The options of `loadline lab` as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use loadline_spec::ValueError;
use loadline_spec::load::values::Cpus;
use loadline_spec::values::Count;

use super::capacity_defs::{CAPACITY_MORE, CapacityFlags};
use super::lab_advise_defs::{LAB_ADVISE_MORE, LabAdviseFlags};
use super::lab_link_defs::{LAB_LINK_MORE, LabLinkFlags, RelayFlags};
use super::lab_paper_defs::{
    LAB_COMPARE_MORE, LAB_PAPER_MORE, LabCompareFlags, LabPaperFlags, RunningFlags,
};
use super::lab_report_defs::{
    LAB_REPORT_MORE, LAB_RESULTS_MORE, LAB_VERIFY_EXIT_CODES, LabReportFlags, LabResultsFlags,
    LabVerifyFlags,
};
use super::lab_server_defs::{LAB_SERVER_MORE, LabServerFlags};

pub(crate) const LAB_EXIT_CODES: &str = "\
Exit codes:
  0    every trial is recorded, discarded ones with their reasons; or the plan's budget is spent
  1    something failed while running; the recorded trials are kept, and the same command resumes
  2    bad usage: an option, a plan, a server that is not installed, a folder with another run
  3    every trial was discarded; the most frequent reason is printed
  130  interrupted; the recorded trials are kept, and the same command resumes";

pub(crate) const LAB_RUN_MORE: &str = "\
Examples:
  loadline lab run lab/examples/service-time.toml --out runs/service-time
      runs the plan; the same command resumes a run that was interrupted
  loadline lab run my-plan.toml --out runs/mine --dry-run
      checks the plan, and prints what would run and how long it would take

Signals:
  SIGINT, SIGTERM  give up the trial in progress and end; a second one ends at once";

/// The commands of the lab.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a plan (docs/lab.md), or resume a run that was interrupted.
    #[command(after_help = format!("{LAB_RUN_MORE}\n\n{LAB_EXIT_CODES}"))]
    Run(LabRunFlags),
    /// Find the highest rate at which a server holds an SLO (docs/capacity.md).
    #[command(after_help = CAPACITY_MORE)]
    Capacity(Box<CapacityFlags>),
    /// Make one HTML file of a run: charts, tables, claims (docs/report.md).
    #[command(after_help = LAB_REPORT_MORE)]
    Report(LabReportFlags),
    /// Compute every number of a report again from the raw files, and compare.
    #[command(after_help = LAB_VERIFY_EXIT_CODES)]
    Verify(LabVerifyFlags),
    /// Run the experiment of a paper (docs/papers.md), or resume it.
    #[command(after_help = format!("{LAB_PAPER_MORE}\n\n{LAB_EXIT_CODES}"))]
    Paper(LabPaperFlags),
    /// Compare Loadline with the other servers that are installed (docs/lab.md), or resume it.
    #[command(after_help = format!("{LAB_COMPARE_MORE}\n\n{LAB_EXIT_CODES}"))]
    Compare(LabCompareFlags),
    /// Say which server to use for a workload that was measured, and how to start it (docs/advice.md).
    #[command(after_help = LAB_ADVISE_MORE)]
    Advise(LabAdviseFlags),
    /// Summarise several runs on one page of Markdown: charts, claims, machine (docs/papers.md).
    #[command(after_help = LAB_RESULTS_MORE)]
    Results(LabResultsFlags),
    /// Print how a server of a plan is started, as JSON, and write its configuration (docs/lab.md).
    #[command(after_help = LAB_SERVER_MORE)]
    Server(LabServerFlags),
    /// List slow networks that plans may name, or measure one against its settings (docs/links.md).
    #[command(after_help = LAB_LINK_MORE)]
    Link(LabLinkFlags),
    /// Carries the packets of a trial over a link; started by the run itself.
    #[command(hide = true)]
    Relay(RelayFlags),
    /// Supervises a server or client of a run; started by the run itself.
    #[command(hide = true)]
    Guard(GuardFlags),
}

/// The options of `loadline lab run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRunFlags {
    /// The plan.
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) plan: PathBuf,

    /// The folder of the run: its journal, one histogram log for each trial, the files that are served.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,

    /// Add blocks until the comparisons of the plan (compare) are decided.
    #[arg(long)]
    pub(crate) until_decided: bool,

    /// The most blocks with --until-decided, the plan's blocks included.
    #[arg(
        long,
        value_name = "N",
        default_value = "20",
        requires = "until_decided",
        value_parser = block_count
    )]
    pub(crate) blocks_max: usize,

    #[command(flatten)]
    pub(crate) running: RunningFlags,
}

fn block_count(text: &str) -> Result<usize, ValueError> {
    text.parse::<Count<1, 1000>>().map(Count::get)
}

/// The options of a guard.
#[derive(Args, Clone, Debug)]
pub(crate) struct GuardFlags {
    /// CPUs of the process.
    #[arg(long)]
    pub(crate) cpus: Option<Cpus>,

    /// Where its output goes.
    #[arg(long)]
    pub(crate) log: PathBuf,

    /// A control group that the process runs in, removed when nothing is left of it.
    #[arg(long)]
    pub(crate) group: Option<PathBuf>,

    /// Its network namespace, if it differs from this process's.
    #[arg(long)]
    pub(crate) network: Option<PathBuf>,

    /// The user namespace that owns it, if it differs from this process's.
    #[arg(long)]
    pub(crate) user: Option<PathBuf>,

    /// A folder that is removed when nothing is left of the process.
    #[arg(long)]
    pub(crate) remove: Option<PathBuf>,

    /// Its command line.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}
