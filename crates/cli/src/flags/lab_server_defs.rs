//! The options of `loadline lab server` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_SERVER_MORE: &str = "\
Examples:
  loadline lab server
      the servers of loadline lab compare: their names, and whether they are installed
  loadline lab server nginx-tuned --port 8080 --root site --dir /tmp/nginx
      writes its configuration into that folder, and prints the command line that starts it

Exit codes:
  0    printed
  1    its configuration cannot be written
  2    bad usage: an option, a plan, a server that the plan does not have";

/// The options of `loadline lab server`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabServerFlags {
    /// The server, with --root and --dir [default: list all servers].
    #[arg(value_name = "NAME", requires_all = ["root", "dir"])]
    pub(crate) name: Option<String>,

    /// The port of 127.0.0.1 to listen on.
    #[arg(long, value_name = "NUMBER", default_value = "8080",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// The folder to serve.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    /// A folder for its configuration and everything else that it writes.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// The path that will be requested: bare loops have one response.
    #[arg(long, value_name = "PATH", default_value = "/index.html")]
    pub(crate) path: String,

    /// Number of CPUs that it may use.
    #[arg(long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cpu_count: u16,

    /// The plan with the servers [default: lab/compare.toml].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,
}
