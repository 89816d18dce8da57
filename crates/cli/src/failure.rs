//! Why the program ends other than well, and with which exit code.

use std::fmt;
use std::process::ExitCode;

/// The exit codes, as `--help` and docs/serve.md list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something failed while running.
    Failed = 1,
    /// An option, a value, a directory, or options that do not fit together.
    Usage = 2,
    /// An address cannot be listened on.
    Bind = 3,
    /// Stopped before every accepted request was answered.
    Cut = 4,
}

/// An end with a reason, in one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What, where, and what would be right.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            message: message.into(),
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
