//! A blocking thread for each connection, up to a cap (P5).
//!
//! At the cap the oldest idle connection makes room; if none is idle, the new connection gets a 503. Its
//! honest weakness: memory and scheduling for every connection, idle or not.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use loadline_base::{LogLimit, MemoryPressure, Millis, Token};
use loadline_proto::Handler;
use loadline_sys::Accepted;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::admission::{Admission, Kind, Load, Verdict};
use crate::architecture::idle_slots::{IdleSlots, Slot};
use crate::connection_thread::{self, Hold};
use crate::memory::{THREAD_CLOSES_MAX, latest_idle};
use crate::shutdown::Stage;
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::telemetry::log;
use crate::thread::context::ThreadContext;
use crate::thread::group::{Member, STACK_BYTES, ThreadGroup};

/// Kits of ended threads that are kept for new ones: as many as come and go in a moment.
const SPARE_CONTEXTS_MAX: usize = 256;

pub(crate) fn run<H: Handler>(
    site: &Arc<Site<H>>,
    listeners: Vec<Listener>,
    started: Started,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(listeners, AtLimit::Refuse, &site.descriptor_log_after)?;
    let mut thread = ThreadContext::new(site, Role::Acceptor);
    let connections = Connections {
        site: Arc::clone(site),
        threads: ThreadGroup::new()?,
        shared: Arc::default(),
    };
    started.tell();
    loop {
        let seen = site.shutdown.stage();
        if site.shutdown.is_cut(thread.tick()) {
            break;
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        let row = Arc::clone(&thread.row);
        match acceptor.next(thread.now(), &row)? {
            Some(NewConnection::Regular(accepted)) => connections.admit(accepted, &mut thread),
            Some(NewConnection::LastDescriptor(accepted)) => {
                // It holds the last descriptor: one that is let go makes room for the next.
                if connections.shared.evict() {
                    acceptor.resume();
                    connections.slot(accepted, Verdict::Admit, &mut thread);
                } else {
                    connection_thread::refuse_at_once(&accepted, site, &mut thread);
                }
            }
            None if acceptor.is_drained() => break,
            None => {
                thread.offer_log();
                acceptor.wait(thread.now(), site.shutdown.next_fd(seen))?;
            }
        }
    }
    drop(acceptor);
    drop(thread);
    connections.threads.wait_empty(site)
}

/// Where connections are served.
struct Connections<H: Handler> {
    site: Arc<Site<H>>,
    threads: Arc<ThreadGroup>,
    shared: Arc<Shared<H>>,
}

/// What serving threads share with the accepting one.
struct Shared<H: Handler> {
    slots: Mutex<Slots>,
    spare_contexts: Mutex<Vec<ThreadContext<H>>>,
}

impl<H: Handler> Default for Shared<H> {
    fn default() -> Self {
        Self {
            slots: Mutex::default(),
            spare_contexts: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Slots {
    occupied: IdleSlots,
    /// Slots of evicted connections whose threads have not ended yet.
    leaving: usize,
    /// Slots of connections that are being refused.
    refusals: usize,
}

impl<H: Handler> Connections<H> {
    /// Decides on a new connection.
    fn admit(&self, accepted: Accepted, thread: &mut ThreadContext<H>) {
        let pressure = self.site.memory.pressure();
        if pressure >= MemoryPressure::Idle {
            self.shared.evict_since(latest_idle(thread.now()));
        }
        let mut load = {
            let slots = self.shared.lock();
            Load {
                is_memory_full: pressure == MemoryPressure::Full,
                connections: slots.occupied.len() - slots.leaving - slots.refusals,
                refusals: slots.refusals,
                ..Load::default()
            }
        };
        let admission = Admission::new(self.site.options.connections_max);
        let mut verdict = admission.decide(Kind::Connection, &load);
        if verdict != Verdict::Admit && !load.is_memory_full {
            load.has_idle = self.shared.evict();
            verdict = admission.decide(Kind::Connection, &load);
        }
        match verdict {
            Verdict::Admit | Verdict::EvictIdle | Verdict::EvictOf { .. } => {
                self.slot(accepted, Verdict::Admit, thread)
            }
            Verdict::Refuse => self.slot(accepted, Verdict::Refuse, thread),
            Verdict::Drop | Verdict::Queue => {
                connection_thread::refuse_at_once(&accepted, &self.site, thread);
            }
        }
    }

    /// Gives a connection a thread of its own.
    fn slot(&self, accepted: Accepted, verdict: Verdict, thread: &mut ThreadContext<H>) {
        let slot = Slot::new(accepted);
        let token = {
            let mut slots = self.shared.lock();
            slots.refusals += usize::from(verdict == Verdict::Refuse);
            slots.occupied.insert(&slot)
        };
        let site = Arc::clone(&self.site);
        let taken = ThreadSlot {
            shared: Arc::clone(&self.shared),
            token,
            verdict,
            slot: Arc::clone(&slot),
            _member: self.threads.enter(),
        };
        let spawned = thread::Builder::new()
            .name("connection".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let ThreadSlot { shared, slot, .. } = &taken;
                let guard = &taken;
                let mut thread = shared.take_context(&site);
                let accepted = &slot.accepted;
                thread.tick();
                let record = thread.journal_accepted(accepted.peer);
                connection_thread::serve(accepted, &site, &mut thread, guard, verdict, record);
                shared.give_context(thread);
                drop(taken); // all of it, also its member of the threads
            });
        let Err(error) = spawned else { return };
        static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
        log::say_within(&LIMIT, |more| {
            tracing::warn!(
                "a connection was refused, since no thread can be started: {error}{more}"
            );
        });
        if let Some(slot) = Arc::into_inner(slot) {
            connection_thread::refuse_at_once(&slot.accepted, &self.site, thread);
        }
    }
}

impl<H: Handler> Shared<H> {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts the connection that is idle the longest, if any is.
    fn evict(&self) -> bool {
        self.evict_since(Millis(u64::MAX))
    }

    /// The same if it has been idle since `latest` at least.
    fn evict_since(&self, latest: Millis) -> bool {
        let mut slots = self.lock();
        let is_evicted = slots.occupied.evict_oldest(latest);
        slots.leaving += usize::from(is_evicted);
        is_evicted
    }

    /// A thread is done with its slot.
    fn leave(&self, token: Token, verdict: Verdict) {
        let mut slots = self.lock();
        let Some(slot) = slots.occupied.remove(token) else {
            return;
        };
        slots.refusals -= usize::from(verdict == Verdict::Refuse);
        slots.leaving -= usize::from(slot.is_evicted());
    }

    fn take_context(&self, site: &Site<H>) -> ThreadContext<H> {
        let spare = {
            let mut contexts = self
                .spare_contexts
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            contexts.pop()
        };
        spare.unwrap_or_else(|| {
            ThreadContext::with_read_buffer(
                site,
                Role::Thread,
                connection_thread::READ_BUFFER_BYTES,
            )
        })
    }

    fn give_context(&self, thread: ThreadContext<H>) {
        let mut contexts = self
            .spare_contexts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if contexts.len() < SPARE_CONTEXTS_MAX {
            contexts.push(thread);
        }
    }
}

/// A slot and the thread on it; dropped, however the thread ends, the slot is free again.
struct ThreadSlot<H: Handler> {
    shared: Arc<Shared<H>>,
    token: Token,
    verdict: Verdict,
    /// The last of it closes the socket, before the threads counts one less.
    slot: Arc<Slot>,
    _member: Member,
}

impl<H: Handler> Hold for ThreadSlot<H> {
    const GIVES_BACK: bool = Slot::GIVES_BACK;

    fn rest(&self, now: Millis, deadline: Option<Millis>) -> bool {
        self.slot.rest(now, deadline)
    }

    fn rest_holding(&self, since: Millis, deadline: Option<Millis>) -> bool {
        self.slot.rest_holding(since, deadline)
    }

    fn resume(&self) -> bool {
        self.slot.resume()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.slot.socket()
    }

    fn relieve(&self) {
        let mut slots = self.shared.lock();
        slots.leaving += slots.occupied.evict_holding(THREAD_CLOSES_MAX);
    }
}

impl<H: Handler> Drop for ThreadSlot<H> {
    fn drop(&mut self) {
        self.shared.leave(self.token, self.verdict);
    }
}
