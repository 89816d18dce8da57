//! `loadline load`: from options to a plan, from a plan to rounds, from rounds to results.
//!
//! ```text
//!   flags ──plan──► Planned ──round──► TrialRecord ──outcome──► text, files, exit code
//!                     │                   ▲
//!                     └──team: threads, or processes like this one (--part)
//! ```

mod command;
mod crowds;
mod fitting;
mod interrupt;
mod limits;
mod outcome;
mod pace;
mod plan;
mod progress;
mod requests;
mod round;
mod surroundings;
mod team;

use std::sync::Arc;

use limits::Found;
use loadline_clients::scenario::Scenario;
use loadline_load::Share;
use loadline_load::fleet::Crew;
use loadline_record::TrialRecord;
use outcome::Outputs;
use plan::Planned;
use progress::Progress;
use round::{Ears, RoundNumber};

use crate::failure::Failure;
use crate::flags::load_defs::LoadFlags;

/// Runs what the flags ask for, and prints what came of it.
pub(crate) fn load(flags: &LoadFlags) -> Result<(), Failure> {
    let planned = plan::plan(flags, &Found::look())?;
    if !planned.cpus.is_empty() {
        loadline_sys::affinity::pin_thread(&planned.cpus).map_err(|error| {
            Failure::usage(format!(
                "--cpus: this process cannot have them ({error}); right would be CPUs that it may \
                 run on, as `nproc` counts them from 0"
            ))
        })?;
    }
    if let Some(part) = flags.machine.part {
        let crew = Crew {
            share: Share {
                index: part.index,
                of: part.of,
            },
            engine_threads: planned.division.threads,
            extra: loadline_clients::thread(planned.crowds),
            cpus: planned.cpus,
        };
        return team::carry_part(&Arc::new(planned.plan), &crew, planned.scenario.as_ref());
    }
    let outputs = Outputs::open(&flags.output)?;
    let mut progress = Progress::new(flags.output.quiet);
    let records = rounds(flags, &planned, &mut progress)?;
    let steps = planned.scenario.iter().flat_map(Scenario::steps);
    outputs.finish(&records, &steps.collect::<Vec<_>>())
}

/// Whether the flags make a plan, without carrying it out.
pub(crate) fn check(flags: &LoadFlags) -> Result<(), Failure> {
    plan::plan(flags, &Found::look()).map(drop)
}

/// All rounds, or those up to an interruption.
fn rounds(
    flags: &LoadFlags,
    planned: &Planned,
    progress: &mut Progress,
) -> Result<Vec<TrialRecord>, Failure> {
    let ears = Ears::new();
    interrupt::catch(ears.tell.clone())
        .map_err(|error| Failure::failed(format!("signals: {error}")))?;
    for sentence in planned.remarks.iter().chain(&planned.division.limits) {
        progress.say(sentence);
    }
    let of = u32::try_from(flags.clients.rounds).unwrap_or(u32::MAX);
    let mut records = Vec::new();
    for index in 0..of {
        if of > 1 {
            progress.say(&format!("round {} of {of}", index + 1));
        }
        let number = RoundNumber { index, of };
        let record = round::run(planned, number, &ears, progress)?;
        let is_interrupted = record.run.interrupted;
        records.push(record);
        if is_interrupted {
            break;
        }
    }
    Ok(records)
}
