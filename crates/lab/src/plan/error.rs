//! Why a plan cannot be run.

use loadline_spec::{SpecError, ValueError};
use thiserror::Error;

use crate::file_error::FileError;

/// What is wrong with a plan, where, and what would be right: one line.
#[derive(Clone, Debug, Error)]
pub enum PlanError {
    /// Its file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// The file as a whole is no plan.
    #[error("{file}: {problem}")]
    NoPlan {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// Something in the file is wrong.
    #[error("{file}:{line}: {problem}")]
    InFile {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: ValueError,
    },
    /// A series makes no cells on this machine.
    #[error("series {series}: {cell}{problem}")]
    InSeries {
        /// Its name.
        series: String,
        /// The levels of the cell that is wrong, and a colon; empty: it is no single cell.
        cell: String,
        /// What is wrong.
        problem: Box<SpecError>,
    },
    /// The plan as a whole cannot be run.
    #[error("{0}")]
    Whole(String),
}
