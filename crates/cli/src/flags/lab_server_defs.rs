//! The options of `loadline lab server` as they are typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

pub(crate) const LAB_SERVER_EXIT_CODES: &str = "\
Exit codes:
  0    printed
  1    its configuration cannot be written
  2    bad usage: an option, a plan, a server that the plan does not have";

pub(crate) const LAB_SERVER_MORE: &str = "\
Examples:
  loadline lab server
      servers of the plan of loadline lab compare: their names, and whether they are installed
  loadline lab server nginx-tuned --port 8080 --root site --dir /tmp/nginx
      writes its configuration into that folder, and prints the command line that starts it";

/// The options of `loadline lab server`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabServerFlags {
    /// Which [default: all, without the folders that one needs].
    #[arg(value_name = "NAME", requires_all = ["root", "dir"])]
    pub(crate) name: Option<String>,

    /// The port of 127.0.0.1 that it is to listen on.
    #[arg(long, value_name = "NUMBER", default_value = "8080",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// The folder that it is to serve.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    /// A folder of its own, for its configuration and whatever else it writes.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// What will be asked for: bare loops know one answer.
    #[arg(long, value_name = "PATH", default_value = "/index.html")]
    pub(crate) path: String,

    /// How many CPUs it may use.
    #[arg(long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cpu_count: u16,

    /// The plan [default: that of loadline lab compare].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plan: Option<PathBuf>,
}
