//! Which threads there are, by architecture: the one match from a name to what runs.

pub(crate) mod connection_queue;
pub(crate) mod idle_slots;
#[cfg(test)]
mod leader_followers;
mod proactor;
mod reactor;
mod sequential;
mod thread_per_connection;
mod thread_pool;

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::accept::listener::Listener;
use crate::options::Architecture;
use crate::site::{Site, Started};

/// Serves until drained or cut. `started` is notified once connections can be served.
pub(crate) fn run<H: Handler>(
    architecture: Architecture,
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    match architecture {
        Architecture::Sequential => sequential::run(site, listeners, started),
        Architecture::ThreadPerConnection => thread_per_connection::run(site, listeners, started),
        Architecture::ThreadPool => thread_pool::run(site, listeners, started),
        Architecture::Reactor => reactor::run(site, listeners, started),
        Architecture::Proactor => proactor::run(site, listeners, started),
    }
}
