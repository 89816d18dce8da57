//! One blocking thread, one connection at a time (P3's first).
//!
//! Other clients wait in the kernel's backlog: no eviction, and a 503 only for work that has waited there
//! beyond the latency goal. Its honest weakness: an idle keep-alive client stops everybody else until its
//! idle time is over.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit};
use crate::connection_thread::{next_accepted, serve_accepted};
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Wait, &site.descriptor_log_after)?;
    let mut thread = ThreadContext::new(site, Role::Thread);
    thread.stats.runs_here();
    started.notify();
    while let Some(accepted) = next_accepted(&mut acceptor, &mut thread)? {
        let record = thread.log_accepted(accepted.peer);
        serve_accepted(&accepted, record, &mut thread);
    }
    Ok(())
}
