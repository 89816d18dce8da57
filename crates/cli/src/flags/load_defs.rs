//! The options of `loadline load` as they are typed. Those of the load itself are declared in the
//! crate of the load generator.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use loadline_record::report::Style;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::{Part, Seed};
use loadline_spec::one_of;
use loadline_spec::values::Count;

pub(crate) const LOAD_EXIT_CODES: &str = "\
Exit codes:
  0    measured
  1    something failed while running, or no response came at all
  2    bad usage: an option, a value, a file, or options that do not fit together
  3    an --assert does not hold (also where the client was the limit)
  5    the client was the limit: the figures say more about it than about the server
  6    responses came and none was good, or a step of the scenario never succeeded
  130  interrupted: what was measured so far is printed, --assert is not judged
  Where several apply: 130 before 1 before 3 before 6 before 5.";

pub(crate) const LOAD_MORE: &str = "\
Examples:
  loadline load http://127.0.0.1:8080/
      64 connections for 10 s; each sends a request when its last response has come
  loadline load http://127.0.0.1:8080/ -c 10000 -d 5s --new-connection --style webbench
      a new connection for each request, in the form that Webbench prints
  loadline load http://127.0.0.1:8080/ --rate 20000 -c 2000 -d 30s
      20,000 requests a second whatever the server does, over 2000 connections
  loadline load http://127.0.0.1:8080/ --steps 100..2500/100 --assert 'p99 < 50ms'
      25 rates, 10 s each; fails if the 99th percentile is too high
  loadline load http://127.0.0.1:8080/ --idle-connections 10000 --slow-readers 200@10KB/s
      healthy clients beside idle and slow ones, reported apart
  loadline load http://127.0.0.1:8080/ --http2 --streams 32
      HTTP/2, 32 requests at a time over each of 64 connections
  loadline load http://127.0.0.1:8080/ --replay access.log --rate 500
      the requests of a log in their order, 500 a second

Signals:
  SIGINT, SIGTERM  stop and print what was measured so far; a second one ends at once";

/// The options of `loadline load`: what the load is, and what becomes of its result.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadFlags {
    #[command(flatten)]
    pub(crate) spec: LoadSpec,

    /// Number of measurements, one after the other; the result has the smallest, the mean and the
    /// largest of each figure.
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Clients")]
    pub(crate) rounds: Count<1, 1000>,

    /// The part of a run that this process has; given by the process that started it.
    #[arg(long, value_name = "I/N", hide = true)]
    pub(crate) part: Option<Part>,

    /// The seed of the whole run; given by the process that started this one.
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub(crate) part_seed: Option<Seed>,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// What is printed and written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// The form of the result: Loadline's own, or another tool's (docs/load-output.md).
    #[arg(long, value_name = "FORM", default_value = "summary",
        value_parser = one_of(&Style::ALL, Style::name))]
    pub(crate) style: Style,

    /// Write the result as JSON (docs/load-json.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// Write a time series as CSV, one row per second.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Write a histogram log in HdrHistogram's format, one interval per second.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hdr: Option<PathBuf>,

    /// A condition that the result has to meet: 'p99 < 50ms', 'errors < 0.1%', 'rate >= 5000'; may
    /// be given several times.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) assert: Vec<String>,

    /// Exit with 0 also if the client was the limit; the result still says so.
    #[arg(long)]
    pub(crate) allow_client_limited: bool,

    /// Print only the result and failures.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
