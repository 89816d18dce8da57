//! One connection on one blocking thread, from its first byte to its last.
//!
//! The thread waits in `poll` for the socket and the next stage of a shutdown, until the session's
//! deadline; then it reads or writes without waiting. So a deadline holds to the millisecond, and a
//! drain reaches every thread at once, without signals or time limits on the socket.
//!
//! Where many requests of a connection may be in progress (HTTP/2), they wait in a queue of the connection
//! for its thread (`stream_queue`). Between two of them it sends what is done and receives what has come.

mod busy_time;
mod hold;
mod on_thread;
mod refusal;
mod steps;
mod stream_queue;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loadline_base::{LogLimit, MemoryPressure, Millis};
use loadline_proto::{CloseReason, ConnectionRecord, Exchange, Handler, RECEIVE_BYTES};
use loadline_sys::{Accepted, Waker, poll, wait_socket};

use crate::accept::acceptor::{Acceptor, NewConnection};
use crate::config::Steps;
use crate::connection::{Connection, Step};
use crate::fairness::Occupation;
use crate::memory::Footprint;
use crate::overload::Permit;
use crate::shutdown::Stage;
use crate::telemetry::log;
use crate::thread::context::ThreadContext;
use crate::transport::socket::{Readiness, Socket};
pub(crate) use busy_time::BusyTime;
use busy_time::ServiceTime;
use hold::Forever;
pub(crate) use hold::{Hold, Resting};
use on_thread::{JUST_WOKEN_US, OnThread, Received, Work};
pub(crate) use refusal::refuse_at_once;
use stream_queue::StreamQueue;

/// Read buffer of a blocking thread: 16 KiB, since there may be thousands of them. A request with
/// less than that costs one call.
pub(crate) const READ_BUFFER_BYTES: usize = 16 << 10;

const _: () = assert!(READ_BUFFER_BYTES.is_multiple_of(RECEIVE_BYTES));

/// How a thread has left a connection.
#[derive(Debug)]
pub(crate) enum Left {
    /// To be closed.
    AtEnd,
    /// Others wait for the thread; there is nothing to do for this one before an event.
    Waiting,
    /// The same, and there is more to do.
    Unfinished,
    /// Before an app's task is started, which is to wait for a thread by itself.
    AtStart(Box<Exchange>, Arc<dyn Steps>),
    /// Before a blocking step, likewise.
    AtStep(Box<Exchange>, Arc<dyn Steps>),
}

/// Waits for the next connection; `None` at the end of a drain.
pub(crate) fn next_accepted<H: Handler>(
    acceptor: &mut Acceptor,
    thread: &mut ThreadContext<H>,
) -> io::Result<Option<Accepted>> {
    loop {
        let now = thread.tick();
        let shutdown = &thread.site.shutdown;
        let seen = shutdown.stage();
        if shutdown.is_cut(now) {
            return Ok(None);
        }
        if seen != Stage::Up {
            acceptor.begin_drain();
        }
        match acceptor.next(now, &thread.stats)? {
            Some(NewConnection::Regular(accepted) | NewConnection::LastDescriptor(accepted)) => {
                return Ok(Some(accepted));
            }
            None if acceptor.is_drained() => return Ok(None),
            None => acceptor.wait(now, shutdown.next_fd(seen))?,
        }
    }
}

/// Serves a connection that keeps this thread until its end. The caller has noted it in the connection log,
/// with this record.
pub(crate) fn serve_accepted<H: Handler>(
    accepted: &Accepted,
    record: Option<Box<ConnectionRecord>>,
    thread: &mut ThreadContext<H>,
) {
    let hold = Forever {
        socket: accepted.socket.as_fd(),
    };
    serve(accepted, thread, &hold, None, record);
}

/// Serves a connection until its end; one that is `refused`, for this reason, gets a 503. The caller has noted it in
/// the connection log, and closes the socket.
pub(crate) fn serve<H: Handler, T: Hold>(
    accepted: &Accepted,
    thread: &mut ThreadContext<H>,
    hold: &T,
    refused: Option<CloseReason>,
    record: Option<Box<ConnectionRecord>>,
) {
    thread.begin_busy();
    thread.stats.connections.add(1);
    let transport = Socket::of_thread(accepted.socket.as_fd());
    let mut connection = Connection::new(transport, accepted.into(), record, thread);
    if let Some(reason) = refused {
        connection.refuse(reason, &mut thread.cx());
    }
    // Whatever panics ends this connection, and no thread: what is left half done goes with it.
    let run = AssertUnwindSafe(|| serve_while_held(&mut connection, thread, hold));
    if let Err(panic) = catch_unwind(run) {
        give_up(&mut connection, log::panic_text(panic.as_ref()));
    }
    thread.end_busy();
    connection.drop_tasks();
    // Before the close is counted: a reader that sees all closed sees none connected.
    thread.stats.connections.sub(1);
    let record = connection.end(&mut (), &mut thread.cx());
    thread.log_closed(record);
    thread.end_busy();
}

/// Serves a connection until its end, or until it loses the thread. The busy time has begun, and has to be
/// ended.
pub(crate) fn serve_while_held<H: Handler, T: Hold, F: AsFd>(
    connection: &mut Connection<Socket<F>>,
    thread: &mut ThreadContext<H>,
    hold: &T,
) -> (Left, BusyTime) {
    let (now_us, began) = (thread.now_us(), thread.now());
    let streams = StreamQueue::new(thread.site.options.latency_goal);
    let mut footprint = Footprint::default();
    thread.note_memory(&mut footprint, connection.held_bytes());
    let is_before_handshake = connection.is_before_handshake();
    let core = &thread.stats.core;
    let service = ServiceTime::new(core.served(), core.refusals.value());
    let mut thread = Thread {
        thread,
        hold,
        connection,
        seen: Stage::Up,
        began,
        drain_due: None,
        waker: None,
        permit: None,
        busy: BusyTime::default(),
        service,
        is_before_handshake,
        driven_since_us: Some(now_us),
        looked_us: now_us,
        received: Received::default(),
        footprint,
        counted_at: began,
        streams,
        rounds: 0,
    };
    let left = thread.run();
    let abandoned = thread.streams.abandoned();
    if abandoned > 0 {
        thread.thread.stats.abandoned.add(abandoned as u64);
    }
    if matches!(left, Left::AtStart(..) | Left::AtStep(..)) && thread.is_just_woken() {
        thread.driven_since_us = None; // what its request takes is known when the step is done
    }
    thread.end_busy();
    let busy = thread.busy;
    drop(thread);
    match &left {
        Left::AtEnd => connection.drop_tasks(),
        _ => connection.pass_tasks_on(),
    }
    (left, busy)
}

/// Ends a connection whose thread has panicked.
#[cold]
pub(crate) fn give_up<T>(connection: &mut Connection<T>, text: &str) {
    static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
    log::say_within(&LIMIT, |more| {
        tracing::error!("a connection's thread panicked: {text}{more}");
    });
    connection.abort(CloseReason::Failed);
}

/// A thread and its connection.
struct Thread<'c, H: Handler, T, F> {
    thread: &'c mut ThreadContext<H>,
    hold: &'c T,
    connection: &'c mut Connection<Socket<F>>,
    /// The stage of the shutdown that the thread has seen.
    seen: Stage,
    /// When the thread took the connection up.
    began: Millis,
    /// When the session learns of the drain, if it waits for its first bytes until then.
    drain_due: Option<Millis>,
    /// What wakes this thread for an app's task, once there was one.
    waker: Option<Arc<Waker>>,
    /// Of the app's task that it polls, until it waits.
    permit: Option<Permit>,
    busy: BusyTime,
    service: ServiceTime,
    /// No message of its handshake had been understood when it was driven first, or had waited last.
    is_before_handshake: bool,
    /// Since when the connection is driven, in microseconds; `None` while it waits.
    driven_since_us: Option<u64>,
    /// When the socket last had its turn, in microseconds.
    looked_us: u64,
    received: Received,
    footprint: Footprint,
    /// When it was counted what the connection holds.
    counted_at: Millis,
    /// Requests that wait for this thread.
    streams: StreamQueue<Work>,
    /// Times in a row that the connection has used up its share of the thread while requests waited.
    rounds: u32,
}

impl<H: Handler, T: Hold, F: AsFd> Thread<'_, H, T, F> {
    fn run(&mut self) -> Left {
        loop {
            let has_news = self.thread.site.shutdown.stage() > self.seen;
            if (has_news || self.drain_due.is_some())
                && let Some(left) = self.follow_shutdown()
            {
                return left;
            }
            let (mut placement, connection, thread) = self.parts();
            let step = connection.drive(thread, &mut (), &mut placement);
            let left = match step {
                Step::Wait if !self.streams.is_empty() => self.run_next(),
                Step::Wait => self.wait(),
                Step::Again if self.is_to_go() => Some(Left::Unfinished),
                Step::Again if self.is_steps_turn() => self.run_next(),
                Step::Again => {
                    self.connection.look_at_tasks();
                    let flow = self.go_on();
                    self.look_beside_work();
                    flow.break_value().flatten()
                }
                Step::Start(exchange, steps) => Some(Left::AtStart(exchange, steps)),
                Step::Block(exchange, steps) => Some(Left::AtStep(exchange, steps)),
                Step::Close => Some(Left::AtEnd),
            };
            if let Some(left) = left {
                return left;
            }
        }
    }

    /// What drives the connection, and where its work is done.
    fn parts(
        &mut self,
    ) -> (
        OnThread<'_>,
        &mut Connection<Socket<F>>,
        &mut ThreadContext<H>,
    ) {
        let placement = OnThread {
            waker: &mut self.waker,
            permit: &mut self.permit,
            service: &mut self.service,
            streams: (!T::GIVES_BACK).then_some(&mut self.streams),
            socket: self.hold.socket(),
            received: &mut self.received,
            home: self.hold.home(),
            driven_since_us: self.driven_since_us,
        };
        (placement, &mut *self.connection, &mut *self.thread)
    }

    /// Whether others wait for the thread, and its connection can go on elsewhere.
    fn is_to_go(&self) -> bool {
        T::GIVES_BACK && self.hold.is_wanted()
    }

    /// Waits for the socket, the deadline, a task or the shutdown, and reports what came.
    fn wait(&mut self) -> Option<Left> {
        let has_tasks = self.connection.has_tasks();
        if T::GIVES_BACK && has_tasks {
            return Some(Left::Waiting); // the threads of the pool poll them when they are woken
        }
        if self.is_short() {
            if T::GIVES_BACK {
                return Some(Left::Waiting); // its loop has others to close
            }
            if !self.relieve() {
                return None;
            }
        }
        let now = Millis(self.end_busy() / 1000);
        if !self.hold.rest(&self.resting(now)) {
            self.thread.begin_busy();
            return self.lose();
        }
        self.streams.rest();
        self.busy.rests();
        let result = self.wait_for_events(has_tasks);
        self.thread.begin_busy();
        self.thread.refusing = None; // what comes now has not waited before
        let has_lost = !self.hold.resume();
        if has_lost && !T::GIVES_BACK {
            return self.lose();
        }
        let Ok(ready) = result else {
            self.connection.abort(CloseReason::Failed);
            return None;
        };
        self.connection.transport_mut().note(Readiness {
            readable: ready.readable,
            writable: ready.writable,
            hung_up: false,
            gone: ready.gone && !ready.readable,
        });
        if has_lost {
            return Some(Left::Waiting);
        }
        self.looked_us = self.thread.now_us();
        self.driven_since_us = Some(self.looked_us);
        if self.is_before_handshake && ready.readable {
            self.received = Received::default(); // what a handshake receives is not counted as such
            let (mut placement, connection, thread) = self.parts();
            connection.delayed(placement.waited_if_wanted(thread).for_cpu_us);
        }
        if self.thread.site.shutdown.is_cut(self.thread.now()) {
            return self.cut();
        }
        if !ready.readable && !ready.gone {
            self.connection.expired(&mut self.thread.cx());
        }
        None
    }

    /// Its connection has lost the thread: it goes back to its owner, or ends.
    fn lose(&mut self) -> Option<Left> {
        if T::GIVES_BACK {
            return Some(Left::Waiting);
        }
        self.driven_since_us = Some(self.thread.now_us());
        let reason = self.hold.has_lost();
        self.connection
            .abort(reason.unwrap_or(CloseReason::Evicted));
        None
    }

    fn resting(&self, now: Millis) -> Resting {
        Resting {
            now,
            deadline: self.connection.deadline::<()>(),
            occupation: match self.connection.awaits_client_since::<()>() {
                _ if self.connection.is_idle::<()>() => Occupation::Idle(now),
                Some(since) => Occupation::Slow(since),
                None => Occupation::Served,
            },
            proxied_client: self.connection.proxied_client(),
            bytes: self.footprint.bytes(),
        }
    }

    /// Waits for the socket, the deadline, a task, the loss of the thread, or the shutdown.
    fn wait_for_events(&mut self, has_tasks: bool) -> io::Result<poll::Readiness> {
        let task_waker = self.waker.as_ref().filter(|_| has_tasks);
        let hold_waker = self.hold.waker();
        let other_fd = match hold_waker {
            Some(waker) => waker.as_fd(),
            None => self.thread.site.shutdown.next_fd(self.seen),
        };
        let task_fd = task_waker.map(|waker| waker.as_fd());
        let timeout_ms = self.timeout_ms().filter(|_| !T::IS_WOKEN_AT_DEADLINE);
        let transport = self.connection.transport();
        let (read, write) = (transport.awaits_input(), transport.is_sending());
        let result = wait_socket(transport.fd(), read, write, other_fd, task_fd, timeout_ms);
        if let (Some(waker), Ok(ready)) = (hold_waker, &result)
            && ready.other
        {
            waker.clear();
        }
        if let (Some(waker), Ok(ready)) = (task_waker, &result)
            && ready.rung
        {
            waker.clear();
            self.connection.notified(None);
        }
        result
    }

    /// Counts what the connection holds. `true`: it takes more of the budget, and memory is short.
    #[inline]
    fn is_short(&mut self) -> bool {
        self.counted_at = self.thread.now();
        let held_bytes = self.connection.held_bytes();
        self.thread.note_memory(&mut self.footprint, held_bytes)
            && self.thread.memory.pressure() >= MemoryPressure::Slow
    }

    /// Whether it has worked for so short a time that it has hardly done more than read.
    fn is_just_woken(&self) -> bool {
        let now_us = self.thread.site.clock.now_us();
        let since_us = self.driven_since_us.unwrap_or(now_us);
        now_us.saturating_sub(since_us) <= JUST_WOKEN_US
    }

    /// Whether it holds memory until its client has done something.
    fn is_holding(&self) -> bool {
        self.footprint.is_holding() && self.connection.awaits_client_since::<()>().is_some()
    }

    /// Memory is short. `false`: too short for this connection.
    #[cold]
    fn relieve(&mut self) -> bool {
        let memory = &self.thread.memory;
        let is_relieved = self.hold.relieve(memory.budget(), self.thread.now());
        let is_full = memory.pressure() == MemoryPressure::Full;
        if is_full && !is_relieved && self.is_holding() {
            self.connection.abort(CloseReason::Memory);
            return false;
        }
        true
    }

    /// It has nothing to do before an event. Returns the time.
    fn end_busy(&mut self) -> u64 {
        let now_us = self.thread.end_busy();
        let slow_apps_us = self.thread.take_slow_apps_us();
        if let Some(began_us) = self.driven_since_us.take() {
            let in_all_us = now_us.saturating_sub(began_us);
            let is_refusing = self.thread.refusing.is_some();
            if !is_refusing {
                let took_us = in_all_us.saturating_sub(slow_apps_us);
                self.busy.add(took_us, self.is_before_handshake);
            }
            let is_for_requests = !is_refusing && !self.is_before_handshake;
            self.note_service(if is_for_requests { in_all_us } else { 0 });
            if self.is_before_handshake {
                self.is_before_handshake = self.connection.is_before_handshake();
            }
        }
        on_thread::end(&mut self.permit, &self.thread.site, now_us);
        now_us
    }

    /// It was busy with requests for so long.
    fn note_service(&mut self, us: u64) {
        let stats = &self.thread.stats;
        let (served, refused) = (stats.core.served(), stats.core.refusals.value());
        if let Some(service_us) = self.service.add(us, served, refused)
            && service_us > 0
        {
            stats.job_times().add(service_us, 1);
        }
    }

    /// Looks at the clock in the middle of long work. `Break`: there is to be no more of it.
    fn go_on(&mut self) -> ControlFlow<Option<Left>> {
        self.thread.tick();
        if self.hold.has_lost().is_some() {
            return ControlFlow::Break(self.lose());
        }
        if self.thread.site.shutdown.is_cut(self.thread.now()) {
            return ControlFlow::Break(self.cut());
        }
        self.connection.expired(&mut self.thread.cx());
        ControlFlow::Continue(())
    }

    fn follow_shutdown(&mut self) -> Option<Left> {
        let (shutdown, now) = (&self.thread.site.shutdown, self.thread.now());
        if shutdown.is_cut(now) {
            return self.cut();
        }
        self.seen = shutdown.stage();
        let until = shutdown.first_request_until(self.began);
        // One that is given back has its time at its loop.
        let may_wait = T::GIVES_BACK || now < until;
        let is_told = (self.connection).drain(may_wait, &mut (), &mut self.thread.cx());
        self.drain_due = (!is_told).then_some(until);
        None
    }

    fn cut(&mut self) -> Option<Left> {
        if T::GIVES_BACK {
            return Some(Left::Waiting); // its owner cuts it
        }
        (self.seen, self.drain_due) = (Stage::Stopping, None);
        self.thread.site.registry.cut.add(1);
        self.connection.abort(CloseReason::Drained);
        None
    }

    /// Time until the session's deadline or the end of the grace; `None`: neither.
    fn timeout_ms(&self) -> Option<u64> {
        let deadlines = [
            self.connection.deadline::<()>(),
            self.thread.site.shutdown.cut_at(),
            self.drain_due,
        ];
        let first = deadlines.into_iter().flatten().min()?;
        Some(first.since(self.thread.now()))
    }
}

/// Whatever has panicked, its request is no longer in progress, and its connection counts elsewhere.
impl<H: Handler, T, F> Drop for Thread<'_, H, T, F> {
    fn drop(&mut self) {
        on_thread::end(&mut self.permit, &self.thread.site, self.thread.now_us());
        self.footprint.release(&mut self.thread.memory);
    }
}

#[cfg(test)]
mod tests;
