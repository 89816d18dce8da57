//! `loadline lab results`: several runs on one page of Markdown, with their pictures.

use std::path::Path;
use std::{fs, io};

use loadline_papers::Kept;
use loadline_papers::results::{Entry, page, summary};

use super::marks::{Marks, relative};
use super::older_sections::{is_picture, with_older};
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
    let (mut text, mut table) = (page(&flags.title, &name, &entries), summary(&entries));
    if flags.runs.iter().all(|run| run.is_file()) {
        let readme = match &flags.readme {
            Some(file) => MARKS.text("--readme", file)?,
            None => String::new(),
        };
        if let Some(whole) = with_older(&text, &table, &text_of(&flags.out)?, &readme) {
            (text, table) = whole;
        }
    }
    replace(&flags.out, &text)?;
    remove_unlinked(&folder, &text)?;
    let mut said = format!("page: {}\n", flags.out.display());
    if let Some(readme) = &flags.readme {
        let link = relative(readme, &flags.out);
        let text = format!("{table}\n[All claims]({link})");
        MARKS.insert("--readme", readme, &text)?;
        said += &format!("summary: {}\n", readme.display());
    }
    crate::print(said.as_bytes())
}

/// What stands in a file; nothing if there is none.
fn text_of(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|error| Failure::file(file, error)),
    }
}

/// Removes pictures of papers to which the page has no link any more.
fn remove_unlinked(folder: &Path, page: &str) -> Result<(), Failure> {
    let failed = |error| Failure::file(folder, error);
    for file in fs::read_dir(folder).map_err(failed)? {
        let file = file.map_err(failed)?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if is_picture(&name) && !page.contains(&format!("/{name})")) {
            fs::remove_file(file.path()).map_err(|error| Failure::file(&file.path(), error))?;
        }
    }
    Ok(())
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
