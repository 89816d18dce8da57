//! `loadline lab results`: several runs on one page of Markdown, with the first chart of each.

use std::fs;
use std::path::Path;

use loadline_lab::report::{Report, svg};
use loadline_papers::results::{Entry, headline, page, summary};

use super::marks::{Marks, relative};
use super::report::derived;
use crate::failure::Failure;
use crate::files::replace;
use crate::flags::lab_results_defs::LabResultsFlags;

/// What the README has before and behind the summary.
const MARKS: Marks<'_> = Marks {
    begin: "<!-- ./x bench papers -->",
    end: "<!-- end of what the papers came to -->",
};

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
    replace(&flags.out, &page(&flags.title, &entries))?;
    let mut said = format!("page: {}\n", flags.out.display());
    if let Some(readme) = &flags.readme {
        let link = relative(readme, &flags.out);
        let text = format!("{}\n[All claims]({link})", summary(&entries));
        MARKS.insert("--readme", readme, &text)?;
        said += &format!("summary: {}\n", readme.display());
    }
    crate::print(said.as_bytes())
}

/// Writes the first chart of each report; how the page refers to it.
fn pictures(out: &Path, reports: &[Report]) -> Result<Vec<Option<String>>, Failure> {
    let folder = out.with_extension("");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    fs::create_dir_all(&folder).map_err(|error| Failure::file(&folder, error))?;
    let picture = |report: &Report| {
        let Some(figure) = headline(report) else {
            return Ok(None);
        };
        let file = format!("{}.svg", slug(&report.name));
        replace(&folder.join(&file), &svg::draw(figure))?;
        Ok(Some(format!("{name}/{file}")))
    };
    reports.iter().map(picture).collect()
}

/// Fit for a file name and for a link.
fn slug(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(fit).collect()
}
