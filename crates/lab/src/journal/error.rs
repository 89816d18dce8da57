//! Why a journal cannot be read or written.

use std::path::PathBuf;

use thiserror::Error;

use super::JOURNAL_FILE;
use crate::file_error::FileError;

/// What is wrong with a journal, and what would be right: one line.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    /// The folder is not that of a run.
    #[error(
        "{}: no {JOURNAL_FILE}; right would be the folder of a run (--out of loadline lab run)",
        .0.display()
    )]
    NoRun(PathBuf),
    /// The journal has no line yet.
    #[error("{}: no run is described here", .0.display())]
    Empty(PathBuf),
    /// Another process appends to it.
    #[error(
        "{}: another run is going on in this folder; right would be another --out",
        .0.display()
    )]
    Held(PathBuf),
    /// The folder of a run cannot be made.
    #[error("--out {0}")]
    Folder(FileError),
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is not what it should be.
    #[error("{}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, and what is wrong with it.
        problem: String,
    },
    /// A line has no form as JSON.
    #[error("{0}")]
    Json(std::sync::Arc<serde_json::Error>),
}
