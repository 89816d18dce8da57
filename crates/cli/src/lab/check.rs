//! Whether the options that a plan sets are ones that `loadline serve` and `loadline load` take, and fit
//! together: checked before the first trial, not by the first trial that fails.

use std::collections::{BTreeMap, BTreeSet};

use loadline_clients::resolve::resolve;
use loadline_lab::cells::{Cell, levels_text, load_in_place};
use loadline_lab::plan::{ServerKind, filled};
use loadline_lab::runner::Prepared;
use loadline_load::run;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Rate;
use loadline_spec::values::RunTime;
use loadline_spec::{SpecError, Table, fill};

use crate::failure::Failure;
use crate::flags::defs::ServeSpec;
use crate::flags::high::{Machine, plan};

/// A rate for a load whose own follows from a capacity that is not measured yet.
const ANY_RATE: f64 = 1000.0;

/// Resolves the load and the server of each cell; each different one once.
pub(super) fn check(prepared: &Prepared) -> Result<(), Failure> {
    let (machine, load_machine) = (Machine::find(), run::Machine::read());
    let names = in_place(prepared);
    let (mut loads, mut servers) = (BTreeSet::new(), BTreeSet::new());
    for cell in &prepared.expansion.cells {
        let named = |failure: Failure| {
            Failure::usage(format!(
                "series {}: {}: {}",
                prepared.plan.series[cell.series].name,
                levels_text(&cell.levels),
                failure.message
            ))
        };
        let load = load_of(prepared, cell, &names).map_err(|error| named(error.into()))?;
        if loads.insert(loadline_spec::given(&load)) {
            resolve(&load, &load_machine).map_err(|error| named(error.into()))?;
        }
        let is_loadline = prepared.plan.servers[&cell.server].kind == ServerKind::Loadline;
        let serve = filled(&cell.serve, &names);
        if is_loadline && servers.insert(serve.clone()) {
            check_server(&serve, &machine).map_err(named)?;
        }
    }
    Ok(())
}

/// The load of a cell, as its trials will have it.
fn load_of(
    prepared: &Prepared,
    cell: &Cell,
    names: &BTreeMap<String, String>,
) -> Result<LoadSpec, SpecError> {
    let mut load = load_in_place(&cell.load, names)?;
    load.url = vec![format!("http://127.0.0.1:1{}", cell.path)];
    let duration_s = prepared.plan.series[cell.series].duration_s;
    load.clients.duration = Some(RunTime::clamped_s(duration_s));
    if cell.rate_of_capacity.is_some() {
        load.pace.rate = Some(Rate::clamped(ANY_RATE));
    }
    Ok(load)
}

fn check_server(serve: &Table, machine: &Machine) -> Result<(), Failure> {
    let spec: ServeSpec = fill(serve)?;
    plan(spec, machine).map(drop)
}

/// Something that could be there in the place of each placeholder.
fn in_place(prepared: &Prepared) -> BTreeMap<String, String> {
    let folder = prepared.plan.folder.display().to_string();
    [
        ("{plan}", folder.as_str()),
        ("{root}", "."),
        ("{path}", "/"),
        ("{dir}", "."),
        ("{host}", "127.0.0.1"),
        ("{port}", "1"),
        ("{mariadb}", "mysql://root@localhost/lab"),
        ("{postgresql}", "postgres://root@localhost/lab"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}
