//! A fixed number of blocking threads, one connection each at a time (P3's second).
//!
//! With a latency goal a thread keeps its connection only while no other waits for one. Connections
//! without a thread are in a loop, which waits for their clients, and brings those that have sent
//! something to the threads' queue (`worker/holding.rs`); what could not be served in time gets a 503.
//!
//! Without a goal there is no loop, no 503 and no eviction: a thread keeps its connection to its end,
//! others wait in a bounded queue and then in the kernel's backlog, and idle keep-alive clients hold
//! threads until their idle time is over.

use std::io;
use std::sync::Arc;
use std::thread;

use loadline_proto::Handler;
use loadline_sys::wait_readable;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::admission::{Admission, Kind, Load, Verdict};
use crate::blocking::connection_queue::{ConnectionQueue, Waiting};
use crate::connection_thread;
use crate::event_loop;
use crate::shutdown::Stage;
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::thread::context::ThreadContext;
use crate::thread::group::{STACK_BYTES, ThreadGroup, too_few};
use crate::transport::socket::epoll::Epoll;

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    match site.options.threads_share() {
        true => event_loop::run::<H, Epoll>(site, listeners, started),
        false => run_to_the_end(site, listeners, started),
    }
}

/// Serves each connection to its end.
fn run_to_the_end<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Wait, &site.descriptor_log_after)?;
    let mut thread = ThreadContext::with_read_buffer(site, Role::Acceptor, 0);
    let stats = Arc::clone(&thread.stats);
    let queue = Arc::new(ConnectionQueue::new(site.options.queue_max, stats)?);
    let threads = ThreadGroup::new()?;
    for index in 0..site.options.threads {
        let (worker_site, own) = (Arc::clone(site), Arc::clone(&queue));
        let guard = threads.enter();
        let spawned = thread::Builder::new()
            .name(format!("serving {index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _guard = guard;
                let work = || work(&worker_site, &own);
                worker_site.guarded_alone("a serving thread", work);
            });
        if let Err(error) = spawned {
            queue.close();
            return Err(too_few(index, site.options.threads, &error));
        }
    }
    started.notify();
    let result = site.guarded("the accepting thread", || {
        accept_all(&mut acceptor, &queue, &mut thread)
    });
    drop(acceptor);
    queue.close();
    result?;
    threads.wait_empty(site)
}

/// Fills the queue until the shutdown; then once more with what the backlog holds.
fn accept_all<H: Handler>(
    acceptor: &mut Acceptor,
    queue: &ConnectionQueue,
    thread: &mut ThreadContext<H>,
) -> io::Result<()> {
    let site = Arc::clone(&thread.site);
    let admission = Admission::new(site.options.connections_max);
    loop {
        let seen = site.shutdown.stage();
        let now = thread.tick();
        if site.shutdown.is_cut(now) {
            return Ok(());
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        let stage_fd = site.shutdown.next_fd(seen);
        let load = Load {
            is_queue_full: !queue.has_room(),
            ..Load::default()
        };
        if admission.decide(Kind::Backlog, &load) == Verdict::Queue {
            let end = site.shutdown.cut_at();
            let timeout_ms = end.map(|at| at.since(now));
            wait_readable(&[queue.room_fd(), stage_fd], timeout_ms)?;
            continue;
        }
        match acceptor.next(now, &thread.stats)? {
            Some(NewConnection::Regular(accepted) | NewConnection::LastDescriptor(accepted)) => {
                let record = thread.log_accepted(accepted.peer);
                thread.offer_log(); // before the line of its end, which another thread writes
                queue.push(Waiting {
                    accepted,
                    since_us: thread.now_us(),
                    record,
                });
            }
            None if acceptor.is_drained() => return Ok(()),
            None => acceptor.wait(now, stage_fd)?,
        }
    }
}

fn work<H: Handler>(site: &Arc<Site<H>>, queue: &ConnectionQueue) -> io::Result<()> {
    let mut thread =
        ThreadContext::with_read_buffer(site, Role::Thread, connection_thread::READ_BUFFER_BYTES);
    thread.stats.runs_here();
    while let Some(waiting) = queue.pop() {
        let waited_us = site.clock.now_us().saturating_sub(waiting.since_us);
        thread.stats.note_wait(waited_us);
        connection_thread::serve_accepted(&waiting.accepted, waiting.record, &mut thread);
    }
    Ok(())
}
