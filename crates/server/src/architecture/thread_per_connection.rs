//! A blocking thread for each connection, up to a cap (P5).
//!
//! At the cap a connection of the client that has most of them makes room, or, while no client has more
//! than its share, the one that is idle the longest; otherwise the new connection gets a 503. Its
//! honest weakness: memory and scheduling for every connection, idle or not.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use loadline_base::{LogLimit, MemoryBudget, MemoryPressure, Millis, Token};
use loadline_proto::{CloseReason, Handler};
use loadline_sys::Accepted;

use crate::Listener;
use crate::accept::acceptor::{Acceptor, AtLimit, NewConnection};
use crate::admission::{Admission, Verdict, refused_for};
use crate::blocking::connection_slots::{New, Slot, Slots};
use crate::blocking::spare_threads::{self, SpareThreads};
use crate::connection_thread::{self, Hold, Resting};
use crate::fairness::ClientKey;
use crate::shutdown::Stage;
use crate::site::{Site, Started};
use crate::telemetry::counters::Role;
use crate::telemetry::log;
use crate::thread::context::ThreadContext;
use crate::thread::group::{STACK_BYTES, ThreadGroup, ThreadGuard};
use crate::thread::time_slices::{self, TimeSlices};

/// Contexts of ended threads that are kept for new ones: as many as come and go in a moment.
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
        shared: Arc::new(Shared::new(site)),
    };
    started.notify();
    loop {
        let seen = site.shutdown.stage();
        if site.shutdown.is_cut(thread.tick()) {
            break;
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        match acceptor.next(thread.now(), &thread.stats)? {
            Some(NewConnection::Regular(accepted)) => {
                connections.admit(accepted, false, &mut thread);
            }
            Some(NewConnection::LastDescriptor(accepted)) => {
                // It holds the last descriptor: one that is let go makes room for the next.
                if connections.admit(accepted, true, &mut thread) {
                    acceptor.resume();
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
    connections.shared.spare_threads.close();
    connections.threads.wait_empty(site)?;
    connections.shared.close();
    Ok(())
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
    spare_threads: SpareThreads<Served<H>>,
    spare_contexts: Mutex<Vec<ThreadContext<H>>>,
    time_slices: TimeSlices,
}

/// A connection for a thread.
struct Served<H: Handler> {
    held: ThreadSlot<H>,
    /// It gets a 503, for this reason.
    refused: Option<CloseReason>,
}

impl<H: Handler> Connections<H> {
    /// Decides on a new connection. `true`: another one makes room for it.
    fn admit(
        &self,
        accepted: Accepted,
        is_last_descriptor: bool,
        thread: &mut ThreadContext<H>,
    ) -> bool {
        let (memory, now) = (&self.site.memory, thread.now());
        if memory.pressure() >= MemoryPressure::Idle {
            self.shared.relieve(memory, now);
        }
        let new = New {
            client: thread.config().client(accepted.listener, accepted.peer),
            is_last_descriptor,
            is_memory_full: memory.pressure() == MemoryPressure::Full,
            is_draining: !is_last_descriptor && self.site.shutdown.is_draining(),
            now,
        };
        let admission = Admission::new(self.site.options.connections_max);
        let decision = self.shared.lock().decide(admission, new);
        (thread.stats.refused_over_share).add(u64::from(decision.is_over_share));
        let reason = refused_for(new.is_memory_full);
        match decision.verdict {
            Verdict::Admit => self.slot(accepted, new.client, None, thread),
            Verdict::Refuse if !is_last_descriptor => {
                self.slot(accepted, ClientKey::NOBODY, Some(reason), thread);
            }
            _ => connection_thread::refuse_at_once(&accepted, reason, thread),
        }
        decision.has_made_room
    }

    /// Gives a connection a thread of its own, also to refuse it.
    fn slot(
        &self,
        accepted: Accepted,
        client: ClientKey,
        refused: Option<CloseReason>,
        thread: &mut ThreadContext<H>,
    ) {
        let is_refused = refused.is_some();
        let (token, slot) = self.shared.lock().insert(accepted, client, is_refused);
        let site = Arc::clone(&self.site);
        let held = ThreadSlot {
            shared: Arc::clone(&self.shared),
            token,
            slot: Arc::clone(&slot),
            _guard: self.threads.enter(),
        };
        let shared = &self.shared;
        if self.site.in_progress.is_some() && self.threads.live() >= time_slices::MANY {
            shared.time_slices.shorten();
        }
        let Some(first) = shared.spare_threads.give(Served { held, refused }) else {
            return;
        };
        let shared = Arc::clone(shared);
        let spawned = thread::Builder::new()
            .name("connection".into())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.serve(first, &site));
        let Err(error) = spawned else { return };
        static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
        log::say_within(&LIMIT, |more| {
            tracing::warn!(
                "a connection was refused, since no thread can be started: {error}{more}"
            );
        });
        if let Some(slot) = Arc::into_inner(slot) {
            let reason = refused.unwrap_or(CloseReason::Refused);
            connection_thread::refuse_at_once(&slot.accepted, reason, thread);
        }
    }
}

impl<H: Handler> Shared<H> {
    fn new(site: &Site<H>) -> Self {
        let spare_threads_max = match site.in_progress {
            Some(_) => spare_threads::THREADS_MAX,
            None => 0,
        };
        Self {
            slots: Mutex::new(Slots::new(site.options.fairness)),
            spare_threads: SpareThreads::new(spare_threads_max),
            spare_contexts: Mutex::default(),
            time_slices: TimeSlices::default(),
        }
    }

    /// A thread's work: its connection, and others after it.
    fn serve(&self, first: Served<H>, site: &Arc<Site<H>>) {
        let _sliced = self.time_slices.enter();
        let mut thread = self.take_context(site);
        thread.stats.runs_here();
        let mut served = first;
        let idle = loop {
            let Served { held, refused } = served;
            let accepted = &held.slot.accepted;
            thread.tick();
            let record = thread.log_accepted(accepted.peer);
            connection_thread::serve(accepted, &mut thread, &held, refused, record);
            if site.memory.pressure() >= MemoryPressure::Spare {
                return drop((thread, held));
            }
            let idle = self.spare_threads.idle();
            drop(held); // all of it, also its guard in the group of threads
            served = match idle.wait() {
                Ok(next) => next,
                Err(idle) => break idle,
            };
        };
        match idle.is_closed() {
            true => drop(thread),
            false => self.give_context(thread),
        }
    }

    /// No connection is left. What is kept for others goes.
    fn close(&self) {
        self.spare_threads.close();
        self.lock_contexts().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory is short. `false`: too little can be freed for anything that would need more.
    fn relieve(&self, memory: &MemoryBudget, now: Millis) -> bool {
        self.lock().relieve(memory, now)
    }

    fn lock_contexts(&self) -> MutexGuard<'_, Vec<ThreadContext<H>>> {
        (self.spare_contexts.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn take_context(&self, site: &Arc<Site<H>>) -> ThreadContext<H> {
        let spare = self.lock_contexts().pop();
        spare.unwrap_or_else(|| {
            ThreadContext::with_read_buffer(
                site,
                Role::Thread,
                connection_thread::READ_BUFFER_BYTES,
            )
        })
    }

    fn give_context(&self, thread: ThreadContext<H>) {
        thread.stats.set_aside();
        let mut contexts = self.lock_contexts();
        if contexts.len() < SPARE_CONTEXTS_MAX {
            contexts.push(thread);
        }
    }
}

/// A slot and the thread on it; dropped, however the thread ends, the slot is free again.
struct ThreadSlot<H: Handler> {
    shared: Arc<Shared<H>>,
    token: Token,
    /// The last of it closes the socket, before the threads counts one less.
    slot: Arc<Slot>,
    _guard: ThreadGuard,
}

impl<H: Handler> Hold for ThreadSlot<H> {
    const GIVES_BACK: bool = Slot::GIVES_BACK;

    fn rest(&self, resting: &Resting) -> bool {
        self.slot.rest(resting)
    }

    fn resume(&self) -> bool {
        self.slot.resume()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.slot.socket()
    }

    fn has_lost(&self) -> Option<CloseReason> {
        self.slot.has_lost()
    }

    fn relieve(&self, memory: &MemoryBudget, now: Millis) -> bool {
        self.shared.relieve(memory, now)
    }
}

impl<H: Handler> Drop for ThreadSlot<H> {
    fn drop(&mut self) {
        self.shared.lock().remove(self.token);
    }
}
