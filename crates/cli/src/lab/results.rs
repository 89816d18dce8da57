//! `loadline lab results`: several runs on one page of Markdown, with the first chart of each.

use std::fs;
use std::path::Path;

use loadline_lab::report::{Report, svg};
use loadline_lab::results::{Entry, headline, page, summary};

use super::report::{derived, write};
use crate::failure::Failure;
use crate::flags::lab_results_defs::LabResultsFlags;

/// What the README has before and behind the summary.
const BEGIN: &str = "<!-- ./x bench papers -->";
const END: &str = "<!-- end of what the papers came to -->";

/// Writes the page and its pictures.
pub(super) fn results(flags: &LabResultsFlags) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for run in &flags.runs {
        reports.push(derived(run)?.1);
    }
    let pictures = pictures(&flags.out, &reports)?;
    let entries: Vec<Entry<'_>> = (reports.iter().zip(&pictures))
        .map(|(report, picture)| Entry {
            report,
            picture: picture.as_deref(),
        })
        .collect();
    write(&flags.out, &page(&flags.title, &entries))?;
    let mut said = format!("page: {}\n", flags.out.display());
    if let Some(readme) = &flags.readme {
        let link = relative(readme, &flags.out);
        insert(
            readme,
            &format!("{}\n[All claims]({link})", summary(&entries)),
        )?;
        said += &format!("summary: {}\n", readme.display());
    }
    crate::print(said.as_bytes())
}

/// Writes the first chart of each report; how the page refers to it.
fn pictures(out: &Path, reports: &[Report]) -> Result<Vec<Option<String>>, Failure> {
    let folder = out.with_extension("");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    let picture = |report: &Report| {
        let Some(figure) = headline(report) else {
            return Ok(None);
        };
        let file = format!("{}.svg", slug(&report.name));
        write(&folder.join(&file), &svg::draw(figure))?;
        Ok(Some(format!("{name}/{file}")))
    };
    reports.iter().map(picture).collect()
}

/// Fit for a file name and for a link.
fn slug(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(fit).collect()
}

/// As a link from one file to another below its folder.
fn relative(from: &Path, to: &Path) -> String {
    let folder = from.parent().unwrap_or_else(|| Path::new(""));
    let path = to.strip_prefix(folder).unwrap_or(to);
    path.display().to_string()
}

fn insert(file: &Path, text: &str) -> Result<(), Failure> {
    let name = file.display();
    let before = fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--readme {name}: {error}")))?;
    let (Some(begin), Some(end)) = (before.find(BEGIN), before.find(END)) else {
        return Err(Failure::usage(format!(
            "--readme {name}: no place for it; right would be the lines {BEGIN} and {END}"
        )));
    };
    if end < begin {
        return Err(Failure::usage(format!(
            "--readme {name}: {END} stands before {BEGIN}; right would be the other way round"
        )));
    }
    let (head, tail) = (&before[..begin + BEGIN.len()], &before[end..]);
    write(file, &format!("{head}\n\n{text}\n\n{tail}"))
}
