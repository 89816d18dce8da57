//! The options of `loadline lab capacity` as they are typed. What they mean is in `capacity.rs`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use loadline_lab::link::LinkSpec;
use loadline_lab::plan::check_cpu_quota;
use loadline_spec::ValueError;
use loadline_spec::load::CLIENTS_MAX;
use loadline_spec::load::values::{Cpus, Pid, Rate};
use loadline_spec::values::{Count, RunTime, SomeTime};

pub(crate) const CAPACITY_MORE: &str = "\
Examples:
  loadline lab capacity --slo 'p99 < 50ms, errors < 0.1%' http://127.0.0.1:8080/
      the highest rate that a running server holds
  loadline lab capacity --slo 'p99.9 < 20ms, errors < 0.1%' --server-pid 4711 -c 2000 http://127.0.0.1:8080/
      the same with 2000 connections, and what limits the server
  loadline lab capacity --slo 'p99 < 50ms, errors < 0.1%' -- loadline serve {root} --listen 127.0.0.1:{port}
      a fresh server for each trial, on CPUs of its own where there are several

Without a condition on errors, a server that refuses quickly (503) would pass.

Exit codes:
  0    an interval as narrow as wanted was found
  1    something failed while running
  2    bad usage: an option, a value, a file, or options that do not fit together
  3    no rate holds the SLO
  4    the budget was too small: the result says what is known
  5    the client, or --to, was the limit: the capacity is at least what the result says
  130  interrupted: the result has what was found so far";

fn cpu_quota(text: &str) -> Result<f64, ValueError> {
    let cpus: f64 = text
        .parse()
        .map_err(|_| ValueError::from("right would be a number of CPUs: 0.4 for 40 % of one"))?;
    check_cpu_quota(cpus)
}

/// The options of `loadline lab capacity`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CapacityFlags {
    /// Where requests go, if the server runs already: http://HOST[:PORT]/PATH, or https.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,

    /// Command that starts a server, a fresh one for each trial, with {port}, {host} and {root}.
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<String>,

    /// Conditions as for --assert of loadline load, separated by commas: 'p99 < 50ms, errors <
    /// 0.1%'.
    #[arg(long, value_name = "CONDITIONS")]
    pub(crate) slo: String,

    /// Time for the whole search.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) budget: RunTime,

    /// The first rate; auto is a tenth to a third of what the server carries in a second of a closed loop
    /// [default: auto].
    #[arg(long, value_name = "RATE")]
    pub(crate) from: Option<Rate>,

    /// The highest rate to try.
    #[arg(long, value_name = "RATE", default_value = "1M")]
    pub(crate) to: Rate,

    /// Length of a trial near the capacity.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) trial: RunTime,

    /// Length of a trial while the search is still far from the capacity.
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub(crate) sweep: RunTime,

    /// Load before each trial, not counted; half as long before a trial of --sweep.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) warm_up: SomeTime,

    /// Connections: the bound of requests in flight.
    #[arg(short, long, value_name = "N", default_value = "256")]
    pub(crate) connections: Count<1, CLIENTS_MAX>,

    /// Watch the server's process and its children, to find what limits it (with a URL).
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<Pid>,

    /// The folder that {root} stands for (with a command) [default: one with a page of 1 KiB].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    /// The path of requests (with a command) [default: /].
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// CPUs of the server (with a command) [default: half of them, where there are several].
    #[arg(long, value_name = "LIST")]
    pub(crate) server_cpus: Option<Cpus>,

    /// CPU time that the server may use, in CPUs: 0.4 for 40 % of one (with a command; needs a control
    /// group, so usually root). On a small machine it makes the server the limit, not the client.
    #[arg(long, value_name = "CPUS", value_parser = cpu_quota)]
    pub(crate) cpu_quota: Option<f64>,

    /// Run server and client in network namespaces of their own, joined by a veth pair; the
    /// server has to listen on {host} (with a command; needs root and the program ip).
    #[arg(long)]
    pub(crate) namespaces: bool,

    /// Join server and client by a slow network (docs/links.md): satellite, or
    /// delay=75ms,bandwidth=2Mbit,loss=1%; the server has to listen on {host} (with a command).
    #[arg(long, value_name = "LINK", conflicts_with = "namespaces")]
    pub(crate) link: Option<LinkSpec>,

    /// CPUs of the client: 1 or 0,2-3 [default: with a command the other half].
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<Cpus>,

    /// A further option of loadline load, in one word: --load=--new-connection; may be given several
    /// times.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) load: Vec<String>,

    /// Seed of the times at which requests are due [default: a new one each time].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Write the result with every trial as JSON (docs/capacity.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// The --json of an earlier search with the same SLO and server, to show how much searches at
    /// different times differ; may be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) again: Vec<PathBuf>,

    /// Print only the result.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
