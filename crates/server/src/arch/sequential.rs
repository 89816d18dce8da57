//! One blocking thread, one connection at a time (P3's first).
//!
//! Whoever connects meanwhile waits in the kernel's backlog: no 503, no eviction. Its honest
//! weakness: an idle keep-alive client stops everybody else until its idle time is over.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use loadline_proto::Handler;

use crate::Listener;
use crate::admission::Verdict;
use crate::kit::Kit;
use crate::parts::acceptor::{Acceptor, AtLimit, Newcomer};
use crate::parts::blocking::{self, Permanent};
use crate::parts::counters::Role;
use crate::parts::shutdown::Stage;
use crate::site::{Site, Started};

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Wait, &site.descriptor_log_after)?;
    let mut kit = Kit::new(site, Role::Thread);
    started.tell();
    loop {
        let seen = site.shutdown.stage();
        if site.shutdown.is_cut(kit.tick()) {
            return Ok(());
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        let row = Arc::clone(&kit.row);
        match acceptor.next(kit.now(), &row)? {
            Some(Newcomer::Serve(accepted) | Newcomer::Refuse(accepted)) => {
                let socket = accepted.socket.as_fd();
                let peer = accepted.peer;
                let record = kit.journal_accepted(peer);
                let verdict = Verdict::Admit;
                blocking::serve(socket, peer, site, &mut kit, &Permanent, verdict, record);
            }
            None if acceptor.is_drained() => return Ok(()),
            None => acceptor.wait(kit.now(), site.shutdown.next_fd(seen))?,
        }
    }
}
