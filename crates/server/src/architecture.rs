//! The choice of architecture: names, and the one match from a name to what runs.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::Listener;
use crate::arch;
use crate::options::{OptionError, choice};
use crate::site::{Site, Started};

choice! {
    /// Which thread carries out each order of a session, and how it waits.
    Architecture {
        /// One blocking thread, one connection at a time (P3's first).
        Sequential "sequential",
        /// A blocking thread for each connection, up to a cap (P5).
        ThreadPerConnection "thread-per-connection",
        /// A fixed number of blocking threads with a bounded queue before them (P3's second).
        ThreadPool "thread-pool",
        /// Edge-triggered epoll: 1..n loops, 0..m workers (P1, P2, P4).
        Reactor "reactor",
        /// io_uring: 1..n loops, 0..m workers (P2, P4).
        Proactor "proactor",
    }
}

impl Architecture {
    /// Whether event loops serve: with loops, workers and all that belongs to them.
    #[must_use]
    pub fn has_loops(self) -> bool {
        matches!(self, Self::Reactor | Self::Proactor)
    }

    /// Whether this machine offers what it is built on.
    ///
    /// # Errors
    /// The kernel, or a sandbox, refuses io_uring to the proactor; says why.
    pub fn check_offered(self) -> Result<(), OptionError> {
        match self {
            Self::Proactor => loadline_sys::ring::available().map_err(|why| OptionError {
                option: "--architecture",
                value: self.name().into(),
                expected: format!("{why}; --architecture reactor does without"),
            }),
            Self::Sequential | Self::ThreadPerConnection | Self::ThreadPool | Self::Reactor => {
                Ok(())
            }
        }
    }

    /// Serves until drained or cut. `started` is notified once connections can be served.
    pub(crate) fn run<H: Handler>(
        self,
        site: &Arc<Site<H>>,
        listeners: Vec<Listener>,
        started: Started,
    ) -> io::Result<()> {
        match self {
            Self::Sequential => arch::sequential::run(site, listeners, started),
            Self::ThreadPerConnection => arch::thread_per_connection::run(site, listeners, started),
            Self::ThreadPool => arch::thread_pool::run(site, listeners, started),
            Self::Reactor => arch::reactor::run(site, listeners, started),
            Self::Proactor => arch::proactor::run(site, listeners, started),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for architecture in Architecture::ALL {
            assert_eq!(
                Architecture::parse(architecture.name()),
                Some(*architecture)
            );
        }
        assert_eq!(Architecture::parse("actor"), None);
    }
}
