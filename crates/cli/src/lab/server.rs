//! `loadline lab server`: how servers of a plan are started, for those who start them themselves.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_lab::plan::Plan;
use loadline_lab::runner::{Where, starts};
use loadline_papers::Grid;
use loadline_papers::compare;

use crate::failure::Failure;
use crate::flags::lab_server_defs::LabServerFlags;

/// Prints one of them, or the names of all.
pub(super) fn server(flags: &LabServerFlags) -> Result<(), Failure> {
    let plan = plan(flags)?;
    let place = Where {
        port: flags.port,
        root: absolute(flags.root.as_deref())?,
        folder: absolute(flags.dir.as_deref())?,
        path: flags.path.clone(),
        cpu_count: usize::from(flags.cpu_count),
    };
    let all = starts(&plan, &place).map_err(Failure::usage)?;
    let Some(name) = &flags.name else {
        let all: Vec<_> = all
            .iter()
            .map(|it| serde_json::json!({ "name": it.name, "is_installed": it.is_installed }))
            .collect();
        return print(&all.into());
    };
    let Some(start) = all.iter().find(|it| it.name == *name) else {
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "{}: no such server; right would be one of {}",
            name.escape_debug(),
            names.join(", ")
        )));
    };
    if let Some(text) = &start.configuration {
        let path = &start.configuration_file;
        fs::write(path, text).map_err(|error| Failure::file(path, error))?;
    }
    let start = serde_json::to_value(start);
    print(&start.map_err(|error| Failure::failed(format!("server: {error}")))?)
}

fn plan(flags: &LabServerFlags) -> Result<Plan, Failure> {
    if let Some(path) = &flags.plan {
        return Plan::read(path).map_err(Failure::usage);
    }
    let text = Grid::default().plan_text(&compare::plan(), "compare");
    let text = text.map_err(Failure::usage)?;
    Plan::parse(&text, "compare", Path::new(".")).map_err(Failure::usage)
}

/// Servers are started elsewhere.
fn absolute(folder: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(folder) = folder else {
        return Ok(PathBuf::new());
    };
    fs::canonicalize(folder)
        .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))
}

fn print(what: &serde_json::Value) -> Result<(), Failure> {
    crate::print(format!("{what:#}\n").as_bytes())
}
