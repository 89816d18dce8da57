//! Whether the options that a plan sets are ones that `loadline serve` and `loadline load` take, and fit
//! together: told before the first trial, not by the first trial that fails.

use std::collections::BTreeSet;
use std::ffi::OsString;

use loadline_lab::cells::{Cell, levels_text};
use loadline_lab::plan::{ServerKind, words};
use loadline_lab::runner::Prepared;

use crate::failure::Failure;
use crate::flags::defs::Command;
use crate::flags::high::{Machine, plan};
use crate::flags::{self, Typed};

/// Reads each command line as it would be typed; each different one once.
pub(super) fn check(prepared: &Prepared) -> Result<(), Failure> {
    let machine = Machine::find();
    let mut known = BTreeSet::new();
    for cell in &prepared.expansion.cells {
        let mut lines = vec![load_line(prepared, cell)];
        if prepared.plan.servers[&cell.server].kind == ServerKind::Loadline {
            lines.push(serve_line(prepared, cell));
        }
        for line in lines {
            if !known.insert(line.clone()) {
                continue;
            }
            check_line(line, &machine).map_err(|failure| {
                Failure::usage(format!(
                    "series {}: {}: {}",
                    prepared.plan.series[cell.series].name,
                    levels_text(&cell.levels),
                    failure.message
                ))
            })?;
        }
    }
    Ok(())
}

fn check_line(line: Vec<String>, machine: &Machine) -> Result<(), Failure> {
    let line = line.into_iter().map(OsString::from);
    match flags::read(line)? {
        Typed::Command(Command::Serve(flags)) => plan(*flags, machine).map(drop),
        Typed::Command(Command::Load(flags)) => crate::load::check(&flags),
        Typed::Command(_) | Typed::Print(_) => Err(Failure::usage(
            "help and version are nothing to measure; right would be options",
        )),
    }
}

fn serve_line(prepared: &Prepared, cell: &Cell) -> Vec<String> {
    line(prepared, &["serve", "."], words(&cell.serve))
}

fn load_line(prepared: &Prepared, cell: &Cell) -> Vec<String> {
    let series = &prepared.plan.series[cell.series];
    let duration = format!("--duration={}s", series.duration_s);
    let url = format!("http://127.0.0.1:1{}", cell.path);
    let mut options = words(&cell.load);
    // Its rate is not known yet: one that something is due at, in the shortest of trials.
    options.extend(cell.rate_of_capacity.map(|_| "--rate=1000".to_owned()));
    line(prepared, &["load", &url, &duration], options)
}

/// With something that could be there in the place of placeholders.
fn line(prepared: &Prepared, first: &[&str], options: Vec<String>) -> Vec<String> {
    let folder = prepared.plan.folder.display().to_string();
    let filled = |word: String| {
        word.replace("{plan}", &folder)
            .replace("{root}", ".")
            .replace("{path}", "/")
            .replace("{dir}", ".")
            .replace("{host}", "127.0.0.1")
            .replace("{port}", "1")
            .replace("{mariadb}", "mysql://root@localhost/lab")
            .replace("{postgresql}", "postgres://root@localhost/lab")
    };
    std::iter::once("loadline")
        .chain(first.iter().copied())
        .map(str::to_owned)
        .chain(options.into_iter().map(filled))
        .collect()
}
