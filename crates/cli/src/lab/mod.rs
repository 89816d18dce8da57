//! `loadline lab`: from options to a run of the lab, what is said of it, and its report.

mod advise;
mod capacity;
mod check;
mod decide;
mod link;
mod marks;
mod older_sections;
mod own_capacity;
mod paper;
mod report;
mod results;
mod run;
mod server;

use std::io;

use loadline_lab::runner::guard::{Guarded, guard};

use crate::failure::Failure;
use crate::flags::lab_defs::{GuardFlags, LabCommand};

/// Does what the command says.
pub(crate) fn lab(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Run(flags) => run::run(flags),
        LabCommand::Capacity(flags) => capacity::capacity(flags),
        LabCommand::Report(flags) => report::report(flags),
        LabCommand::Verify(flags) => report::check(flags),
        LabCommand::Paper(flags) => paper::paper(flags),
        LabCommand::Compare(flags) => paper::compare(flags),
        LabCommand::Advise(flags) => advise::advice(flags),
        LabCommand::Results(flags) => results::results(flags),
        LabCommand::Server(flags) => server::server(flags),
        LabCommand::Link(flags) => link::link(flags),
        LabCommand::Relay(flags) => link::carry(flags),
        LabCommand::Guard(flags) => look_after(flags),
    }
}

fn look_after(flags: &GuardFlags) -> Result<(), Failure> {
    let guarded = Guarded {
        cpus: flags.cpus.as_ref().map_or(&[], |list| &list.0),
        log: &flags.log,
        group: flags.group.as_deref(),
        network: flags.network.as_deref(),
        user: flags.user.as_deref(),
        remove: flags.remove.as_deref(),
        command: &flags.command,
    };
    guard(&guarded).map_err(|error: io::Error| Failure::failed(format!("guard: {error}")))
}
