//! Why the program ends other than well, and with which exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use loadline_load::run::RunError;
use loadline_spec::SpecError;

/// The exit codes, as `--help`, docs/serve.md, docs/load.md and docs/lab.md list them. Where a number has two
/// meanings, each belongs to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something failed while running.
    Failed = 1,
    /// An option, a value, a directory, options that do not fit together, or an architecture that the
    /// machine does not offer.
    Usage = 2,
    /// `serve`: an address cannot be listened on. `load`: an `--assert` does not hold. `lab`: what was
    /// asked for cannot be said, since no trial counts, no rate holds or nothing like it was measured.
    BindOrAssert = 3,
    /// `serve`: stopped before every accepted request was answered.
    Cut = 4,
    /// `load`: the client was the limit.
    ClientLimited = 5,
    /// `load`: responses came, and none was good; or a step of a scenario never succeeded.
    NothingGood = 6,
    /// `load` and `lab`: interrupted, as shells have it for SIGINT.
    Interrupted = 130,
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
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { exit, message }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A file or a folder, and what went wrong with it.
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::failed(format!("{}: {error}", path.display()))
    }

    pub(crate) fn signals(error: io::Error) -> Self {
        Self::failed(format!("signals: {error}"))
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Watch(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

/// An option that is wrong, in the words of the command line.
impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::usage(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
