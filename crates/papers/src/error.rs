//! Why a study cannot be run or written down.

use loadline_lab::file_error::FileError;
use loadline_lab::journal::JournalError;
use loadline_lab::plan::PlanError;
use thiserror::Error;

/// What is wrong, and what would be right: one line.
#[derive(Debug, Error)]
pub enum PaperError {
    /// There is no paper of this name.
    #[error("no paper {0}; right would be one of {1}")]
    Unknown(String, String),
    /// Its plan is not one, or has not what was asked for.
    #[error("{file}: {problem}")]
    Plan {
        /// The file of the plan.
        file: String,
        /// What is wrong.
        problem: GridError,
    },
    /// What is run of it is no plan.
    #[error(transparent)]
    Planned(#[from] PlanError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was kept of a paper cannot be read or written down.
    #[error("{file}: {problem}")]
    Kept {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A number that JSON has no form for.
    #[error("compare: {0}")]
    Json(#[from] serde_json::Error),
}

/// What is wrong with a plan of two grids.
#[derive(Debug, Error)]
pub enum GridError {
    /// It is no TOML.
    #[error("{}", .0.to_string().trim().replace('\n', " "))]
    Toml(#[from] toml::de::Error),
    /// It has no form as TOML.
    #[error(transparent)]
    Form(#[from] toml::ser::Error),
    /// It measures nothing.
    #[error("no series; right would be at least one [[series]]")]
    NoSeries,
    /// It has not what was asked for, but these.
    #[error("no series {0}; right would be one of {1}")]
    UnknownSeries(String, String),
    /// Its other grid is none.
    #[error("full is not a table; right would be full = {{ replicates = 5 }}")]
    Full,
    /// It is no plan without `full` either.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No claim of the paper has this text.
    #[error(
        "no claim says {0}; right would be a part of the text of one, as in docs/papers-results.md"
    )]
    NoClaim(String),
    /// Series that a claim takes together, one without the other.
    #[error("a claim takes {0} together; right would be --only {1}")]
    Split(String, String),
    /// What claims with this text take is left out.
    #[error("the claims that say {0} are about series that are left out")]
    NoCells(String),
}
