//! Results of trials in the forms of the tools that the papers used.

use std::fs;
use std::path::Path;

use loadline_lab::analysis::Run;
use loadline_lab::cells::levels_text;
use loadline_lab::file_error::FileError;
use loadline_record::report::{Page, text};

use crate::{Paper, PaperError};

impl Paper {
    /// Writes each trial of the run in `folder` in that form: `wrk2/trial-7.txt`. Discarded ones say so.
    ///
    /// # Errors
    /// The journal cannot be read, or a file cannot be written.
    pub fn write_forms(&self, folder: &Path) -> Result<(), PaperError> {
        let forms = folder.join(self.style.name());
        let fail = FileError::of(&forms);
        fs::create_dir_all(&forms).map_err(&fail)?;
        Run::each_trial(folder, |trial| {
            let Some(load) = &trial.load else {
                return Ok(());
            };
            let mut page = format!("{}: {}\n", trial.series, levels_text(&trial.levels));
            for reason in &trial.discarded {
                page += &format!("discarded: {reason}\n");
            }
            page.push('\n');
            page += &text(std::slice::from_ref(load), self.style, Page::default());
            let file = forms.join(format!("trial-{}.txt", trial.number));
            Ok(fs::write(file, page).map_err(&fail)?)
        })
    }
}
