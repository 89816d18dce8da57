//! Which factors of a series are what a user can choose, and which are the workload that a user has;
//! and which servers that nobody would use.

use std::collections::BTreeSet;
use std::path::Path;

use loadline_base::sorting::to_set;

use crate::analysis::Run;
use crate::plan::{Factor, FactorLevel, Plan, PlanError};

/// Options of the server that stand for what its handlers do: a workload, made up.
const WORK: [&str; 2] = ["service-time", "service-kind"];

/// What the plan of a run says of a series.
pub(super) struct Known {
    /// The factors that are choices: the server, and whatever sets options of it.
    pub(super) choices: BTreeSet<String>,
    /// Servers that are there for comparison alone.
    pub(super) references: BTreeSet<String>,
}

/// Reads it.
///
/// # Errors
/// The plan of the run cannot be read.
pub(super) fn known(run: &Run, series: &str) -> Result<Known, PlanError> {
    let plan = Plan::parse(&run.head.plan_toml, &run.head.name, Path::new("."))?;
    let mut choices = to_set(["server".to_owned()]);
    for of_plan in plan.series.iter().filter(|one| one.name == series) {
        let chosen = of_plan.factors.iter().filter(|factor| is_choice(factor));
        choices.extend(chosen.map(|factor| factor.name.clone()));
    }
    let references = plan.servers.into_values().filter(|it| it.is_reference);
    Ok(Known {
        choices,
        references: to_set(references.map(|server| server.name)),
    })
}

fn is_choice(factor: &Factor) -> bool {
    let of_server = |level: &FactorLevel| {
        let mut options = level.sets.serve.keys();
        level.sets.server.is_some() || options.any(|name| !WORK.contains(&name.as_str()))
    };
    factor.levels.iter().any(of_server)
}
