//! `loadline lab paper` and `loadline lab compare`: runs of plans that Loadline brings with it.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_lab::plan::Plan;
use loadline_lab::report::{Figure, Report};
use loadline_lab::runner::check_quota;
use loadline_papers::compare;
use loadline_papers::{Grid, Paper};

use super::marks::{Marks, relative};
use super::report::derived;
use super::{report, run};
use crate::failure::Failure;
use crate::files::replace;
use crate::flags::lab_defs::LabRunFlags;
use crate::flags::lab_paper_defs::{LabCompareFlags, LabGridFlags, LabPaperFlags};
use crate::flags::lab_report_defs::LabReportFlags;

/// No paper's plan gives a server less of a CPU.
const QUOTA_SMALLEST: f64 = 0.3;

/// Runs a paper's experiment, or goes on with it.
pub(super) fn paper(flags: &LabPaperFlags) -> Result<(), Failure> {
    let paper = Paper::named(&flags.paper).map_err(Failure::usage)?;
    let text = paper.text();
    let plan = (paper.name, text.as_str());
    let Some(out) = run_plan(plan, paper.files, (&flags.grid, paper_grid(paper, flags)))? else {
        return Ok(());
    };
    paper.write_forms(&out).map_err(Failure::failed)?;
    write_report(out, None)
}

/// Compares servers, or goes on with it.
pub(super) fn compare(flags: &LabCompareFlags) -> Result<(), Failure> {
    if let (Some(_), Some(readme)) = (&flags.plan, &flags.readme) {
        return Err(Failure::usage(format!(
            "--readme {}: its table is of lab/compare.toml; right would be --page, or no --plan",
            readme.display()
        )));
    }
    let (name, text) = match &flags.plan {
        Some(path) => named_plan(path)?,
        None => ("compare".to_owned(), compare::plan()),
    };
    // What files have before and behind the tables.
    let begin = match &flags.plan {
        Some(_) => format!("<!-- ./x bench {name} --publish -->"),
        None => "<!-- ./x bench servers --publish -->".to_owned(),
    };
    let marks = Marks {
        begin: &begin,
        end: "<!-- end of what it writes -->",
    };
    let places = [("--page", &flags.page), ("--readme", &flags.readme)];
    for (option, file) in places {
        // Checked before the run, not after it.
        file.as_ref()
            .map_or(Ok(()), |file| marks.check(option, file))?;
    }
    let Some(out) = run_plan((&name, &text), &[], (&flags.grid, grid(&flags.grid)))? else {
        return Ok(());
    };
    let (run, report) = derived(&out)?;
    let loads = compare::loads(&run);
    crate::print(compare::text(&loads, &compare::goals(&run)).as_bytes())?;
    let page = compare::page(&run, &report, &loads);
    let markdown = out.join("compare.md");
    replace(&markdown, &format!("# {}\n\n{page}", report.title))?;
    let json = out.join("compare.json");
    replace(
        &json,
        &compare::json(&run, &report).map_err(Failure::failed)?,
    )?;
    let mut said = format!(
        "\ntables: {}\nfigures: {}\n",
        markdown.display(),
        json.display()
    );
    if let Some(file) = &flags.page {
        let charts = flags
            .figures
            .as_deref()
            .map(|folder| charts(file, folder, &report));
        let page = charts.unwrap_or_default() + page.trim_end();
        marks.insert("--page", file, &page)?;
        said += &format!("page: {}\n", file.display());
    }
    if let Some(file) = &flags.readme {
        let mut summary = compare::summary(&run, &report, &loads);
        if let Some(page) = &flags.page {
            summary += &format!(" [All figures]({}).", relative(file, page));
        }
        marks.insert("--readme", file, &summary)?;
        said += &format!("summary: {}\n", file.display());
    }
    crate::print(said.as_bytes())?;
    write_report(out, flags.figures.clone())
}

/// The pictures of a report, as a page shows them; `folder` is where the report writes them.
fn charts(page: &Path, folder: &Path, report: &Report) -> String {
    let folder = relative(page, folder);
    let picture = |figure: &Figure| {
        let (title, id, finding) = (&figure.title, &figure.id, &figure.finding);
        format!("![{title}]({folder}/{id}.svg)\n\n{finding}\n\n")
    };
    report.figures.iter().map(picture).collect()
}

/// The name and the text of a plan file. It is run from another folder, so `{plan}` is filled in.
fn named_plan(path: &Path) -> Result<(String, String), Failure> {
    let shown = path.display().to_string();
    let fail = |error: std::io::Error| Failure::usage(format!("{shown}: {error}"));
    let text = fs::read_to_string(path).map_err(fail)?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let folder = fs::canonicalize(folder.join(".")).map_err(fail)?;
    let plain = Grid::default().plan_text(&text, &shown);
    let plan = Plan::parse(&plain.map_err(Failure::usage)?, &shown, &folder);
    let name = plan.map_err(Failure::usage)?.name;
    Ok((name, text.replace("{plan}", &folder.display().to_string())))
}

fn write_report(run: PathBuf, figures: Option<PathBuf>) -> Result<(), Failure> {
    report::report(&LabReportFlags {
        run,
        output: None,
        figures,
        csv: None,
        json: None,
    })
}

/// Runs the grid of a plan, with files that it names beside it. The folder of the run; `None` where
/// nothing was run.
fn run_plan(
    (name, text): (&str, &str),
    files: &[(&str, &str)],
    (flags, grid): (&LabGridFlags, Grid),
) -> Result<Option<PathBuf>, Failure> {
    let text = grid.plan_text(text, name).map_err(Failure::usage)?;
    if flags.show {
        crate::print(text.as_bytes())?;
        return Ok(None);
    }
    let out = flags.out.clone().unwrap_or_else(|| {
        let suffix = if flags.full { "-full" } else { "" };
        Path::new("runs").join(format!("{name}{suffix}"))
    });
    // A dry run leaves nothing behind.
    let folder = match flags.running.dry_run {
        false => out.clone(),
        true => std::env::temp_dir().join(format!("loadline-{}", std::process::id())),
    };
    let plan = folder.join(format!("{name}.toml"));
    let fail = |error| Failure::file(&folder, error);
    fs::create_dir_all(&folder).map_err(fail)?;
    fs::write(&plan, text).map_err(fail)?;
    for (name, text) in files {
        fs::write(folder.join(name), text).map_err(fail)?;
    }
    let ran = run::run(&LabRunFlags {
        plan,
        out: out.clone(),
        until_decided: false,
        blocks_max: 0,
        running: flags.running.clone(),
    });
    if flags.running.dry_run {
        fs::remove_dir_all(&folder).map_err(fail)?;
    }
    ran?;
    Ok((!flags.running.dry_run).then_some(out))
}

/// Papers go without the series that need a CPU quota where there is none, unless these were asked for.
fn paper_grid(paper: &Paper, flags: &LabPaperFlags) -> Grid {
    let mut grid = grid(&flags.grid);
    if flags.grid.only.is_empty()
        && paper.text().contains("cpu_quota")
        && let Err(why) = check_quota(QUOTA_SMALLEST)
    {
        crate::say(&format!("series with a CPU quota are left out: {why}"));
        grid.no_quota = true;
    }
    grid
}

fn grid(flags: &LabGridFlags) -> Grid {
    Grid {
        full: flags.full,
        only: flags.only.clone(),
        duration_s: flags.seconds,
        replicates: flags.replicates,
        no_quota: false,
    }
}
