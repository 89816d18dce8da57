//! A fixed number of blocking threads, one connection each at a time, and a bounded queue before
//! them (P3's second).
//!
//! Connections without a thread wait in the queue, then in the kernel's backlog. With a latency goal,
//! idle connections make room for them, each has its thread for a share of the goal, and who could
//! not be served in time gets a 503. Without one there is no 503 and no eviction, and idle keep-alive
//! clients hold threads until their idle time is over.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use loadline_base::Millis;
use loadline_proto::Handler;
use loadline_sys::{socket, wait_readable};

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::admission::{Admission, Kind, Load, Verdict};
use crate::architecture::connection_queue::{BusyTime, ConnectionQueue, Waiting};
use crate::architecture::connection_thread::{self, IdleGuard};
use crate::architecture::idle_slots::{IdleSlots, Slot};
use crate::event_loop::refusals::Refusals;
use crate::shutdown::Stage;
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
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
    let options = &site.options;
    let (max, goal) = (options.queue_max, options.latency_goal);
    let shared = Arc::new(Shared {
        queue: ConnectionQueue::new(max, options.threads, goal, Arc::clone(&row))?,
        slots: goal.map(|_| Mutex::default()),
    });
    let threads = ThreadGroup::new()?;
    let refusals = goal.map(|_| Refusals::start(site, &threads)).transpose()?;
    for index in 0..site.options.threads {
        let (worker_site, own) = (Arc::clone(site), Arc::clone(&shared));
        let member = threads.enter();
        let spawned = thread::Builder::new()
            .name(format!("serving {index}"))
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _member = member;
                let work = || work(&worker_site, &own);
                worker_site.guarded_alone("a serving thread", work);
            });
        if let Err(error) = spawned {
            shared.queue.close();
            let text = format!(
                "only {index} of {} threads could be started: {error}",
                site.options.threads
            );
            return Err(io::Error::new(error.kind(), text));
        }
    }
    started.tell();
    let result = site.guarded("the accepting thread", || {
        accept_all(site, &mut acceptor, &shared, refusals.as_ref(), &mut thread)
    });
    drop(acceptor);
    drop(refusals);
    shared.queue.close();
    result?;
    threads.wait_empty(site)
}

/// Fills the queue until the shutdown; then once more with what the backlog holds.
fn accept_all<H: Handler>(
    site: &Site<H>,
    acceptor: &mut Acceptor,
    shared: &Shared,
    refusals: Option<&Refusals>,
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
            is_queue_full: !shared.queue.has_room(),
            ..Load::default()
        };
        if admission.decide(Kind::Backlog, &load) == Verdict::Queue {
            let end = site.shutdown.cut_at();
            let timeout_ms = end.map(|at| at.since(now));
            wait_readable(&[shared.queue.room_fd(), stage_fd], timeout_ms)?;
            continue;
        }
        match acceptor.next(now, &row)? {
            Some(NewConnection::Regular(accepted) | NewConnection::LastDescriptor(accepted)) => {
                if let Some(refusals) = refusals
                    && !shared.queue.is_in_time(thread.now_us())
                    && socket::has_input(accepted.socket.as_fd())
                // what nobody asked for is no answer
                {
                    row.refused_late.add(1);
                    refusals.refuse(accepted);
                    continue;
                }
                let record = thread.journal_accepted(accepted.peer);
                thread.offer_log(); // before the line of its end, which another thread writes
                shared.queue.push(Waiting {
                    accepted,
                    since_us: thread.now_us(),
                    record,
                });
            }
            None if acceptor.is_drained() => return Ok(()),
            None => {
                let is_waiting = shared.make_room(now);
                acceptor.wait_at_most(now, stage_fd, is_waiting.then_some(IDLE_MIN_MS / 2))?;
            }
        }
    }
}

/// How long a connection is idle before it makes room for another, at least: its next request may be on
/// its way, and an evicted client does not see why.
const IDLE_MIN_MS: u64 = 100;

/// What the serving threads share.
struct Shared {
    queue: ConnectionQueue,
    /// Connections on threads, if idle ones are evicted for others.
    slots: Option<Mutex<IdleSlots>>,
}

impl Shared {
    /// Evicts an idle connection if another waits for a thread; `true`: one does.
    fn make_room(&self, now: Millis) -> bool {
        let Some(slots) = self.lock_slots().filter(|_| self.queue.is_waiting()) else {
            return false;
        };
        slots.evict_oldest(Millis(now.0.saturating_sub(IDLE_MIN_MS)));
        true
    }

    fn lock_slots(&self) -> Option<MutexGuard<'_, IdleSlots>> {
        let slots = self.slots.as_ref()?;
        Some(slots.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn work<H: Handler>(site: &Arc<Site<H>>, shared: &Shared) -> io::Result<()> {
    let mut thread =
        ThreadContext::with_read_buffer(site, Role::Thread, connection_thread::READ_BUFFER_BYTES);
    let mut busy = BusyTime::default();
    while let Some(popped) = shared.queue.pop(busy, || site.clock.now_us()) {
        busy = BusyTime::default();
        thread.row.queue_wait_us.add(popped.waited_us);
        if popped.has_left {
            thread.row.abandoned.add(1);
            connection_thread::close(popped.waiting, &mut thread);
            continue;
        }
        busy = serve(popped.waiting, site, shared, &mut thread);
    }
    Ok(())
}

fn serve<H: Handler>(
    waiting: Waiting,
    site: &Site<H>,
    shared: &Shared,
    thread: &mut ThreadContext<H>,
) -> BusyTime {
    let Waiting {
        accepted, record, ..
    } = waiting;
    let Some(mut slots) = shared.lock_slots() else {
        return connection_thread::serve_accepted(&accepted, record, site, thread);
    };
    let slot = Slot::new(accepted);
    let token = slots.insert(&slot);
    drop(slots);
    let guard = Share {
        slot: &slot,
        queue: &shared.queue,
        since: thread.tick(),
    };
    let verdict = Verdict::Admit;
    let busy = connection_thread::serve(&slot.accepted, site, thread, &guard, verdict, record);
    if let Some(mut slots) = shared.lock_slots() {
        slots.remove(token);
    }
    busy
}

/// A connection's share of its thread.
struct Share<'s> {
    slot: &'s Slot,
    queue: &'s ConnectionQueue,
    since: Millis,
}

impl IdleGuard for Share<'_> {
    fn rest(&self, now: Millis) {
        self.slot.rest(now);
    }

    fn resume(&self) -> bool {
        self.slot.resume()
    }

    fn is_to_yield(&self, now: Millis) -> bool {
        self.queue.is_share_used_up(now.since(self.since))
    }
}
