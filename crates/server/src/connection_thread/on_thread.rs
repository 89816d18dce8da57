//! Where a blocking thread has the work of its connection done: on itself.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use loadline_base::{LogLimit, Millis, Token};
use loadline_proto::{Computation, Exchange, Handler, StreamId, spread_retry_after_s};
use loadline_sys::{Waker, has_hung_up, is_gone, socket};

use super::busy_time::ServiceTime;
use super::stream_queue::StreamQueue;
use crate::config::Steps;
use crate::connection::{Blocked, Placement, TaskStart};
use crate::fairness::ClientKey;
use crate::fairness::lanes::{FlowKey, Lane};
use crate::overload::{Permit, Waited};
use crate::site::Site;
use crate::task::{Notify, TaskHome};
use crate::telemetry::log;
use crate::thread::context::ThreadContext;

/// The kernel counts in ticks of up to 10 ms: what has waited for one of them may have come just now.
const TICK_US: u64 = 10_000;

/// A request that is read so soon after its thread was woken has waited for nothing but a CPU.
pub(super) const JUST_WOKEN_US: u64 = 500;

/// A thread of a pool begins apps of streams itself that would together take less than this part of the latency goal.
const BEGINS_HERE_DIVISOR: u32 = 16;

/// What is to be done for a request of a stream, by the handler whose quick step came before.
#[derive(Debug)]
pub(super) enum Work {
    /// Its blocking step.
    Step(Arc<dyn Steps>),
    /// Its app's task is to begin.
    Task(Arc<dyn Steps>),
}

/// Where a blocking thread has the work of its connection done.
pub(super) struct OnThread<'t> {
    pub(super) waker: &'t mut Option<Arc<Waker>>,
    pub(super) permit: &'t mut Option<Permit>,
    pub(super) service: &'t mut ServiceTime,
    /// Where requests wait, if many of the connection may be in progress; `None`: others do their steps.
    pub(super) streams: Option<&'t mut StreamQueue<Work>>,
    /// `Hold::socket`.
    pub(super) socket: Option<BorrowedFd<'t>>,
    pub(super) received: &'t mut Received,
    /// `Hold::home`.
    pub(super) home: Option<(&'t Arc<dyn TaskHome>, Token)>,
    /// Since when the connection is driven, in microseconds.
    pub(super) driven_since_us: Option<u64>,
}

/// When the bytes came that were read last.
#[derive(Debug, Default)]
pub(super) struct Received {
    came_us: u64,
    /// How many had been read then in all; `None`: nobody has asked yet.
    of_bytes: Option<u64>,
}

impl Received {
    /// In microseconds. Asks the kernel, for how many milliseconds ago that was, only if more was read since: all
    /// requests of one receive have come together.
    fn came_us(
        &mut self,
        bytes_in: u64,
        now_us: u64,
        ask_ago_ms: impl FnOnce() -> Option<u32>,
    ) -> u64 {
        if self.of_bytes != Some(bytes_in) {
            let ago_us = ask_ago_ms().map_or(0, |ms| u64::from(ms) * 1000);
            self.came_us = now_us.saturating_sub(ago_us);
            self.of_bytes = Some(bytes_in);
        }
        self.came_us
    }
}

/// The request has its 503.
pub(super) struct Refused;

/// A request is no longer in progress, if one was.
pub(super) fn end<H: Handler>(permit: &mut Option<Permit>, site: &Site<H>, now_us: u64) {
    if let (Some(permit), Some(in_progress)) = (permit.take(), &site.in_progress) {
        in_progress.end(now_us, &permit);
    }
}

impl OnThread<'_> {
    /// Carries out a blocking step that has waited for so long; `false`: it was refused.
    pub(super) fn run<H: Handler>(
        &mut self,
        exchange: &mut Exchange,
        steps: &dyn Steps,
        waited: Waited,
        thread: &mut ThreadContext<H>,
    ) -> bool {
        let begun = self.begin(waited, thread, exchange, Lane::Files);
        if begun.is_ok() {
            steps.handle_blocking(exchange);
            thread.tick();
            end(self.permit, &thread.site, thread.now_us());
        }
        begun.is_ok()
    }

    /// A request is about to begin on a thread that shares the CPUs with others; it may have to wait for
    /// them first, also in vain. A task counts as in progress until the thread waits for its client, or the next
    /// begins.
    pub(super) fn begin<H: Handler>(
        &mut self,
        waited: Waited,
        thread: &mut ThreadContext<H>,
        exchange: &mut Exchange,
        lane: Lane,
    ) -> Result<(), Refused> {
        let site = &thread.site;
        let Some(in_progress) = &site.in_progress else {
            return Ok(());
        };
        if self.permit.is_some() {
            end(self.permit, site, site.clock.now_us()); // of a request before
        }
        let flow = match site.options.fairness {
            true => FlowKey {
                lane,
                client: ClientKey::of_request(exchange),
            },
            false => FlowKey::default(),
        };
        let counts_waits = self.socket.is_some(); // in a pool the queue does
        if counts_waits {
            thread.stats.queue_depth.add(1);
        }
        let begun = in_progress.begin(flow, waited, || site.clock.now_us());
        if counts_waits {
            thread.stats.queue_depth.sub(1);
        }
        match begun {
            Ok(permit) => {
                let waited_us = permit.waited_us();
                let turn_us = waited_us.saturating_sub(waited.for_cpu_us); // the wait for a CPU is in both
                self.service.waited(turn_us);
                if counts_waits {
                    let handshake_us = exchange.handshake.counted_us(0);
                    let not_waited_us = waited.reserve_us.saturating_add(handshake_us);
                    let before_us = waited.in_all_us.saturating_sub(not_waited_us);
                    thread.stats.note_wait(before_us + turn_us);
                }
                // Under `sequential` a request waits in the backlog alone, which counts as for a CPU.
                let is_long = in_progress.is_long(waited_us.max(waited.for_cpu_us));
                if (waited_us == 0 && !is_long) || !self.has_left(is_long) {
                    *self.permit = Some(permit);
                    return Ok(());
                }
                let now_us = site.clock.now_us();
                in_progress.give_back(now_us, &permit);
                exchange.refuse(spread_retry_after_s(now_us));
                thread.stats.abandoned.add(1);
                thread.tick();
                Err(Refused)
            }
            Err(retry_after_s) => {
                exchange.refuse(retry_after_s);
                thread.stats.refused_late.add(1);
                thread.tick();
                Err(Refused)
            }
        }
    }

    /// Whether the client has left meanwhile: for certain, or so it seems and its request has `waited_long`.
    fn has_left(&self, waited_long: bool) -> bool {
        let socket = self.socket;
        socket.is_some_and(|socket| is_gone(socket) || (waited_long && has_hung_up(socket)))
    }

    /// How long a request has waited that is none of a stream's. In a pool the queue has looked at that.
    fn waited_by<H: Handler>(
        &mut self,
        exchange: &mut Exchange,
        thread: &ThreadContext<H>,
    ) -> Waited {
        let waited = self.waited_if_wanted(thread);
        self.note_wait(exchange, waited);
        match self.socket {
            Some(_) => waited.behind_handshake(exchange.handshake.counted_us(0)),
            None => waited,
        }
    }

    /// How long what was received has waited for a CPU, as far as that is to be found out.
    pub(super) fn waited_if_wanted<H: Handler>(&mut self, thread: &ThreadContext<H>) -> Waited {
        let in_progress = thread.site.in_progress.as_ref();
        let us = match in_progress.is_some_and(|it| it.wants_waits(thread.now_us())) {
            true => self.waited(thread).for_cpu_us,
            false => 0,
        };
        Waited::for_cpu(us)
    }

    /// How long ago its bytes came, as far as the kernel knows. Otherwise they came when it was asked. Without a
    /// goal nobody asks.
    fn waited<H: Handler>(&mut self, thread: &ThreadContext<H>) -> Waited {
        let has_goal = thread.site.options.latency_goal.is_some();
        let Some(socket) = self.socket.filter(|_| has_goal) else {
            return Waited::default();
        };
        let now_us = thread.site.clock.now_us();
        let bytes_in = thread.stats.core.bytes_in.value();
        let ask = || socket::received_ago_ms(socket);
        let came_us = self.received.came_us(bytes_in, now_us, ask);
        let in_all_us = now_us.saturating_sub(came_us);
        let driven_us = now_us.saturating_sub(self.driven_since_us.unwrap_or(now_us));
        Waited {
            in_all_us,
            // Until the connection was driven. What a client has pipelined waits for itself since then.
            for_cpu_us: in_all_us.saturating_sub(driven_us),
            ..Waited::default()
        }
    }

    /// The same of a stream's request for an app. It is found out for each only where the thread was busy: an
    /// app may take less time than that.
    fn waited_in_stream<H: Handler>(&mut self, thread: &ThreadContext<H>) -> Waited {
        if thread.site.in_progress.is_none() {
            return Waited::default();
        }
        let now_us = thread.site.clock.now_us();
        let driven_us = now_us.saturating_sub(self.driven_since_us.unwrap_or(now_us));
        match driven_us > JUST_WOKEN_US {
            true => self.waited(thread),
            false => self.waited_if_wanted(thread),
        }
    }

    /// What a request has waited for a CPU, or in the backlog, is in its latency, where that is found out.
    fn note_wait(&self, exchange: &mut Exchange, waited: Waited) {
        if waited.for_cpu_us > TICK_US && is_read_first(exchange, self.driven_since_us) {
            exchange.had_waited(waited.for_cpu_us);
        }
    }

    /// Whether an app's request over HTTP/1 is to wait for a thread of the pool by itself: while jobs wait and apps are
    /// slow. In place a few of them would keep all threads from the files in the queue.
    fn is_to_be_queued<H: Handler>(&self, thread: &ThreadContext<H>) -> bool {
        let home = self.home.filter(|_| thread.has_slow_apps());
        home.is_some_and(|(home, _)| home.has_jobs())
    }

    /// How a task reports to its connection; `None`: there is no descriptor for that.
    fn notify<H: Handler>(&mut self, thread: &mut ThreadContext<H>) -> Option<Notify> {
        if let Some((home, token)) = self.home {
            let home = Arc::clone(home);
            return Some(Notify::Loop { home, token });
        }
        match thread.task_waker() {
            Ok(waker) => {
                *self.waker = Some(Arc::clone(&waker));
                Some(Notify::Thread(waker))
            }
            Err(error) => {
                static LIMIT: LogLimit = LogLimit::new(log::LINES_MAX);
                log::say_within(&LIMIT, |more| {
                    tracing::warn!("no descriptor to wait for an app with: {error}{more}");
                });
                None
            }
        }
    }

    /// Puts a blocking step into the queue of its connection, if it can be done in time.
    fn queue_step<H: Handler>(
        &mut self,
        mut exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &ThreadContext<H>,
    ) -> Blocked {
        let waited = self.waited(thread);
        self.note_wait(&mut exchange, waited);
        let waited = waited.behind_handshake(exchange.handshake.counted_us(0));
        let Some(streams) = &mut self.streams else {
            return Blocked::Elsewhere(exchange, steps);
        };
        match offer(streams, exchange, Work::Step(steps), waited, thread) {
            Ok(()) => Blocked::Queued,
            Err(refused) => Blocked::Refused(refused),
        }
    }

    /// The same of a task that is to begin.
    fn queue_task<H: Handler>(
        &mut self,
        mut exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        let Ok(request) = thread.admit_to_app(&mut exchange) else {
            return TaskStart::Refused(exchange);
        };
        let waited = self.waited_in_stream(thread);
        self.note_wait(&mut exchange, waited);
        let waited = waited.behind_handshake(exchange.handshake.counted_us(0));
        let Some(notify) = self.notify(thread) else {
            exchange.refuse(1);
            return TaskStart::Refused(exchange);
        };
        let Some(streams) = &mut self.streams else {
            return TaskStart::Elsewhere(exchange, steps);
        };
        let work = Work::Task(steps);
        let task = thread.tasks.prepare(&exchange, request, notify);
        match offer(streams, exchange, work, waited, thread) {
            Ok(()) => TaskStart::Started(task),
            Err(refused) => {
                thread.tasks.end(task);
                TaskStart::Refused(refused)
            }
        }
    }
}

/// Whether its head has waited until its connection was driven. It may have been its content, while its latency counts
/// already; or the request before it, with which it has come.
fn is_read_first(exchange: &Exchange, driven_since_us: Option<u64>) -> bool {
    let driven = driven_since_us.map(|us| Millis(us / 1000));
    match exchange.is_multiplexed() {
        true => driven.is_some_and(|driven| exchange.began >= driven),
        false => driven == Some(exchange.began),
    }
}

/// Whether a thread of a pool begins apps of streams itself: if all that a connection may have would take less than
/// a sixteenth of the latency goal, by what apps have taken on this thread of late. Nobody is late then for what
/// waits here, unread or behind others of its connection, where no queue counts it; and the way over the loop to
/// another thread would cost more than the app. Slower ones wait in the queue of the pool, which refuses what
/// would be late, and any thread takes them. The first of those is begun here all the same.
fn begins_here<H: Handler>(exchange: &Exchange, thread: &ThreadContext<H>) -> bool {
    let Some(goal) = thread.site.options.latency_goal else {
        return true;
    };
    let streams_max = thread.config().streams_max(exchange.listener);
    let all_us = thread.app_us().saturating_mul(u64::from(streams_max));
    u128::from(all_us) <= (goal / BEGINS_HERE_DIVISOR).as_micros()
}

/// Puts a request into the queue of its connection. `Err`: it could not be answered in time, and has its 503.
fn offer<H: Handler>(
    streams: &mut StreamQueue<Work>,
    exchange: Box<Exchange>,
    work: Work,
    waited: Waited,
    thread: &ThreadContext<H>,
) -> Result<(), Box<Exchange>> {
    let now_us = match thread.site.options.latency_goal {
        Some(_) => thread.site.clock.now_us(),
        None => thread.now_us(),
    };
    match streams.offer(exchange, work, now_us, waited) {
        None => Ok(()),
        Some(refused) => {
            thread.stats.refused_late.add(1);
            Err(refused)
        }
    }
}

impl<H: Handler> Placement<H> for OnThread<'_> {
    fn block(
        &mut self,
        mut exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked {
        if exchange.is_multiplexed() {
            return self.queue_step(exchange, steps, thread);
        }
        let waited = self.waited_by(&mut exchange, thread);
        self.run(&mut exchange, &*steps, waited, thread);
        Blocked::Done(exchange) // also if it was refused: it may have waited for that
    }

    /// Unless the request behind it would come too late, for what the handshake has waited or for what is in progress.
    fn compute(
        &mut self,
        mut computation: Box<dyn Computation>,
        client: ClientKey,
        before_us: u64,
        thread: &mut ThreadContext<H>,
    ) -> Option<Box<dyn Computation>> {
        let client = match thread.site.options.fairness {
            true => client,
            false => ClientKey::NOBODY,
        };
        if let (Some(in_progress), Some(_)) = (&thread.site.in_progress, self.socket)
            && !in_progress.offer_handshake(client, before_us, thread.now_us())
        {
            thread.stats.refused_late.add(1);
        } else if !thread.refuses_handshake() {
            computation.carry_out();
            thread.tick();
        }
        Some(computation)
    }

    fn start(
        &mut self,
        mut exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        let is_of_stream = exchange.is_multiplexed();
        if is_of_stream && self.streams.is_some() {
            return self.queue_task(exchange, steps, thread);
        }
        let is_to_be_queued = match is_of_stream {
            true => !begins_here(&exchange, thread),
            false => self.is_to_be_queued(thread),
        };
        if is_to_be_queued {
            return TaskStart::Elsewhere(exchange, steps);
        }
        let Ok(request) = thread.admit_to_app(&mut exchange) else {
            return TaskStart::Refused(exchange);
        };
        let waited = self.waited_by(&mut exchange, thread);
        let begun = self.begin(waited, thread, &mut exchange, Lane::Apps);
        if let Err(Refused) = begun {
            return TaskStart::Refused(exchange);
        }
        let Some(notify) = self.notify(thread) else {
            exchange.refuse(1);
            return TaskStart::Refused(exchange);
        };
        if is_of_stream {
            // At once, and not when all that came with it have begun: what it takes decides on those.
            let task = thread.tasks.prepare(&exchange, request, notify);
            return TaskStart::Now(task, exchange, steps);
        }
        TaskStart::Started((thread.tasks).spawn_local(exchange, request, notify, &*steps))
    }

    fn cancelled(&mut self, stream: StreamId, thread: &mut ThreadContext<H>) {
        let streams = self.streams.as_mut();
        if let Some(exchange) = streams.and_then(|streams| streams.cancel(stream)) {
            // Otherwise it is the session that has ended it.
            let has_left = exchange.hang_up.is_gone();
            thread.stats.abandoned.add(u64::from(has_left));
            thread.cx().pool.give_exchange(exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What its content had waited for a CPU counted twice: its latency had begun with its head.
    #[test]
    fn a_request_that_was_read_before_or_behind_another_one_has_not_waited_for_a_cpu() {
        let is_first = |stream, began_ms| {
            let mut exchange = Exchange::default();
            exchange.stream = StreamId(stream);
            exchange.began = Millis(began_ms);
            is_read_first(&exchange, Some(7_900))
        };
        assert_eq!([6, 7, 8].map(|ms| is_first(0, ms)), [false, true, false]);
        assert_eq!([6, 7, 8].map(|ms| is_first(1, ms)), [false, true, true]);
    }

    #[test]
    fn the_kernel_is_asked_once_for_each_receive() {
        let mut received = Received::default();
        let mut asked = 0;
        let mut came_us = |bytes_in, now_us, ago_ms| {
            received.came_us(bytes_in, now_us, || {
                asked += 1;
                ago_ms
            })
        };
        assert_eq!(came_us(0, 5_000, Some(2)), 3_000);
        assert_eq!(came_us(0, 9_000, Some(7)), 3_000);
        assert_eq!(came_us(10, 9_000, Some(1)), 8_000);
        assert_eq!(came_us(20, 10_000, None), 10_000, "a Unix socket");
        assert_eq!(came_us(20, 12_000, None), 10_000);
        assert_eq!(asked, 3);
    }
}
