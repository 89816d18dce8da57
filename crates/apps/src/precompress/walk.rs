//! The files below a directory that a server would serve: no symbolic links, and nothing hidden but what
//! is below `.well-known`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is called for each file, and for each directory that cannot be read.
type Visit<'v> = &'v mut dyn FnMut(PathBuf, io::Result<()>);

/// Visits the files below `directory`, in no order.
///
/// # Errors
/// It cannot be read itself.
pub(super) fn files(directory: &Path, visit: Visit<'_>) -> io::Result<()> {
    // Directories that are known and not yet read: of a tree, the siblings on one way down.
    let mut directories = Vec::new();
    read(directory, &mut directories, visit)?;
    while let Some(directory) = directories.pop() {
        if let Err(error) = read(&directory, &mut directories, visit) {
            visit(directory, Err(error));
        }
    }
    Ok(())
}

fn read(directory: &Path, directories: &mut Vec<PathBuf>, visit: Visit<'_>) -> io::Result<()> {
    for found in fs::read_dir(directory)? {
        let found = found?;
        let name = found.file_name();
        if name.as_encoded_bytes().starts_with(b".") && name != ".well-known" {
            continue;
        }
        let kind = found.file_type()?;
        if kind.is_dir() {
            directories.push(found.path());
        } else if kind.is_file() {
            visit(found.path(), Ok(()));
        }
    }
    Ok(())
}
