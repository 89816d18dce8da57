//! `loadline lab paper` and `loadline lab compare`: runs of plans that Loadline brings with it.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_lab::analysis::Run;
use loadline_lab::compare;
use loadline_lab::papers::{Grid, Paper};

use super::{report, run};
use crate::failure::Failure;
use crate::flags::lab_defs::LabRunFlags;
use crate::flags::lab_paper_defs::{LabCompareFlags, LabGridFlags, LabPaperFlags};
use crate::flags::lab_report_defs::LabReportFlags;

/// Runs a paper's experiment, or goes on with it.
pub(super) fn paper(flags: &LabPaperFlags) -> Result<(), Failure> {
    let paper = Paper::named(&flags.paper).map_err(Failure::usage)?;
    let Some(out) = run_plan((paper.name, paper.text), paper.files, &flags.grid)? else {
        return Ok(());
    };
    paper.write_forms(&out).map_err(Failure::failed)?;
    write_report(out)
}

/// Compares servers, or goes on with it.
pub(super) fn compare(flags: &LabCompareFlags) -> Result<(), Failure> {
    let Some(out) = run_plan(("compare", compare::PLAN), &[], &flags.grid)? else {
        return Ok(());
    };
    let run = Run::read(&out).map_err(Failure::failed)?;
    crate::print(compare::table(&run).as_bytes())?;
    write_report(out)
}

fn write_report(run: PathBuf) -> Result<(), Failure> {
    report::report(&LabReportFlags {
        run,
        output: None,
        figures: None,
        csv: None,
        json: None,
    })
}

/// Runs the grid of a plan, with files that it names beside it. The folder of the run; `None` where
/// nothing was run.
fn run_plan(
    (name, text): (&str, &str),
    files: &[(&str, &str)],
    flags: &LabGridFlags,
) -> Result<Option<PathBuf>, Failure> {
    let text = grid(flags).plan_text(text, name).map_err(Failure::usage)?;
    if flags.show {
        crate::print(text.as_bytes())?;
        return Ok(None);
    }
    let out = flags.out.clone().unwrap_or_else(|| {
        let suffix = if flags.full { "-full" } else { "" };
        Path::new("runs").join(format!("{name}{suffix}"))
    });
    // A dry run leaves nothing behind.
    let folder = match flags.dry_run {
        false => out.clone(),
        true => std::env::temp_dir().join(format!("loadline-{}", std::process::id())),
    };
    let plan = folder.join(format!("{name}.toml"));
    let fail = |error: std::io::Error| Failure::failed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(fail)?;
    fs::write(&plan, text).map_err(fail)?;
    for (name, text) in files {
        fs::write(folder.join(name), text).map_err(fail)?;
    }
    let ran = run::run(&LabRunFlags {
        plan: plan.clone(),
        out: out.clone(),
        seed: flags.seed,
        dry_run: flags.dry_run,
        quiet: flags.quiet,
    });
    if flags.dry_run {
        fs::remove_dir_all(&folder).map_err(fail)?;
    }
    ran?;
    Ok((!flags.dry_run).then_some(out))
}

fn grid(flags: &LabGridFlags) -> Grid {
    Grid {
        full: flags.full,
        only: flags.only.clone(),
        duration_s: flags.seconds,
        replicates: flags.replicates,
    }
}
