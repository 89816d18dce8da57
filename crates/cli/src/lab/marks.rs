//! Texts that are written between two marks of a file which says more than that.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::files::replace;

/// Lines of a file between which something is written.
pub(super) struct Marks<'t> {
    pub(super) begin: &'t str,
    pub(super) end: &'t str,
}

impl Marks<'_> {
    /// Whether a file has a place for it. `option` is what names the file.
    pub(super) fn check(&self, option: &str, file: &Path) -> Result<(), Failure> {
        self.split(option, file).map(drop)
    }

    /// Puts a text there, in place of what was there before.
    pub(super) fn insert(&self, option: &str, file: &Path, text: &str) -> Result<(), Failure> {
        let (head, _, tail) = self.split(option, file)?;
        replace(file, &format!("{head}\n\n{text}\n\n{tail}"))
    }

    /// What stands there.
    pub(super) fn text(&self, option: &str, file: &Path) -> Result<String, Failure> {
        let (_, text, _) = self.split(option, file)?;
        Ok(text)
    }

    /// What stands before the text, marks included, the text, and what stands behind it.
    fn split(&self, option: &str, file: &Path) -> Result<(String, String, String), Failure> {
        let name = file.display();
        let before = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{option} {name}: {error}")))?;
        let (begin, end) = (self.begin, self.end);
        // Other texts of the file may end with the same mark.
        let from = before.find(begin).map(|at| at + begin.len());
        let to = from.and_then(|from| Some(from + before[from..].find(end)?));
        match (from, to) {
            (Some(from), Some(to)) => {
                let parts = [&before[..from], &before[from..to], &before[to..]];
                Ok(parts.map(str::to_owned).into())
            }
            _ => Err(Failure::usage(format!(
                "{option} {name}: no place for it; right would be the line {begin} and, behind it, {end}"
            ))),
        }
    }
}

/// As a link from one file to another below its folder.
pub(super) fn relative(from: &Path, to: &Path) -> String {
    let folder = from.parent().unwrap_or_else(|| Path::new(""));
    let path = to.strip_prefix(folder).unwrap_or(to);
    path.display().to_string()
}
