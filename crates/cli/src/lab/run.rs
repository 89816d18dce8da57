//! `loadline lab run`.

use std::io::{self, IsTerminal};

use loadline_base::sorting::{to_map, to_set};
use loadline_lab::cells::levels_text;
use loadline_lab::decide::Looks;
use loadline_lab::folded::folded;
use loadline_lab::journal::Trial;
use loadline_lab::progress::ProgressPrinter;
use loadline_lab::runner::{Ending, Prepared, Processes, RunRequest, Runner, Stop, prepare};
use loadline_record::report::number::span_s;

use super::check::check;
use super::{decide, own_capacity};
use crate::failure::{Exit, Failure};
use crate::flags::lab_defs::LabRunFlags;
use crate::interrupt;

/// Columns of a terminal that does not say how wide it is.
const WIDTH_DEFAULT: usize = 80;

/// Runs a plan, or goes on with it.
pub(super) fn run(flags: &LabRunFlags) -> Result<(), Failure> {
    run_plan(flags, false)
}

/// The same with a part of a plan: one of its grids, some of its series.
pub(super) fn run_part(flags: &LabRunFlags) -> Result<(), Failure> {
    run_plan(flags, true)
}

fn run_plan(flags: &LabRunFlags, is_part: bool) -> Result<(), Failure> {
    // Clients with many connections, and servers, inherit it.
    loadline_sys::usage::raise_descriptor_limit();
    let prepared = prepare(&RunRequest {
        plan: flags.plan.clone(),
        out: flags.out.clone(),
        seed: flags.running.seed,
        cpus: loadline_sys::affinity::cpus_allowed(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: typed(),
        now_unix_ms: loadline_sys::clock::unix_ms(),
        is_dry: flags.running.dry_run,
        is_part,
    })
    .map_err(Failure::usage)?;
    check(&prepared)?;
    if flags.running.dry_run {
        return crate::print(description(&prepared).as_bytes());
    }
    let looks = decide::looks(flags, &prepared)?;
    carry_out(flags, prepared, looks.as_ref())
}

fn carry_out(
    flags: &LabRunFlags,
    mut prepared: Prepared,
    looks: Option<&Looks>,
) -> Result<(), Failure> {
    interrupt::catch(interrupt::end)?;
    prepared.begin().map_err(Failure::failed)?;
    let is_quiet = flags.running.quiet;
    let say = |line: &str| {
        if !is_quiet {
            crate::say(line);
        }
    };
    for name in &prepared.head.left_out {
        say(&format!(
            "server {name} is not installed: its cells are left out"
        ));
    }
    if let Some(why) = &prepared.not_testable {
        say(why);
    }
    match own_capacity::measure(&mut prepared, &flags.out, &say) {
        Ok(()) => {}
        Err(Stop::Interrupted) => return finish(flags, Ending::Interrupted),
        Err(Stop::Failed(why)) => return Err(Failure::failed(why)),
    }
    loop {
        let ending = go(flags, &mut prepared, &say)?;
        let is_more = match (looks, ending) {
            (Some(looks), Ending::Complete) => decide::add_blocks(&mut prepared, flags, looks)?,
            _ => false,
        };
        if !is_more {
            return finish(flags, ending);
        }
    }
}

/// Runs what is missing.
fn go(flags: &LabRunFlags, prepared: &mut Prepared, say: &dyn Fn(&str)) -> Result<Ending, Failure> {
    let Prepared {
        plan,
        expansion,
        store: Some(store),
        recorded,
        capacities,
        ..
    } = prepared
    else {
        return Err(Failure::failed("the run has no journal"));
    };
    let (plan, expansion) = (&*plan, &*expansion);
    let mut runner = Runner::new(plan, expansion, store, recorded, capacities);
    if !recorded.is_empty() {
        let (count, all) = (distinct(recorded), expansion.trials.len());
        say(&format!("going on: {count} of {all} trials are recorded"));
    }
    let (count, left) = (expansion.trials.len() - distinct(recorded), runner.left_s());
    say(&format!(
        "{}: {count} trials in {} blocks, about {}",
        plan.name,
        expansion.block_count(),
        span_s(left.round())
    ));
    let mut trial_runner =
        Processes::new(plan, expansion, &flags.out, interrupt::is_over).map_err(Failure::failed)?;
    let stderr: Box<dyn io::Write> = match flags.running.quiet {
        true => Box::new(io::sink()),
        false => Box::new(io::stderr()),
    };
    let mut progress = ProgressPrinter::new(stderr, plan, expansion, terminal_width());
    let ending = runner.run(&mut trial_runner, &mut progress);
    progress.clear();
    ending.map_err(Failure::failed)
}

/// Trials without those that were run again.
fn distinct(recorded: &[Trial]) -> usize {
    to_set(recorded.iter().map(|trial| trial.number)).len()
}

/// What is said at the end, and by the exit code.
fn finish(flags: &LabRunFlags, ending: Ending) -> Result<(), Failure> {
    let out = flags.out.display();
    let why = match ending {
        Ending::Interrupted => {
            let why =
                format!("interrupted: what was recorded is in {out}; the same command goes on");
            return Err(Failure::new(Exit::Interrupted, why));
        }
        Ending::BudgetSpent => "; the budget is spent",
        Ending::Complete => "",
    };
    let recorded = loadline_lab::journal::read(&flags.out).map_err(Failure::failed)?;
    // The last of a number counts; those before it were disturbed.
    let last = to_map(recorded.trials.iter().map(|trial| (trial.number, trial)));
    let discarded = last.values().filter(|it| !it.discarded.is_empty()).count();
    let is_late = |it: &&&Trial| it.discarded.is_empty() && !it.times_discarded.is_empty();
    let late = match last.values().filter(is_late).count() {
        0 => String::new(),
        count => format!(" and {count} in their times alone"),
    };
    let all = last.len();
    let again = match recorded.trials.len() - all {
        0 => String::new(),
        1 => "; 1 was disturbed and run again".to_owned(),
        count => format!("; {count} were disturbed and run again"),
    };
    let recorded = format!(
        "{all} trials are recorded in {out}, {discarded} of them discarded{late}{again}{why}"
    );
    if discarded < all || all == 0 {
        crate::say(&recorded);
        return Ok(());
    }
    let reasons = last.values().filter_map(|it| it.discarded.first());
    let why = format!("{recorded}: {}", most_frequent(reasons));
    Err(Failure::new(Exit::BindOrAssert, why))
}

/// Of sentences that differ in their numbers alone, those that come most often, as one.
fn most_frequent<'r>(reasons: impl Iterator<Item = &'r String>) -> String {
    let folded = folded(reasons.map(String::as_str)).into_iter();
    let most = folded.max_by_key(|one| one.count);
    most.map_or_else(String::new, |one| one.text)
}

/// What would be run.
fn description(prepared: &Prepared) -> String {
    let (plan, expansion) = (&prepared.plan, &prepared.expansion);
    let recorded = |number: u32| prepared.recorded.iter().any(|trial| trial.number == number);
    let trials = expansion.trials.iter().copied();
    let missing: Vec<_> = trials.filter(|trial| !recorded(trial.number)).collect();
    let estimate_s = expansion.estimate_s(plan, &missing, loadline_lab::expand::OVERHEAD_S);
    let mut text = format!(
        "{}: {} cells, {} trials in {} blocks, {} recorded, about {} left\n",
        plan.name,
        expansion.cells.len(),
        expansion.trials.len(),
        expansion.block_count(),
        distinct(&prepared.recorded),
        span_s(estimate_s.round())
    );
    text += &own_capacity::description(prepared);
    for name in &prepared.head.left_out {
        text += &format!("left out: server {name} is not installed\n");
    }
    if let Some(why) = &prepared.not_testable {
        text += &format!("{why}\n");
    }
    text += "number block series levels\n";
    for trial in &missing {
        let cell = expansion.cell(trial);
        text += &format!(
            "{:6} {:5} {}: {}{}\n",
            trial.number,
            trial.block + 1,
            plan.series[cell.series].name,
            levels_text(&cell.levels),
            if trial.is_a_a { " (A/A)" } else { "" }
        );
    }
    text
}

/// The command line, as far as it is text.
fn typed() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn terminal_width() -> Option<usize> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let found = terminal_size::terminal_size_of(io::stderr());
    let width = found.map(|(terminal_size::Width(width), _)| usize::from(width));
    Some(width.unwrap_or(WIDTH_DEFAULT))
}
