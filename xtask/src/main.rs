//! Chores of this repository: `cargo run -p xtask -- VERB`. The script `x` calls it; see there for
//! the verbs that people type.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

mod checks;
mod programs;
mod steps;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- VERB

  check    format, lints, house rules
  test     [--all] [FILTER...]: all of it and every test but those that take long, or with FILTERs
           the tests whose names contain one; --all has those that take long, too
  fuzz     [TARGET] [SECONDS]: fuzz targets for longer
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("check") => checks::check(&root()),
        Some("test") => checks::test(&root(), &arguments[1..]),
        Some("fuzz") => checks::fuzz(&root(), &arguments[1..]),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the repository.
fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
