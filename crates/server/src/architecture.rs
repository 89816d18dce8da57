//! Which threads there are, by architecture: the one match from a name to what runs.

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
use crate::connection_thread;
use crate::memory::thread_bytes;
use crate::options::{Architecture, ServerOptions};
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::thread::context;

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

/// What the threads and their buffers take of memory before any connection has come, in bytes; of a
/// `thread-pool` all that there may be.
#[must_use]
pub fn fixed_memory_bytes(options: &ServerOptions) -> u64 {
    let of = |role, buffer_bytes| thread_bytes(role, options.architecture, buffer_bytes);
    match options.architecture {
        Architecture::Sequential => of(Role::Thread, context::READ_BUFFER_BYTES),
        Architecture::ThreadPerConnection => of(Role::Acceptor, context::READ_BUFFER_BYTES),
        Architecture::ThreadPool => {
            let thread = of(Role::Thread, connection_thread::READ_BUFFER_BYTES);
            let that_waits = of(Role::Loop, context::READ_BUFFER_BYTES);
            thread * options.threads_max() as u64 + that_waits
        }
        Architecture::Reactor | Architecture::Proactor => {
            let of = |role| of(role, context::READ_BUFFER_BYTES);
            let loops = options.loops as u64;
            let workers = (options.workers * options.pools()) as u64;
            of(Role::Loop) * loops + of(Role::Worker) * workers
        }
    }
}
