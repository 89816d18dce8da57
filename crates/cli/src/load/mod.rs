//! `loadline load`: from options to a plan, from a plan to rounds, from rounds to results.
//!
//! ```text
//!   LoadSpec ──resolve──► Planned ──loadline_load::run──► TrialRecord ──outcome──► text, files, exit code
//! ```

mod outcome;
mod progress;

use std::sync::Arc;

use loadline_clients::resolve::{Planned, resolve};
use loadline_clients::scenario::Scenario;
use loadline_load::Share;
use loadline_load::run::{self, Machine, RoundNumber, RunChannel, RunEvent};
use loadline_record::TrialRecord;
use outcome::Outputs;
use progress::Progress;

use crate::failure::Failure;
use crate::flags::load_defs::LoadFlags;
use crate::interrupt;

/// Runs what the flags ask for, and prints what came of it.
pub(crate) fn load(flags: &LoadFlags) -> Result<(), Failure> {
    let mut spec = flags.spec.clone();
    spec.machine.seed = flags.part_seed.or(spec.machine.seed);
    let wanted = outcome::connections(&flags.output.assert, &spec);
    spec.clients.connections = spec.clients.connections.or(wanted);
    let planned = resolve(&spec, &Machine::read())?;
    if !planned.run.cpus.is_empty() {
        loadline_sys::affinity::pin_thread(&planned.run.cpus).map_err(|error| {
            Failure::usage(format!(
                "--cpus: this process cannot have them ({error}); right would be CPUs that it may \
                 run on, as `nproc` counts them from 0"
            ))
        })?;
    }
    if let Some(part) = flags.part {
        let spec = planned.run.thread_spec(Share {
            index: part.index,
            of: part.of,
        });
        interrupt::leave_to_parent()?;
        let steps = || planned.scenario.as_ref().map(Scenario::steps);
        return Ok(run::carry_part(&Arc::new(planned.run.plan), &spec, &steps)?);
    }
    let outputs = Outputs::open(&flags.output)?;
    let mut progress = Progress::new(flags.output.quiet, planned.scenario.clone());
    let records = rounds(flags, &planned, &mut progress)?;
    let steps = planned.scenario.iter().flat_map(Scenario::steps);
    outputs.finish(&records, &steps.collect::<Vec<_>>())
}

/// All rounds, or those up to an interruption.
fn rounds(
    flags: &LoadFlags,
    planned: &Planned,
    progress: &mut Progress,
) -> Result<Vec<TrialRecord>, Failure> {
    let channel = RunChannel::default();
    let sender = channel.sender.clone();
    interrupt::catch(move || sender.send(RunEvent::Interrupted).is_ok())?;
    for sentence in planned.remarks.iter().chain(&planned.run.division.limits) {
        progress.say(sentence);
    }
    let of = flags.rounds.saturating_u32();
    let mut records = Vec::new();
    for index in 0..of {
        if of > 1 {
            progress.say(&format!("round {} of {of}", index + 1));
        }
        let number = RoundNumber { index, of };
        let record = run::run(&planned.run, number, &channel, progress)?;
        let is_interrupted = record.run.interrupted;
        records.push(record);
        if is_interrupted {
            break;
        }
    }
    Ok(records)
}
