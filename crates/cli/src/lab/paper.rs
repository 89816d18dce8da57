//! `loadline lab paper` and `loadline lab compare`: runs of plans that Loadline brings with it.

use std::fs;
use std::path::{Path, PathBuf};

use loadline_lab::plan::Plan;
use loadline_lab::report::words::slug;
use loadline_lab::report::{Figure, Report};
use loadline_lab::runner::{check_network, check_quota};
use loadline_papers::{
    Focused, Grid, Kept, Paper, check_whole, claims, compare, focused, parts_said, unmatched,
};

use super::marks::{Marks, relative};
use super::report::derived;
use super::{report, run};
use crate::failure::Failure;
use crate::files::replace;
use crate::flags::lab_defs::LabRunFlags;
use crate::flags::lab_paper_defs::{LabCompareFlags, LabGridFlags, LabPaperFlags};
use crate::flags::lab_report_defs::LabReportFlags;

/// No paper's plan gives a server less of a CPU.
const QUOTA_SMALLEST: f64 = 0.2;

/// Runs a paper's experiment, or goes on with it.
pub(super) fn paper(flags: &LabPaperFlags) -> Result<(), Failure> {
    let paper = Paper::named(&flags.paper).map_err(Failure::usage)?;
    let grid = paper_grid(paper, flags);
    if let Some(folder) = &flags.keep {
        // Before the run, not after it.
        check_keep(paper, flags, folder)?;
    }
    let whole = |text: String| Focused {
        text,
        fewer_blocks: None,
    };
    let plan = match &flags.focus {
        Some(wanted) => focused(paper, &grid, wanted),
        None => grid.plan_text(&paper.text(), paper.name).map(whole),
    };
    let Focused { text, fewer_blocks } = plan.map_err(Failure::usage)?;
    let fewer = fewer_blocks.map(|(blocks, planned)| {
        format!(
            "{blocks} blocks instead of {planned}, so that a claim takes some minutes; \
             --replicates {planned}, with another --out, takes all"
        )
    });
    if let Some(fewer) = &fewer {
        crate::say(fewer);
    }
    let mut of_grid = flags.grid.clone();
    if let Some(wanted) = &flags.focus {
        let folder = run_folder(paper.name, &flags.grid);
        let folder = format!("{}-{}", folder.display(), slug(wanted));
        of_grid.out = Some(flags.grid.out.clone().unwrap_or_else(|| folder.into()));
    }
    let Some(out) = run_plan((paper.name, text), paper.files, &of_grid)? else {
        return sum_of_papers(paper, flags, &grid);
    };
    paper.write_forms(&out).map_err(Failure::failed)?;
    if let Some(folder) = &flags.keep {
        keep(paper, &out, folder)?;
    }
    if let Some(wanted) = &flags.focus {
        let fewer = fewer.map_or_else(String::new, |fewer| format!("{fewer}\n"));
        let verdicts = verdicts(&out, wanted)?;
        crate::print(format!("{verdicts}{fewer}").as_bytes())?;
    }
    write_report(out, None)
}

/// How long the parts of a paper in full take, and all papers with a grid, behind what a dry run says of
/// one.
fn sum_of_papers(paper: &Paper, flags: &LabPaperFlags, grid: &Grid) -> Result<(), Failure> {
    if !flags.grid.running.dry_run || flags.focus.is_some() || !grid.only.is_empty() {
        return Ok(());
    }
    let parts = match grid.full {
        true => parts_said(paper).map_err(Failure::failed)? + "\n",
        false => String::new(),
    };
    let said = loadline_papers::sum_said(grid).map_err(Failure::failed)?;
    crate::print(format!("{parts}{said}\n").as_bytes())
}

/// That what is to be measured can be kept.
fn check_keep(paper: &'static Paper, flags: &LabPaperFlags, folder: &Path) -> Result<(), Failure> {
    let grid = &flags.grid;
    let is_other = flags.focus.is_some() || grid.seconds.is_some() || grid.replicates.is_some();
    if !grid.full || is_other {
        return Err(Failure::usage(
            "--keep is for a paper as its plan has it in full; right would be --full, without --focus, \
             --seconds and --replicates",
        ));
    }
    check_whole(paper, &grid.only).map_err(Failure::usage)?;
    kept_in(folder, paper).map(drop)
}

/// What is kept of a paper in a folder.
fn kept_in(folder: &Path, paper: &'static Paper) -> Result<Kept, Failure> {
    let file = Kept::file(folder, paper);
    match file.exists() {
        true => Kept::read(&file).map_err(Failure::usage),
        false => Ok(Kept::new(paper)),
    }
}

/// Adds a run to what is kept of its paper.
fn keep(paper: &'static Paper, run: &Path, folder: &Path) -> Result<(), Failure> {
    let mut kept = kept_in(folder, paper)?;
    let (run, report) = derived(run)?;
    kept.put(&run, &report).map_err(Failure::failed)?;
    fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
    let file = Kept::file(folder, paper);
    replace(&file, &kept.text().map_err(Failure::failed)?)?;
    crate::print(format!("kept: {}\n", file.display()).as_bytes())
}

/// What came of the claims that were asked for.
fn verdicts(run: &Path, wanted: &str) -> Result<String, Failure> {
    let (_, report) = derived(run)?;
    let claims = report.claims.iter();
    let asked = claims.filter(|claim| {
        let texts = [&claim.text, &claim.source];
        texts.iter().any(|text| claims::contains(text, wanted))
    });
    let said = asked.map(|claim| {
        let (mark, verdict) = (claim.verdict.mark(), claim.verdict.label());
        format!("{mark} {verdict}: {}\n  {}\n", claim.text, claim.why)
    });
    Ok(said.collect())
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
    let plan = grid(&flags.grid).plan_text(&text, &name);
    let plan = plan.map_err(Failure::usage)?;
    let Some(out) = run_plan((&name, plan), &[], &flags.grid)? else {
        return Ok(());
    };
    let (run, report) = derived(&out)?;
    let loads = compare::loads(&run);
    crate::print(compare::text(&loads, &compare::goals(&run)).as_bytes())?;
    let page = compare::page(&run, &report, &loads);
    let markdown = out.join("compare.md");
    replace(&markdown, &format!("# {}\n\n{page}", report.title))?;
    let json = out.join("compare.json");
    let figures = compare::json(&run, &report).map_err(Failure::failed)?;
    replace(&json, &figures)?;
    let (tables, figures) = (markdown.display(), json.display());
    let mut said = format!("\ntables: {tables}\nfigures: {figures}\n");
    if let Some(file) = &flags.page {
        let folder = flags.figures.as_deref();
        let charts = folder.map(|folder| charts(file, folder, &report));
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
    if let Some(first) = unmatched(&text, &loadline_sys::affinity::cpus_allowed()).first() {
        return Err(Failure::usage(format!("{shown}: {first}")));
    }
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

/// Runs a plan, with files that it names beside it. The folder of the run; `None` where nothing was run.
fn run_plan(
    (name, text): (&str, String),
    files: &[(&str, &str)],
    flags: &LabGridFlags,
) -> Result<Option<PathBuf>, Failure> {
    if flags.show {
        crate::print(text.as_bytes())?;
        return Ok(None);
    }
    let out = flags.out.clone().unwrap_or_else(|| run_folder(name, flags));
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
    let ran = run::run_part(&LabRunFlags {
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

/// Where a run goes if nothing else is said.
fn run_folder(name: &str, flags: &LabGridFlags) -> PathBuf {
    let suffix = if flags.full { "-full" } else { "" };
    Path::new("runs").join(format!("{name}{suffix}"))
}

/// Papers go without the series that need a CPU quota, or a network for each side, where there is none,
/// unless these were asked for.
fn paper_grid(paper: &Paper, flags: &LabPaperFlags) -> Grid {
    let mut grid = grid(&flags.grid);
    if !flags.grid.only.is_empty() {
        return grid;
    }
    let text = paper.text();
    if text.contains("cpu_quota")
        && let Err(why) = check_quota(QUOTA_SMALLEST)
    {
        crate::say(&format!("series with a CPU quota are left out: {why}"));
        grid.no_quota = true;
    }
    if text.contains("\"namespaces\"")
        && let Err(why) = check_network()
    {
        crate::say(&format!(
            "series with a network for each side are left out: {why}"
        ));
        grid.no_namespaces = true;
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
        no_namespaces: false,
    }
}
