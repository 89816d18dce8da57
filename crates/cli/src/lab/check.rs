//! Whether the options that a plan sets fit together on this machine: said before the first trial, not by
//! the first trial that fails.

use std::collections::{BTreeMap, BTreeSet};

use loadline_clients::resolve::resolve;
use loadline_lab::cells::{Cell, levels_text};
use loadline_lab::plan::{ServerSpec, in_place};
use loadline_lab::runner::Prepared;
use loadline_load::run;
use loadline_spec::load::LoadSpec;
use loadline_spec::load::values::Rate;
use loadline_spec::serve::Listen;
use loadline_spec::values::RunTime;
use loadline_spec::{SpecError, given};

use crate::failure::Failure;
use crate::flags::high::{Machine, plan};

/// A rate for a load whose own follows from a capacity that is not measured yet.
const ANY_RATE: f64 = 1000.0;

/// Resolves the load and the server of each cell; each different one once.
pub(super) fn check(prepared: &Prepared) -> Result<(), Failure> {
    let (machine, load_machine) = (Machine::find(), run::Machine::read());
    let names = placeholders(prepared);
    let (mut loads, mut servers) = (BTreeSet::new(), BTreeSet::new());
    for cell in &prepared.expansion.cells {
        let named = |failure: Failure| {
            let series = &prepared.plan.series[cell.series].name;
            let levels = levels_text(&cell.levels);
            Failure::usage(format!("series {series}: {levels}: {}", failure.message))
        };
        let load = load_of(prepared, cell, &names).map_err(|error| named(error.into()))?;
        if loads.insert(given(&load)) {
            resolve(&load, &load_machine).map_err(|error| named(error.into()))?;
        }
        if let ServerSpec::Loadline(serve) = &cell.serve {
            let mut serve = in_place(&**serve, &names).map_err(|error| named(error.into()))?;
            if serve.tls.has_certificate() {
                serve.listen = vec![Listen::Https(([127, 0, 0, 1], 1).into())];
            }
            if servers.insert(given(&serve)) {
                plan(serve, &machine).map_err(named)?;
            }
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
    let mut load = in_place(&cell.load, names)?;
    load.url = vec![format!("{}://127.0.0.1:1{}", cell.scheme(), cell.path).into()];
    let duration_s = prepared.plan.series[cell.series].duration_s;
    load.clients.duration = Some(RunTime::clamped_s(duration_s));
    if cell.rate_of_capacity.is_some() {
        load.pace.rate = Some(Rate::clamped(ANY_RATE));
    }
    Ok(load)
}

/// Something that could be there in the place of each placeholder.
fn placeholders(prepared: &Prepared) -> BTreeMap<String, String> {
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
