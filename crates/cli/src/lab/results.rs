//! `loadline lab results`: several runs on one page of Markdown, with their pictures.

use std::fs;
use std::path::Path;

use loadline_papers::Kept;
use loadline_papers::results::{Entry, page, summary};

use super::marks::{Marks, relative};
use super::report::{derived, report_of};
use crate::failure::Failure;
use crate::files::replace;
use crate::flags::lab_report_defs::LabResultsFlags;

/// What the README has before and behind the summary.
const MARKS: Marks<'_> = Marks {
    begin: "<!-- ./x bench papers -->",
    end: "<!-- end of what the papers came to -->",
};

/// Writes the page and its pictures.
pub(super) fn results(flags: &LabResultsFlags) -> Result<(), Failure> {
    let entries = flags.runs.iter().map(|run| entry(run));
    let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    let folder = flags.out.with_extension("");
    fs::create_dir_all(&folder).map_err(|error| Failure::file(&folder, error))?;
    for picture in entries.iter().flat_map(|entry| &entry.pictures) {
        replace(&folder.join(&picture.file), &picture.svg)?;
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    replace(&flags.out, &page(&flags.title, &name, &entries))?;
    let mut said = format!("page: {}\n", flags.out.display());
    if let Some(readme) = &flags.readme {
        let link = relative(readme, &flags.out);
        let text = format!("{}\n[All claims]({link})", summary(&entries));
        MARKS.insert("--readme", readme, &text)?;
        said += &format!("summary: {}\n", readme.display());
    }
    crate::print(said.as_bytes())
}

/// Of the folder of a run, or of a file that was kept of a paper.
fn entry(run: &Path) -> Result<Entry, Failure> {
    if !run.is_file() {
        let (run, report) = derived(run)?;
        return Ok(Entry::new(&run, report));
    }
    let kept = Kept::read(run).map_err(Failure::usage)?;
    let merged = kept.run().map_err(Failure::failed)?;
    let report = report_of(&merged, run.parent().unwrap_or(run));
    Entry::of_kept(&kept, &merged, report).map_err(Failure::failed)
}
