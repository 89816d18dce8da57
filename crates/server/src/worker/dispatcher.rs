//! Work that may block: handed to a worker, or done by the loop itself if there are none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loadline_base::{Millis, Token};
use loadline_proto::{Computation, Exchange, Handler, StreamId, Task};

use crate::accept::balance::Load;
use crate::admission::{Admission, Kind, Load as Pressure, Refusing, Verdict};
use crate::config::Steps;
use crate::connection::{Blocked, Placement, TaskStart, offload};
use crate::fairness::ClientKey;
use crate::site::Site;
use crate::task::{Channel, Notify, TaskHome, WorkerTask};
use crate::telemetry::counters::ThreadStats;
use crate::thread::context::ThreadContext;
use crate::transport::Range;
use crate::worker::job::{Job, Message, Work};
use crate::worker::mailbox::Mailbox;
use crate::worker::pool::Workers;

/// Where a loop's work goes, and where it comes back to.
pub(crate) struct Dispatcher {
    /// `None`: there are no workers.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Of the loop.
    pub(crate) mailbox: Arc<Mailbox<Message>>,
    /// Of the loop.
    pub(crate) tasks: Arc<LoopTasks>,
    /// Of the loop.
    pub(crate) stats: Arc<ThreadStats>,
}

/// Where tasks of a loop's connections report to, and where they are polled.
pub(crate) struct LoopTasks {
    pub(crate) mailbox: Arc<Mailbox<Message>>,
    /// `None`: the loop polls them.
    pub(crate) workers: Option<Arc<Workers>>,
}

impl TaskHome for LoopTasks {
    fn notify(&self, token: Token, stream: StreamId) {
        self.mailbox.post(Message::Task { token, stream });
    }

    fn queue_again(&self, token: Token, task: Task, channel: Arc<Channel>) {
        let task = WorkerTask::begun(task, channel);
        if let Some(workers) = &self.workers {
            workers.submit_again(task, token, &self.mailbox);
        }
    }

    fn has_jobs(&self) -> bool {
        let workers = self.workers.as_ref();
        workers.is_some_and(|workers| workers.depth() > 0)
    }
}

impl Dispatcher {
    /// Whether a worker is free that keeps a connection while it waits for its client.
    pub(crate) fn has_free_threads(&self) -> bool {
        let workers = self.workers.as_ref();
        workers.is_some_and(|workers| workers.has_free_threads())
    }

    /// Whether jobs wait for a worker.
    pub(crate) fn has_jobs(&self) -> bool {
        self.tasks.has_jobs()
    }

    /// Does on the loop what may block: everybody waits. Counted and timed.
    fn do_here<H: Handler>(
        &self,
        thread: &mut ThreadContext<H>,
        work: impl FnOnce(&mut ThreadContext<H>),
    ) {
        let clock = thread.site.clock;
        let began_us = clock.now_us();
        work(thread);
        self.stats.blocked_in_place.add(1);
        let took_us = clock.now_us().saturating_sub(began_us);
        self.stats.blocked_in_place_us.add(took_us);
        thread.in_place_us += took_us;
        thread.tick();
    }
}

/// Work that no worker will do, and what becomes of it.
pub(crate) struct NotQueued {
    pub(crate) work: Work,
    pub(crate) verdict: Verdict,
    /// If it is refused.
    pub(crate) refusing: Refusing,
}

/// Where a loop has work of one connection done: by workers, or here if there are none.
pub(crate) struct OnLoop<'l> {
    pub(crate) dispatcher: &'l Dispatcher,
    pub(crate) token: Token,
    pub(crate) load: &'l Load,
    /// Jobs of the connection that it has queued for workers.
    pub(crate) queued: u32,
}

impl<'l> OnLoop<'l> {
    pub(crate) fn new(dispatcher: &'l Dispatcher, token: Token, load: &'l Load) -> Self {
        Self {
            dispatcher,
            token,
            load,
            queued: 0,
        }
    }

    /// Queues work for a worker, for a client. It has already waited for so long.
    pub(crate) fn submit<H: Handler>(
        &mut self,
        kind: Kind,
        work: Work,
        already_waited_us: u64,
        client: ClientKey,
        site: &Site<H>,
    ) -> Result<(), NotQueued> {
        let admission = Admission::new(site.options.connections_max);
        let Some(workers) = &self.dispatcher.workers else {
            let nobody = Pressure::default();
            return Err(NotQueued {
                work,
                verdict: admission.decide(kind, &nobody),
                refusing: Refusing::late(0),
            });
        };
        let queued_us = site.clock.now_us();
        let job = Job {
            client,
            already_waited_us,
            handshake_us: work.handshake_us(Millis(queued_us / 1000)),
            work,
            token: self.token,
            reply: Arc::clone(&self.dispatcher.mailbox),
            queued_us,
        };
        if let Err(refused) = workers.submit(job) {
            let full = Pressure {
                workers: site.options.workers,
                is_queue_full: true,
                ..Pressure::default()
            };
            return Err(NotQueued {
                work: refused.job.work,
                verdict: admission.decide(kind, &full),
                refusing: refused.refusing,
            });
        }
        self.load.under_way.fetch_add(1, Relaxed);
        self.queued += 1;
        Ok(())
    }

    /// A blocking step of this handler: of an earlier configuration, perhaps.
    pub(crate) fn block_by<H: Handler>(
        &mut self,
        steps: Arc<dyn Steps>,
        mut exchange: Box<Exchange>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked {
        let client = ClientKey::of_request(&exchange);
        let age_us = thread.request_age_us(&exchange);
        let waited_us = exchange.handshake.waited_unread(age_us);
        let work = Work::Block(exchange, steps);
        let submitted = self.submit(Kind::Job, work, waited_us, client, &thread.site);
        let Err(not_queued) = submitted else {
            return Blocked::Queued;
        };
        let Work::Block(mut exchange, steps) = not_queued.work else {
            return Blocked::Queued;
        };
        match not_queued.verdict {
            Verdict::Refuse => {
                exchange.refuse(not_queued.refusing.retry_after_s);
                Blocked::Refused(exchange)
            }
            _ if thread.check_again(&mut exchange).is_err() => Blocked::Refused(exchange),
            _ => {
                exchange.is_done_by_loop = true;
                let block = |_: &mut ThreadContext<H>| steps.handle_blocking(&mut exchange);
                self.dispatcher.do_here(thread, block);
                Blocked::Done(exchange)
            }
        }
    }

    /// Starts an app's task of this handler, likewise. A worker polls the task whenever it is woken. Without
    /// workers the loop does.
    pub(crate) fn start_by<H: Handler>(
        &mut self,
        steps: Arc<dyn Steps>,
        mut exchange: Box<Exchange>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        let is_here = self.dispatcher.workers.is_none();
        if is_here && thread.check_again(&mut exchange).is_err() {
            return TaskStart::Refused(exchange);
        }
        let Ok(request) = thread.admit_to_app(&mut exchange) else {
            return TaskStart::Refused(exchange);
        };
        let notify = Notify::Loop {
            home: Arc::clone(&self.dispatcher.tasks) as Arc<dyn TaskHome>,
            token: self.token,
        };
        if is_here {
            exchange.is_done_by_loop = true;
            // Others of its connection wait behind it, and are judged by that.
            if exchange.stream != StreamId::default() {
                let task = thread.tasks.prepare(&exchange, request, notify);
                return TaskStart::Now(task, exchange, steps);
            }
            let tasks = &mut thread.tasks;
            return TaskStart::Started(tasks.spawn_local(exchange, request, notify, &*steps));
        }
        let age_us = thread.request_age_us(&exchange);
        let waited_us = exchange.handshake.waited_unread(age_us);
        let (handle, task) = (thread.tasks).for_worker(exchange, request, notify, steps);
        let client = task.client();
        let work = Work::Task(task);
        if let Err(not_queued) = self.submit(Kind::Task, work, waited_us, client, &thread.site)
            && let Work::Task(mut task) = not_queued.work
            && let Some(mut exchange) = task.take_exchange()
        {
            exchange.refuse(not_queued.refusing.retry_after_s);
            thread.tasks.end(handle);
            return TaskStart::Refused(exchange);
        }
        TaskStart::Started(handle)
    }
}

impl<H: Handler> Placement<H> for OnLoop<'_> {
    fn block(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked {
        self.block_by(steps, exchange, thread)
    }

    fn prefetch(&mut self, range: Range, client: ClientKey, thread: &mut ThreadContext<H>) -> bool {
        let work = Work::Prefetch(range);
        let submitted = self.submit(Kind::Prefetch, work, 0, client, &thread.site);
        let Some(Work::Prefetch(range)) = submitted.err().map(|it| it.work) else {
            return false;
        };
        let read = |thread: &mut ThreadContext<H>| range.prefetch(thread.borrow().read_buffer);
        self.dispatcher.do_here(thread, read);
        true
    }

    fn compute(
        &mut self,
        computation: Box<dyn Computation>,
        client: ClientKey,
        before_us: u64,
        thread: &mut ThreadContext<H>,
    ) -> Option<Box<dyn Computation>> {
        if thread.refuses_handshake() || thread.refuses_late_handshake(before_us) {
            return Some(computation);
        }
        let work = Work::Compute(computation, before_us);
        let submitted = self.submit(Kind::Job, work, 0, client, &thread.site);
        let not_queued = submitted.err()?;
        let Work::Compute(mut computation, _) = not_queued.work else {
            return None;
        };
        if not_queued.verdict != Verdict::Refuse {
            let carry_out = |_: &mut ThreadContext<H>| computation.carry_out();
            self.dispatcher.do_here(thread, carry_out);
        }
        Some(computation)
    }

    fn offload(
        &mut self,
        computation: Box<dyn Computation>,
        client: ClientKey,
        thread: &mut ThreadContext<H>,
    ) -> Option<Box<dyn Computation>> {
        let work = Work::Offload(computation, None);
        let waited_us = thread.waited_unread_us();
        let submitted = self.submit(Kind::Job, work, waited_us, client, &thread.site);
        let NotQueued { work, refusing, .. } = submitted.err()?;
        let Work::Offload(mut computation, _) = work else {
            return None;
        };
        offload::refuse(&mut *computation, refusing, thread);
        Some(computation)
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        steps: Arc<dyn Steps>,
        thread: &mut ThreadContext<H>,
    ) -> TaskStart {
        self.start_by(steps, exchange, thread)
    }
}
