//! The capacities that rates of a plan are multiples of: measured and printed before the first block.

use std::path::Path;

use loadline_lab::cells::{Cell, levels_text};
use loadline_lab::expand::OVERHEAD_S;
use loadline_lab::journal::Trial;
use loadline_lab::runner::{OwnCapacities, Prepared, Processes, Stop};
use loadline_record::report::number::{rate, span_s};

use crate::interrupt;

/// Measures what is missing, and gives the cells of the run their rates.
pub(super) fn measure(prepared: &mut Prepared, out: &Path, say: &dyn Fn(&str)) -> Result<(), Stop> {
    let Some(own) = OwnCapacities::of(&prepared.expansion, prepared.head.seed) else {
        return Ok(());
    };
    let left_s = own.left_s(&prepared.plan, &prepared.capacities, OVERHEAD_S);
    if left_s > 0.0
        && let Some(store) = &mut prepared.store
    {
        say(&format!(
            "{} own capacities are measured first, about {}",
            own.expansion.cells.len(),
            span_s(left_s.round())
        ));
        let trial_runner = Processes::new(&prepared.plan, &own.expansion, out, interrupt::is_over);
        let mut trial_runner = trial_runner.map_err(Stop::Failed)?;
        own.measure(
            &mut trial_runner,
            store,
            &mut prepared.capacities,
            &mut |cell, trial, per_s| say(&line(cell, trial, per_s)),
        )?;
    }
    for (index, cell) in own.expansion.cells.iter().enumerate() {
        if let Some(per_s) = own.capacity(index, &prepared.capacities) {
            let levels = levels_text(&cell.levels);
            say(&format!("capacity of {levels}: {}/s", rate(per_s)));
        }
    }
    own.set_rates(&mut prepared.expansion, &prepared.capacities);
    Ok(())
}

/// What would be measured first; empty: nothing.
pub(super) fn description(prepared: &Prepared) -> String {
    let Some(own) = OwnCapacities::of(&prepared.expansion, prepared.head.seed) else {
        return String::new();
    };
    let left_s = own.left_s(&prepared.plan, &prepared.capacities, OVERHEAD_S);
    format!(
        "own capacities: {}, about {} left, measured first\n",
        own.expansion.cells.len(),
        span_s(left_s.round())
    )
}

/// What a trial has carried, if it counts.
fn line(cell: &Cell, trial: &Trial, per_s: Option<f64>) -> String {
    let levels = levels_text(&cell.levels);
    let what = match per_s {
        Some(per_s) if trial.client_limited => {
            format!("at least {}/s, the client was at its end", rate(per_s))
        }
        Some(per_s) => format!("{}/s", rate(per_s)),
        None => format!("discarded: {}", trial.discarded.join(" ")),
    };
    format!("closed loop of {levels}: {what}")
}
