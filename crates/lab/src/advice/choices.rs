//! Which factors of a series are what a user can choose, and which are the workload that a user has.

use std::collections::BTreeSet;
use std::path::Path;

use crate::analysis::Run;
use crate::plan::{Factor, FactorLevel, Plan};

/// Options of the server that stand for what its handlers do: a workload, made up.
const WORK: [&str; 2] = ["service-time", "service-kind"];

/// The factors of a series that are choices: the server, and whatever sets options of it.
///
/// # Errors
/// One line: the plan of the run cannot be read.
pub(super) fn choices_of(run: &Run, series: &str) -> Result<BTreeSet<String>, String> {
    let plan = Plan::parse(&run.head.plan_toml, &run.head.name, Path::new("."))
        .map_err(|why| format!("the plan of the run cannot be read by this version: {why}"))?;
    let mut choices = BTreeSet::from(["server".to_owned()]);
    for of_plan in plan.series.iter().filter(|one| one.name == series) {
        let chosen = of_plan.factors.iter().filter(|factor| is_choice(factor));
        choices.extend(chosen.map(|factor| factor.name.clone()));
    }
    Ok(choices)
}

fn is_choice(factor: &Factor) -> bool {
    let of_server = |level: &FactorLevel| {
        let mut options = level.sets.serve.keys();
        level.sets.server.is_some() || options.any(|name| !WORK.contains(&name.as_str()))
    };
    factor.levels.iter().any(of_server)
}
