//! A run: the rounds of a plan, carried by threads of this process or by processes like it.
//!
//! `division` fits a load to the limits of the machine, `workers` starts threads or processes,
//! `round` is one trial from begin to end.

mod division;
mod round;
mod workers;

use std::io;

pub use division::{Demand, Division, Machine, PROCESSES_MAX, divide};
pub use round::{RoundNumber, RoundObserver, Run, RunChannel, run};
use thiserror::Error;
pub use workers::carry_part;

pub use crate::load_threads::RunEvent;
use crate::load_threads::ThreadError;
use crate::secure_link::UnfitServer;

/// Why a run does not begin or cannot go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// A process cannot be watched.
    #[error(transparent)]
    Watch(io::Error),
    /// The clients cannot be started.
    #[error("the clients: {0}")]
    Clients(io::Error),
    /// A thread of a part cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// A thread or process could not go on.
    #[error("{thread}: {error}")]
    Lost {
        /// Its name.
        thread: String,
        /// Why.
        error: ThreadError,
    },
    /// No connection to the server is of any use.
    #[error("{0}")]
    Server(io::Error),
    /// Threads that do not end though they should have.
    #[error("{missing} of {expected} client threads do not end")]
    Stuck {
        /// Threads that do not end.
        missing: usize,
        /// All threads.
        expected: usize,
    },
    /// The messages of a part cannot be written.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl RunError {
    /// A thread or process could not go on.
    fn lost(thread: String, error: ThreadError) -> Self {
        match error {
            ThreadError::Io(error) if error.get_ref().is_some_and(|it| it.is::<UnfitServer>()) => {
                Self::Server(error)
            }
            error => Self::Lost { thread, error },
        }
    }
}
