//! A fixed number of blocking threads, one connection each at a time, and a bounded queue before
//! them (P3's second).
//!
//! Connections without a thread wait in the queue, then in the kernel's backlog: no 503, no
//! eviction. Its honest weakness: idle keep-alive clients hold threads until their idle time is
//! over.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use loadline_proto::{ConnectionRecord, Handler};
use loadline_sys::{Accepted, Waker, wait_readable};

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::admission::{Admission, Kind, Load, Verdict};
use crate::architecture::connection_thread;
use crate::shutdown::Stage;
use crate::site::{Site, Started};
use crate::telemetry::counters::{Role, Row};
use crate::thread::context::ThreadContext;
use crate::thread::group::{STACK_BYTES, ThreadGroup};

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Wait, &site.descriptor_log_after)?;
    let mut thread = ThreadContext::with_read_buffer(site, Role::Acceptor, 0);
    let row = Arc::clone(&thread.row);
    let line = Arc::new(Line::new(site.options.queue_max, Arc::clone(&row))?);
    let threads = ThreadGroup::new()?;
    for index in 0..site.options.threads {
        let (worker_site, worker_line) = (Arc::clone(site), Arc::clone(&line));
        let member = threads.enter();
        let spawned = thread::Builder::new()
            .name(format!("serving {index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _member = member;
                let work = || work(&worker_site, &worker_line);
                worker_site.guarded_alone("a serving thread", work);
            });
        if let Err(error) = spawned {
            line.close();
            let text = format!(
                "only {index} of {} threads could be started: {error}",
                site.options.threads
            );
            return Err(io::Error::new(error.kind(), text));
        }
    }
    started.tell();
    let result = site.guarded("the accepting thread", || {
        accept_all(site, &mut acceptor, &line, &mut thread)
    });
    drop(acceptor);
    line.close();
    result?;
    threads.wait_empty(site)
}

/// Fills the queue until the shutdown; then once more with what the backlog holds.
fn accept_all<H: Handler>(
    site: &Site<H>,
    acceptor: &mut Acceptor,
    line: &Line,
    thread: &mut ThreadContext<H>,
) -> io::Result<()> {
    let row = Arc::clone(&thread.row);
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
            is_queue_full: !line.has_room(),
            ..Load::default()
        };
        if admission.decide(Kind::Backlog, &load) == Verdict::Queue {
            let end = site.shutdown.cut_at();
            let timeout_ms = end.map(|at| at.since(now));
            wait_readable(&[line.room.as_fd(), stage_fd], timeout_ms)?;
            continue;
        }
        match acceptor.next(now, &row)? {
            Some(NewConnection::Regular(accepted) | NewConnection::LastDescriptor(accepted)) => {
                let record = thread.journal_accepted(accepted.peer);
                thread.offer_log(); // before the line of its end, which another thread writes
                line.push(Waiting {
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

fn work<H: Handler>(site: &Arc<Site<H>>, line: &Line) -> io::Result<()> {
    let mut thread =
        ThreadContext::with_read_buffer(site, Role::Thread, connection_thread::READ_BUFFER_BYTES);
    while let Some(waiting) = line.pop() {
        let waited_us = site.clock.now_us().saturating_sub(waiting.since_us);
        thread.row.queue_wait_us.add(waited_us);
        connection_thread::serve_accepted(&waiting.accepted, waiting.record, site, &mut thread);
    }
    Ok(())
}

/// The bounded queue of connections. One thread pushes, many pop.
struct Line {
    state: Mutex<State>,
    some: Condvar,
    /// Readable when there may be room again, after `has_room` has said no.
    room: Waker,
    max: usize,
    row: Arc<Row>,
}

/// A connection in the queue.
struct Waiting {
    accepted: Accepted,
    since_us: u64,
    /// Of the journal of connections, where the accepting thread has noted it.
    record: Option<Box<ConnectionRecord>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
    pusher_waits: bool,
}

impl Line {
    fn new(max: usize, row: Arc<Row>) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            some: Condvar::new(),
            room: Waker::new()?,
            max,
            row,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more fits. If not, `room` becomes readable once one does.
    fn has_room(&self) -> bool {
        let mut state = self.lock();
        state.pusher_waits = state.waiting.len() >= self.max;
        if state.pusher_waits {
            self.room.clear();
        }
        !state.pusher_waits
    }

    fn push(&self, waiting: Waiting) {
        self.row.queue_depth.add(1);
        self.lock().waiting.push_back(waiting);
        self.some.notify_one();
    }

    /// The next one; `None` when the queue is closed and empty.
    fn pop(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                if std::mem::take(&mut state.pusher_waits) {
                    self.room.wake();
                }
                drop(state);
                self.row.queue_depth.sub(1);
                return Some(next);
            }
            if state.closed {
                return None;
            }
            state = self
                .some
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more will come.
    fn close(&self) {
        self.lock().closed = true;
        self.some.notify_all();
    }
}
