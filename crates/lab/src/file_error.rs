//! What went wrong with a file or a folder.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// What went wrong, and with which file: one line.
#[derive(Clone, Debug, Error)]
#[error("{}: {error}", path.display())]
pub struct FileError {
    /// The file, or the folder.
    pub path: PathBuf,
    /// What the kernel says.
    pub error: Arc<io::Error>,
}

impl FileError {
    /// For `map_err`.
    pub fn of(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self {
            path: path.clone(),
            error: Arc::new(error),
        }
    }
}
