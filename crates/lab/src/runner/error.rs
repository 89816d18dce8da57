//! Why a run, or a trial of it, cannot be carried out.

use thiserror::Error;

use crate::file_error::FileError;
use crate::journal::JournalError;
use crate::plan::PlanError;

/// What is in the way, and what would be right: one line.
#[derive(Clone, Debug, Error)]
pub enum RunnerError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file or a folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// Something of the plan cannot be had on this machine or in this folder.
    #[error("{place}: {error}")]
    At {
        /// The file of the plan, or what of it.
        place: String,
        /// What is in the way.
        error: Box<Self>,
    },
    /// What a program, the kernel or a server did or did not, or what does not fit the run.
    #[error("{0}")]
    Refused(String),
}

impl RunnerError {
    /// At a place, for `map_err`.
    pub(crate) fn at<E: Into<Self>>(place: impl std::fmt::Display) -> impl Fn(E) -> Self {
        let place = place.to_string();
        move |error| Self::At {
            place: place.clone(),
            error: Box::new(error.into()),
        }
    }
}

impl From<String> for RunnerError {
    fn from(problem: String) -> Self {
        Self::Refused(problem)
    }
}

impl From<loadline_spec::SpecError> for RunnerError {
    fn from(error: loadline_spec::SpecError) -> Self {
        Self::Refused(error.to_string())
    }
}
