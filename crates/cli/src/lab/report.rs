//! `loadline lab report` and `loadline lab verify`: a run's journal in, files out.

use std::fs;
use std::path::Path;

use loadline_lab::analysis::Run;
use loadline_lab::plan::Plan;
use loadline_lab::report::export;
use loadline_lab::report::page::page;
use loadline_lab::report::{REPORT, Report, svg};
use loadline_lab::verify::verify;
use loadline_papers::claims::judged;

use crate::failure::Failure;
use crate::files::replace;
use crate::flags::lab_report_defs::{LabReportFlags, LabVerifyFlags};
use crate::print;

/// Writes the report and whatever else was asked for.
pub(super) fn report(flags: &LabReportFlags) -> Result<(), Failure> {
    let (run, report) = derived(&flags.run)?;
    let path = flags.output.clone();
    let path = path.unwrap_or_else(|| flags.run.join(REPORT));
    replace(&path, &page(&report).map_err(Failure::failed)?)?;
    let mut said = format!("{}\nreport: {}\n", report.answer, path.display());
    if let Some(folder) = &flags.figures {
        fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
        for figure in &report.figures {
            let picture = folder.join(format!("{}.svg", figure.id));
            replace(&picture, &svg::draw(figure))?;
        }
        let count = report.figures.len();
        said += &format!("figures: {count} in {}\n", folder.display());
    }
    if let Some(path) = &flags.csv {
        replace(path, &export::trials_csv(&run))?;
        said += &format!("trials: {}\n", path.display());
    }
    if let Some(path) = &flags.json {
        replace(path, &export::json(&report).map_err(Failure::failed)?)?;
        said += &format!("data: {}\n", path.display());
    }
    for why in &report.left_out {
        said += &format!("left out: {why}\n");
    }
    print(said.as_bytes())
}

/// Derives the report again and says whether it is the same.
pub(super) fn check(flags: &LabVerifyFlags) -> Result<(), Failure> {
    let (_, report) = derived(&flags.run)?;
    let path = flags.report.clone();
    let path = path.unwrap_or_else(|| flags.run.join(REPORT));
    let outcome = verify(&flags.run, &path, &report).map_err(Failure::usage)?;
    let mut said = String::new();
    for text in &outcome.unchecked {
        said += &format!("not checked: {text}\n");
    }
    for text in &outcome.differences {
        said += &format!("differs: {text}\n");
    }
    said += &format!(
        "{} trials with {} latencies against their logs, {} numbers of {}\n",
        outcome.trials,
        outcome.latencies,
        outcome.numbers,
        path.display()
    );
    print(said.as_bytes())?;
    match outcome.differences.len() {
        0 => print(b"everything is the same\n"),
        count => Err(Failure::failed(format!(
            "{count} of what {} says is not what the raw files say",
            path.display()
        ))),
    }
}

pub(super) fn derived(folder: &Path) -> Result<(Run, Report), Failure> {
    let run = Run::read(folder).map_err(Failure::usage)?;
    let report = report_of(&run, folder);
    Ok((run, report))
}

/// What the plan of a run names beside it is in `folder`.
pub(super) fn report_of(run: &Run, folder: &Path) -> Report {
    // A plan of another version may have what this one cannot read: then what varies decides.
    let plan = Plan::parse(&run.head.plan_toml, &run.head.name, folder);
    let charts = plan.map(|plan| plan.charts).unwrap_or_default();
    Report::new(run, &charts, judged(run))
}
