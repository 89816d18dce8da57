//! One blocking thread, one connection at a time (P3's first).
//!
//! Other clients wait in the kernel's backlog: no 503, no eviction. Its honest
//! weakness: an idle keep-alive client stops everybody else until its idle time is over.

use std::io;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::architecture::connection_thread;
use crate::shutdown::Stage;
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
    started.tell();
    loop {
        let seen = site.shutdown.stage();
        if site.shutdown.is_cut(thread.tick()) {
            return Ok(());
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        let row = Arc::clone(&thread.row);
        match acceptor.next(thread.now(), &row)? {
            Some(NewConnection::Regular(accepted) | NewConnection::LastDescriptor(accepted)) => {
                let record = thread.journal_accepted(accepted.peer);
                connection_thread::serve_accepted(&accepted, record, site, &mut thread);
            }
            None if acceptor.is_drained() => return Ok(()),
            None => acceptor.wait(thread.now(), site.shutdown.next_fd(seen))?,
        }
    }
}
