//! The options of `loadline lab paper` and `loadline lab compare` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_PAPER_MORE: &str = "\
Examples:
  loadline lab paper P1
      a reduced grid, 42 minutes on two cores (P2 to P5: 10 to 26), into runs/P1; the same
      command resumes it
  loadline lab paper P1 --full --dry-run
      how long the paper's own parameters would take, and those of all papers
  loadline lab paper P1 --focus 'few reactors suffice'
      only what the claims take that say so, in five minutes or less
  loadline lab paper P3 --only rates --seconds 1 --replicates 1 --out runs/look
      a quick look at one part
  loadline lab paper P1 --full --only best,shared --keep docs/papers-results
      a part of the paper in full, kept in docs/papers-results/P1.jsonl beside other parts";

pub(crate) const LAB_COMPARE_MORE: &str = "\
Examples:
  loadline lab compare
      small and large files, 64 to 10,000 connections, new ones, idle ones, latency at the same
      rate, two loops: about 20 minutes, into runs/compare; the same command resumes it, or
      prints the tables again
  loadline lab compare --only small,idle
      two parts of it
  loadline lab compare --page docs/results.md --readme docs/figures.md
      the same, and writes the tables into these files, between the lines
      <!-- ./x bench servers --publish --> and <!-- end of what it writes -->
  loadline lab compare --plan lab/apps.toml
      the same tables for the servers, loads and goals of another plan, into runs/apps";

/// The options of `loadline lab paper`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabPaperFlags {
    /// The paper: P1 to P5 (docs/papers.md).
    #[arg(value_name = "PAPER")]
    pub(crate) paper: String,

    /// Run only the cells that claims take whose text contains this, in fewer blocks where a claim would
    /// take more than five minutes, and say what came of them.
    #[arg(long, value_name = "TEXT")]
    pub(crate) focus: Option<String>,

    /// With --full: once all is measured, keep it in a file of this folder (P1.jsonl), in place of what is
    /// there of the same series. It can be committed, and `loadline lab results` reads it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) keep: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) grid: LabGridFlags,
}

/// The options of `loadline lab compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabCompareFlags {
    /// Another plan: its servers, loads and goals [default: lab/compare.toml].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) grid: LabGridFlags,

    /// Write all tables between the marks of this file, too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) page: Option<PathBuf>,

    /// Write each chart as a picture, NAME.svg, into this folder, and show them above the tables of
    /// --page.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) figures: Option<PathBuf>,

    /// Write the summary table between the marks of this file, too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) readme: Option<PathBuf>,
}

/// Which part of a plan is run, and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabGridFlags {
    /// Of a paper: run its whole grid, near to the paper's own parameters. Of a comparison: run more and
    /// longer trials. Prints first how long it takes.
    #[arg(long)]
    pub(crate) full: bool,

    /// Run only these series of the plan.
    #[arg(long, value_name = "SERIES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Length of each trial in seconds, in place of the plan's.
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,

    /// Trials of each cell, in place of the plan's.
    #[arg(long, value_name = "N")]
    pub(crate) replicates: Option<u32>,

    /// The folder of the run [default: runs/ and the name of the paper or plan; with --full followed by
    /// -full, with --focus by its text].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Print the plan that would be run.
    #[arg(long)]
    pub(crate) show: bool,

    #[command(flatten)]
    pub(crate) running: RunningFlags,
}

/// How any plan is run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunningFlags {
    /// Seed of the order of trials and of their loads [default: the plan's].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Check the plan and print what would run, and for how long.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
