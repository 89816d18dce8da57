//! A worker: what it owns, and how it carries jobs out, one after the other.
//!
//! With `--socket-io worker` a job is a connection, served from reading to writing; with `--parse worker` it may be what
//! a connection has received, from parsing to a response that its loop sends. Where threads serve whole
//! connections, a worker keeps one while its client is silent and no other job waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use loadline_base::{LogLimit, MemoryAccount, Token};
use loadline_proto::{CloseReason, Exchange, Handler, Offload, Status, spread_retry_after_s};

use super::{Control, Workers, lock};
use crate::config::Steps;
use crate::connection::{Blocked, Placement, Step, TaskStart, offload};
use crate::connection_thread::{self, BusyTime, Left, serve_while_held};
use crate::fairness::lanes::{Charge, Lane};
use crate::memory::thread_bytes;
use crate::overload::JobWait;
use crate::site::Site;
use crate::telemetry::counters::{Registry, Role, ThreadStats};
use crate::telemetry::log;
use crate::thread::context::{READ_BUFFER_BYTES, ThreadContext};
use crate::worker::holding::{Held, Holders};
use crate::worker::job::{After, Job, Message, Served, Work};
use crate::worker::job_queue::source::{JobSource, Taken};
use crate::worker::mailbox::Mailbox;
use crate::worker::meter::Meter;

/// What one worker owns.
pub(crate) struct WorkerThread<H: Handler> {
    source: JobSource<Job>,
    pub(super) stats: Arc<ThreadStats>,
    pool_stats: Arc<ThreadStats>,
    /// Files are read through it.
    read_buffer: Vec<u8>,
    control: Control,
    holders: Option<Arc<Holders>>,
    /// If the number of workers changes.
    meter: Option<Arc<Meter>>,
    registry: Arc<Registry>,
    /// Only where workers parse.
    thread: Option<ThreadContext<H>>,
    /// What it takes of the memory of the process, unless its thread's context counts that.
    _memory: Option<MemoryAccount>,
}

impl<H: Handler> WorkerThread<H> {
    pub(super) fn new(site: &Arc<Site<H>>, source: JobSource<Job>) -> Self {
        let thread = match (site.options.threads_share(), site.options.workers_parse()) {
            (true, _) => {
                let bytes = connection_thread::READ_BUFFER_BYTES;
                Some(ThreadContext::with_read_buffer(site, Role::Thread, bytes))
            }
            (false, true) => Some(ThreadContext::new(site, Role::Worker)),
            (false, false) => None,
        };
        let stats = match &thread {
            Some(thread) => Arc::clone(&thread.stats),
            None => site.registry.thread_stats(Role::Worker),
        };
        let read_buffer = match &thread {
            Some(_) => Vec::new(),
            None => vec![0; READ_BUFFER_BYTES],
        };
        let memory = thread.is_none().then(|| {
            let bytes = thread_bytes(Role::Worker, site.options.architecture, READ_BUFFER_BYTES);
            let mut memory = MemoryAccount::of_one(&site.memory);
            memory.change(0, bytes);
            memory
        });
        Self {
            source,
            pool_stats: Arc::clone(&stats),
            stats,
            read_buffer,
            control: None,
            holders: None,
            meter: None,
            registry: Arc::clone(&site.registry),
            thread,
            _memory: memory,
        }
    }

    /// Makes it one of a pool.
    pub(super) fn join(&mut self, workers: &Workers) {
        self.pool_stats = Arc::clone(&workers.stats);
        self.control.clone_from(&workers.control);
        self.holders.clone_from(&workers.holders);
        self.meter.clone_from(&workers.meter);
    }

    pub(super) fn work(mut self, site: &Site<H>) {
        // So that a handler's sleep ends when it should: the default lets it be 50 us late.
        if let Err(error) = loadline_sys::usage::sleep_precisely() {
            log::say(|| tracing::warn!("sleeps of workers may be 50 us late: {error}"));
        }
        self.stats.runs_here();
        let metered = self.meter.as_ref().map(|meter| meter.enter(&self.stats));
        // A connection that a worker keeps does not keep the worker busy all the time.
        let keeps_connections = self.holders.is_some();
        let now_us = || match keeps_connections {
            true => 0,
            false => site.clock.now_us(),
        };
        while let Some(taken) = self.source.take(now_us) {
            self.carry_out(taken, site);
        }
        // A job may have counted on this worker: then another one gives up its connection for it.
        if let Some(holders) = &self.holders
            && self.source.depth() > 0
        {
            holders.free_one();
        }
        drop(metered);
    }

    /// Its number in the pool.
    pub(super) fn index(&self) -> usize {
        let (_, index) = self.source.place();
        index
    }

    /// Whether a job comes too late, or its client has left: then it is answered with 503.
    fn is_in_vain(&self, work: &mut Work, charge: &Charge, now_us: u64, waited: JobWait) -> bool {
        let Some(control) = &self.control else {
            // Without a goal requests are carried out, whoever waits for them; a handshake serves nobody else.
            let is_in_vain = matches!(work, Work::Compute(..)) && work.is_abandoned(false);
            self.stats.abandoned.add(u64::from(is_in_vain));
            return is_in_vain;
        };
        let mut control = lock(control);
        let depth = self.source.depth();
        let can_be_refused = work.can_be_refused();
        let taken = match can_be_refused {
            true => control.take(now_us, charge, waited, depth),
            false => {
                control.take_begun(now_us, charge, waited, depth);
                Ok(())
            }
        };
        let waited_long = control.of(charge.flow.lane).is_long(waited.in_all_us());
        drop(control);
        if work.is_abandoned(waited_long) {
            work.refuse(spread_retry_after_s(now_us));
            let is_request = !work.is_unparsed();
            self.stats.abandoned.add(u64::from(is_request));
            if is_request && can_be_refused && taken.is_ok() {
                self.control
                    .iter()
                    .for_each(|it| lock(it).not_taken(charge));
            }
            return is_request; // a connection may have been half-closed only: its requests get their 503
        }
        match taken {
            Err(retry_after_s) => {
                work.refuse(retry_after_s);
                // Which requests a connection has is not known yet: it is still to be served.
                let is_request = !work.is_unparsed();
                self.stats.refused_late.add(u64::from(is_request));
                is_request
            }
            Ok(()) => false,
        }
    }

    /// The next job, if there is one.
    #[cfg(test)]
    pub(crate) fn try_take(&self, now_us: u64) -> Option<Taken<Job>> {
        self.source.try_take(now_us)
    }

    /// Carries a job out, and gives it back to its loop, unless it is a task that waits.
    pub(crate) fn carry_out(&mut self, taken: Taken<Job>, site: &Site<H>) {
        let Taken {
            job,
            stolen,
            charge,
        } = taken;
        let began_us = site.clock.now_us();
        self.pool_stats.queue_depth.sub(1);
        self.stats.steals.add(u64::from(stolen));
        let (waited, ready_us) = (job.waited(began_us), job.ready_us());
        self.note_wait(waited.here_us);
        let Job {
            mut work,
            token,
            reply,
            ..
        } = job;
        work.delayed(ready_us, waited.here_us);
        if self.is_in_vain(&mut work, &charge, began_us, waited) {
            self.source.not_done(charge);
            return reply.post(Message::Done { token, work });
        }
        if let (Work::Serve(served), Some(holders)) = (&mut work, self.holders.clone()) {
            let busy = self.keep(served, token, &holders, &reply);
            self.learn(site.clock.now_us(), &charge, job.handshake_us, busy);
            match busy.periods {
                0 => self.source.not_done(charge),
                _ => self.source.done(charge, busy.of(charge.flow.lane)),
            }
            if busy.has_rested {
                self.source.rested();
            }
            return reply.post(Message::Done { token, work });
        }
        self.stats.job_began_us.set(began_us);
        // Nobody needs it any more: that it takes next to no time says nothing of others.
        let is_dropped = match &work {
            Work::Task(task) => task.is_cancelled(),
            Work::Offload(computation, _) => computation.is_abandoned(),
            _ => false,
        };
        // What a panic leaves half done is this job's, which ends here.
        let carry_out = AssertUnwindSafe(|| self.perform(&mut work, ready_us));
        let polled = catch_unwind(carry_out).unwrap_or_else(|panic| {
            give_up(&mut work, log::panic_text(panic.as_ref()));
            Poll::Ready(())
        });
        let ended_us = site.clock.now_us();
        let took_us = ended_us.saturating_sub(began_us);
        self.stats.job_began_us.set(0);
        self.stats.busy_us.add(took_us);
        match is_dropped {
            true => self.source.not_done(charge),
            false => self.done(&work, charge, job.handshake_us, ended_us, took_us),
        }
        if polled.is_ready() {
            reply.post(Message::Done { token, work });
        }
    }

    /// What the job is. `Pending`: a task that waits.
    fn perform(&mut self, work: &mut Work, ready_us: u64) -> Poll<()> {
        match (work, &mut self.thread) {
            (Work::Block(exchange, steps), _) => steps.handle_blocking(exchange),
            (Work::Prefetch(range), Some(thread)) => {
                range.prefetch(thread.borrow().read_buffer);
            }
            (Work::Prefetch(range), None) => range.prefetch(&mut self.read_buffer),
            (Work::Compute(computation, _), _) => computation.carry_out(),
            (Work::Serve(served), Some(thread)) => {
                thread.tick();
                serve(served, thread);
                thread.end_turn();
            }
            (Work::Task(task), _) => {
                let begins = task.is_new() && !task.is_abandoned(false);
                self.stats.app_requests.add(u64::from(begins));
                return task.poll();
            }
            (Work::Offload(computation, refusing), Some(thread)) => {
                thread.tick();
                thread.received_since(ready_us);
                thread.refusing = refusing.take();
                offload::carry_out(&mut **computation, true, thread);
                thread.refusing = None;
                thread.end_turn();
            }
            (Work::Serve(_) | Work::Offload(..), None) => {
                unreachable!("ordered by `--socket-io worker` and `--parse worker` alone")
            }
        }
        Poll::Ready(())
    }

    /// A job that was carried out has kept this worker for so long.
    fn done(
        &mut self,
        work: &Work,
        charge: Charge,
        handshake_us: u64,
        ended_us: u64,
        took_us: u64,
    ) {
        self.stats.jobs.add(1);
        let is_step = matches!(work, Work::Block(..) | Work::Task(_));
        self.stats.steps.add(u64::from(is_step));
        if let (Work::Task(_), Some(thread)) = (work, &mut self.thread) {
            thread.app_took(took_us);
        }
        if let Some(control) = &self.control {
            lock(control).done(ended_us, &charge, handshake_us, took_us);
        }
        self.source.done(charge, took_us);
        self.stats.job_times().add(took_us, 1);
    }

    fn note_wait(&self, waited_us: u64) {
        self.stats.note_wait(waited_us);
        if self.meter.is_some() {
            self.stats.job_waits().add(waited_us, 1);
        }
    }

    /// Serves a connection, and waits with it for its client while nothing else is to be done. Returns for
    /// how long it was busy, unless it has sent nothing: that says nothing of others.
    fn keep(
        &mut self,
        served: &mut Served,
        token: Token,
        holders: &Holders,
        mailbox: &Mailbox<Message>,
    ) -> BusyTime {
        let (Some(connection), Some(thread)) = (&mut served.connection, &mut self.thread) else {
            served.after = After::Close;
            return BusyTime::default();
        };
        let (queue, index) = self.source.place();
        let hold = Held::new(holders, index, queue, mailbox).with_home(served.home.as_ref(), token);
        thread.begin_busy();
        thread.refusing = served.refusing.take();
        if let Some(ready_us) = served.ready_us {
            thread.received_since(ready_us);
        }
        if let Some(memory) = &mut served.memory {
            memory.empty();
        }
        connection.transport_mut().move_to_thread();
        let requests = self.stats.core.requests();
        let serve = AssertUnwindSafe(|| serve_while_held(connection, thread, &hold));
        let left = catch_unwind(serve);
        thread.end_busy();
        thread.refusing = None;
        connection.transport_mut().move_to_loop();
        let mut busy_time = BusyTime::default();
        served.after = match left {
            Ok((left, busy)) => {
                if busy.rests > 0 || self.stats.core.requests() > requests {
                    served.ready_us = None;
                }
                if !connection.is_before_handshake() {
                    busy_time = busy;
                }
                self.stats.jobs.add(1);
                match left {
                    Left::AtEnd => After::Close,
                    Left::Waiting => After::Wait,
                    Left::Unfinished => After::Again,
                    Left::AtStart(exchange, steps) => After::Start(exchange, steps),
                    Left::AtStep(exchange, steps) => After::Block(exchange, steps),
                }
            }
            Err(panic) => {
                connection_thread::give_up(connection, log::panic_text(panic.as_ref()));
                connection.drop_tasks();
                After::Close
            }
        };
        busy_time
    }

    /// A connection was served, and kept while no other waited. What came behind a handshake was none.
    fn learn(&self, now_us: u64, charge: &Charge, handshake_us: u64, busy: BusyTime) {
        let Some(control) = self.control.as_ref().filter(|_| busy.periods > 0) else {
            return;
        };
        let mut control = lock(control);
        if charge.flow.lane != Lane::Handshakes {
            return control.done_many(now_us, charge, handshake_us, (busy.periods, busy.us));
        }
        control.done_many(now_us, charge, handshake_us, (1, busy.handshake_us));
        let behind = busy.behind_handshake();
        if behind != (0, 0) {
            control.done_many(now_us, &Charge::of(Lane::Files), 1, behind);
        }
    }
}

impl<H: Handler> Drop for WorkerThread<H> {
    fn drop(&mut self) {
        if self.thread.is_none() {
            self.registry.release(Role::Worker, Arc::clone(&self.stats));
        }
    }
}

/// Makes of a job that has panicked what its loop can end: an answer, or a connection to be closed.
#[cold]
fn give_up(work: &mut Work, text: &str) {
    static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
    log::say_within(&LIMIT, |more| {
        tracing::error!("a worker's job panicked: {text}{more}");
    });
    match work {
        Work::Block(exchange, _) => exchange.response.error(Status::INTERNAL_SERVER_ERROR),
        Work::Serve(served) => served.after = After::Close,
        Work::Offload(computation, _) => {
            if let Some(offload) = Offload::of(&mut **computation) {
                offload.give_up();
            }
        }
        Work::Task(task) => task.end(),
        Work::Compute(..) => {} // the session finds it undone
        Work::Prefetch(_) => {} // the loop meets again what was not read
    }
}

/// A connection from reading to writing, on a thread that may block.
fn serve<H: Handler>(served: &mut Served, thread: &mut ThreadContext<H>) {
    let Some(connection) = &mut served.connection else {
        served.after = After::Close;
        return;
    };
    thread.refusing = served.refusing.take();
    if let Some(ready_us) = served.ready_us {
        thread.received_since(ready_us);
    }
    if thread.site.shutdown.is_draining() {
        connection.drain(true, &mut (), &mut thread.cx()); // the loop may not have had it
    }
    let requests = thread.stats.core.requests();
    served.after = match connection.drive(thread, &mut (), &mut OnWorker) {
        Step::Wait => After::Wait,
        Step::Again => After::Again,
        Step::Start(exchange, steps) => After::Start(exchange, steps),
        Step::Block(exchange, steps) => After::Block(exchange, steps),
        Step::Close => After::Close,
    };
    if thread.stats.core.requests() > requests {
        served.ready_us = None; // the next one may have come since
    }
    thread.refusing = None;
    count(served, thread);
}

/// What is received for a connection counts as soon as this thread is done with it: many may hold megabytes each
/// before their loop takes them back.
fn count<H: Handler>(served: &mut Served, thread: &mut ThreadContext<H>) {
    const BYTES_MIN: usize = 64 << 10;
    let Some(connection) = &mut served.connection else {
        return;
    };
    let held_bytes = connection.held_bytes();
    if held_bytes < BYTES_MIN {
        return;
    }
    let budget = &thread.site.memory;
    let memory = served
        .memory
        .get_or_insert_with(|| MemoryAccount::of_one(budget));
    memory.empty(); // of what it held before
    memory.change(0, held_bytes as u64);
    let awaits_client = connection.awaits_client_since::<()>().is_some();
    if matches!(served.after, After::Wait) && awaits_client && budget.is_used_up() {
        connection.abort_and_release(CloseReason::Memory, &mut thread.cx());
        memory.empty();
        served.after = After::Close;
    }
}

/// Where a worker that serves a connection has its work done: here. The loop serves a connection
/// with a task itself, until that has ended, and one of whose requests several may be in progress.
struct OnWorker;

impl<H: Handler> Placement<H> for OnWorker {
    fn block(
        &mut self,
        mut exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked {
        if exchange.is_multiplexed() {
            return Blocked::Elsewhere(exchange, steps);
        }
        steps.handle_blocking(&mut exchange);
        thread.tick();
        Blocked::Done(exchange)
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        _thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        TaskStart::Elsewhere(exchange, steps)
    }
}

#[cfg(test)]
mod tests;
