//! The threads that may block, so that loops need not.
//!
//! No job takes its worker with it: whatever panics, the job goes back to its loop, which answers or
//! closes. A worker that ends all the same takes the server with it, so that no queue grows before
//! workers that are gone.
//!
//! The number of workers may change while they work (`resizer.rs`): one that is too many ends between
//! two jobs.

mod offers;
mod size;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::Builder;
use std::time::Duration;

use loadline_base::{LogLimit, MemoryAccount, Millis, Token};
use loadline_proto::{Exchange, Handler, Status};

use crate::admission::Refusing;
use crate::config::Steps as _;
use crate::connection::{Blocked, Placement, Step, TaskStart};
use crate::connection_thread::{self, Left, serve_while_held};
use crate::fairness::lanes::Lane;
use crate::memory::thread_bytes;
use crate::options::SocketIo;
use crate::overload::LaneControl;
use crate::site::{Clock, Site};
use crate::task::WorkerTask;
use crate::telemetry::counters::{Registry, Role, Row};
use crate::telemetry::log;
use crate::thread::context::{READ_BUFFER_BYTES, ThreadContext};
use crate::thread::group::{STACK_BYTES, too_few};
use crate::worker::holding::{Held, Seats};
use crate::worker::job::{After, Job, Message, Served, Work};
use crate::worker::job_queue::{JobQueue, JobSource, Taken};
use crate::worker::mailbox::Mailbox;
use crate::worker::meter::Meter;

/// When clients are to come back to a queue that is full: it bounds a number, and says nothing of time.
const RETRY_AFTER_FULL_S: u32 = 1;

/// A pool of workers.
pub(crate) struct Workers {
    queue: Arc<JobQueue<Job>>,
    /// Of the first worker; the pool's own counts are kept there.
    row: Arc<Row>,
    clock: Clock,
    alive: Alive,
    control: Control,
    /// If workers keep their connections while nothing else is to be done.
    seats: Option<Arc<Seats>>,
    /// Files and apps, and clients, have the workers in turn.
    is_fair: bool,
    /// When it was last looked for jobs that nobody needs, in microseconds.
    swept_us: AtomicU64,
    /// Which of the pools.
    number: usize,
    /// If the number of workers changes.
    meter: Option<Arc<Meter>>,
}

/// Decides whether jobs can be done in time; `None`: there is no goal.
type Control = Option<Arc<Mutex<LaneControl>>>;

/// A job that was not queued.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) job: Job,
    pub(crate) refusing: Refusing,
}

/// How many workers still run.
#[derive(Debug, Default)]
struct Alive {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Workers {
    /// Starts `count` workers, which is 1 or more.
    pub(crate) fn start<H: Handler>(
        site: &Arc<Site<H>>,
        count: usize,
        number: usize,
    ) -> io::Result<Arc<Self>> {
        let (workers, desks) = Self::new(site, count, number)?;
        for (index, desk) in desks.into_iter().enumerate() {
            if let Err(error) = workers.start_one(site, desk) {
                workers.close();
                return Err(too_few(index, count, &error));
            }
        }
        Ok(workers)
    }

    /// A pool and what its first workers own.
    pub(crate) fn new<H: Handler>(
        site: &Arc<Site<H>>,
        count: usize,
        number: usize,
    ) -> io::Result<(Arc<Self>, Vec<WorkerDesk<H>>)> {
        assert!(count > 0, "a pool without workers would never answer");
        let options = &site.options;
        let range = options.changing_sizes();
        let count_max = range.map_or(count, |range| range.max.max(count));
        let queue = JobQueue::new(options.queue, count_max, options.queue_max);
        let mut desks: Vec<_> = queue
            .resize(count)
            .into_iter()
            .map(|source| WorkerDesk::new(site, source))
            .collect();
        let control = options
            .latency_goal
            .map(|goal| Arc::new(Mutex::new(LaneControl::new(goal, count))));
        let keeps_connections = options.threads_share();
        let seats = keeps_connections.then(|| Seats::new(count_max));
        let workers = Arc::new(Self {
            queue,
            row: Arc::clone(&desks[0].row),
            clock: site.clock,
            alive: Alive::default(),
            control,
            seats: seats.transpose()?.map(Arc::new),
            is_fair: options.fairness,
            swept_us: AtomicU64::new(0),
            number,
            meter: range.map(|_| Arc::new(Meter::new(keeps_connections))),
        });
        desks.iter_mut().for_each(|desk| desk.join(&workers));
        Ok((workers, desks))
    }

    fn start_one<H: Handler>(
        self: &Arc<Self>,
        site: &Arc<Site<H>>,
        desk: WorkerDesk<H>,
    ) -> io::Result<()> {
        let (_, index) = desk.source.place();
        let builder = match self.seats {
            Some(_) => (Builder::new().name(format!("serving {index}"))).stack_size(STACK_BYTES),
            None => Builder::new().name(format!("worker {}.{index}", self.number)),
        };
        let (site, leaving) = (Arc::clone(site), Leaving::new(self));
        let work = move || {
            let _leaving = leaving;
            site.guarded_alone("a worker", || {
                desk.work(&site);
                Ok(())
            });
        };
        builder.spawn(work).map(drop)
    }

    /// Queues a job; gives it back if the queue is full, or if it could not be done in time.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Refused> {
        let place = self.place(&job);
        if let Some(control) = &self.control
            && !matches!(job.work, Work::Prefetch(_)) // its answer has begun
            && let Err(refusal) = self.offer(control, job.queued_us, place)
        {
            let is_request = !matches!(job.work, Work::Serve(_));
            self.row.refused_late.add(u64::from(is_request));
            (self.row.refused_over_share).add(u64::from(self.is_fair && refusal.is_over_share));
            let refusing = Refusing::late(refusal.retry_after_s);
            return Err(Refused { job, refusing });
        }
        // Before the push: a worker must not take away what was not added yet.
        self.row.queue_depth.add(1);
        self.queue.push(place, job).map_err(|job| {
            self.row.queue_depth.sub(1);
            // Of a connection its requests are counted, when they are answered.
            let is_request = !matches!(job.work, Work::Serve(_));
            self.row.queue_full.add(u64::from(is_request));
            let refusing = Refusing {
                retry_after_s: RETRY_AFTER_FULL_S,
                is_queue_full: true,
            };
            Refused { job, refusing }
        })?;
        self.free_for_job();
        Ok(())
    }

    /// A job was queued: if no worker is free, one gives up its connection that waits for its client.
    fn free_for_job(&self) {
        if let Some(seats) = &self.seats
            && !self.queue.has_free_workers()
        {
            seats.free_one();
        }
    }

    /// Whether connections may have to make room for others: then no worker keeps one that waits.
    pub(crate) fn want_connections(&self, all_wanted: bool) {
        if let Some(seats) = &self.seats {
            seats.want_all(all_wanted);
        }
    }

    /// Wakes workers whose connections have waited long enough; says when to look again.
    pub(crate) fn wake_expired(&self, now: Millis) -> Option<Millis> {
        self.seats.as_ref()?.wake_expired(now)
    }

    /// Whether a worker is free that keeps a connection while it waits for its client.
    pub(crate) fn has_free_threads(&self) -> bool {
        self.seats.is_some() && self.queue.has_more_free_workers()
    }

    /// Queues a task that was woken, behind what waits. It was admitted before: it fits. In a queue that
    /// is closed it ends; nobody awaits it any more.
    pub(crate) fn submit_again(
        &self,
        task: WorkerTask,
        token: Token,
        reply: &Arc<Mailbox<Message>>,
    ) {
        let job = Job {
            client: task.client(),
            work: Work::Task(task),
            token,
            reply: Arc::clone(reply),
            queued_us: self.clock.now_us(),
        };
        self.row.queue_depth.add(1);
        match self.queue.push_again(self.place(&job), job) {
            Ok(()) => self.free_for_job(),
            Err(_) => self.row.queue_depth.sub(1),
        }
    }

    /// Lets the workers go once nothing waits any more.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Waits for the workers to end, after `close`; `false` if some still run after `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let count = self
            .alive
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .alive
            .changed
            .wait_timeout_while(count, patience, |count| *count > 0);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count == 0
    }
}

/// Says that a worker has ended, however it does; or that it was not started.
struct Leaving(Arc<Workers>);

impl Leaving {
    fn new(workers: &Arc<Workers>) -> Self {
        let count = workers.alive.count.lock();
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        Self(Arc::clone(workers))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let alive = &self.0.alive;
        *alive.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        alive.changed.notify_all();
    }
}

/// What one worker owns.
pub(crate) struct WorkerDesk<H: Handler> {
    source: JobSource<Job>,
    row: Arc<Row>,
    pool_row: Arc<Row>,
    /// Files are read through it.
    read_buffer: Vec<u8>,
    control: Control,
    seats: Option<Arc<Seats>>,
    /// If the number of workers changes.
    meter: Option<Arc<Meter>>,
    registry: Arc<Registry>,
    /// Only where workers serve whole connections.
    thread: Option<ThreadContext<H>>,
    /// What it takes of the memory of the process, unless its thread's context counts that.
    _memory: Option<MemoryAccount>,
}

impl<H: Handler> WorkerDesk<H> {
    fn new(site: &Site<H>, source: JobSource<Job>) -> Self {
        let thread = match (site.options.threads_share(), site.options.socket_io) {
            (true, _) => {
                let bytes = connection_thread::READ_BUFFER_BYTES;
                Some(ThreadContext::with_read_buffer(site, Role::Thread, bytes))
            }
            (false, SocketIo::Worker) => Some(ThreadContext::new(site, Role::Worker)),
            (false, SocketIo::Loop) => None,
        };
        let row = match &thread {
            Some(thread) => Arc::clone(&thread.row),
            None => site.registry.row(Role::Worker),
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
            pool_row: Arc::clone(&row),
            row,
            read_buffer,
            control: None,
            seats: None,
            meter: None,
            registry: Arc::clone(&site.registry),
            thread,
            _memory: memory,
        }
    }

    /// Makes it one of a pool.
    fn join(&mut self, workers: &Workers) {
        self.pool_row = Arc::clone(&workers.row);
        self.control.clone_from(&workers.control);
        self.seats.clone_from(&workers.seats);
        self.meter.clone_from(&workers.meter);
    }

    fn work(mut self, site: &Site<H>) {
        // So that a handler's sleep ends when it should: the default lets it be 50 us late.
        if let Err(error) = loadline_sys::usage::sleep_precisely() {
            log::say(|| tracing::warn!("sleeps of workers may be 50 us late: {error}"));
        }
        let metered = self.meter.as_ref().map(|meter| meter.enter(&self.row));
        while let Some(taken) = self.source.take() {
            self.carry_out(taken, site);
        }
        // A job may have counted on this worker: then another one gives up its connection for it.
        if let Some(seats) = &self.seats
            && self.source.depth() > 0
        {
            seats.free_one();
        }
        drop(metered);
    }

    /// Whether a job comes too late, or its client has left: then it is answered with 503.
    fn is_in_vain(&self, work: &mut Work, lane: Lane, now_us: u64, waited_us: u64) -> bool {
        let Some(control) = &self.control else {
            return false;
        };
        let mut control = lock(control);
        let control_of_lane = control.of(lane);
        let taken = control_of_lane.take(now_us, waited_us, self.source.depth());
        let waited_long = control_of_lane.is_long(waited_us);
        drop(control);
        if work.is_abandoned(waited_long) {
            work.refuse(RETRY_AFTER_FULL_S);
            let is_request = !matches!(work, Work::Serve(_));
            self.row.abandoned.add(u64::from(is_request));
            return is_request; // a connection may have been half-closed only: its requests get their 503
        }
        match taken {
            Err(retry_after_s) if work.can_be_refused() => {
                work.refuse(retry_after_s);
                // Which requests a connection has is not known yet: it is still to be served.
                let is_request = !matches!(work, Work::Serve(_));
                self.row.refused_late.add(u64::from(is_request));
                is_request
            }
            _ => false,
        }
    }

    /// The next job, if there is one.
    #[cfg(test)]
    pub(crate) fn try_take(&self) -> Option<Taken<Job>> {
        self.source.try_take()
    }

    /// Carries a job out, and gives it back to its loop, unless it is a task that waits.
    pub(crate) fn carry_out(&mut self, taken: Taken<Job>, site: &Site<H>) {
        let Taken {
            job,
            stolen,
            charge,
        } = taken;
        let lane = charge.place.lane;
        let began_us = site.clock.now_us();
        self.pool_row.queue_depth.sub(1);
        let waited_us = began_us.saturating_sub(job.queued_us);
        self.row.queue_wait_us.add(waited_us);
        self.row.steals.add(u64::from(stolen));
        let Job {
            mut work,
            token,
            reply,
            ..
        } = job;
        if self.meter.is_some() {
            self.row.job_waits().add(waited_us, 1);
        }
        if self.is_in_vain(&mut work, lane, began_us, waited_us) {
            self.source.done(charge, 0);
            return reply.post(Message::Done { token, work });
        }
        if let (Work::Serve(served), Some(seats)) = (&mut work, self.seats.clone()) {
            let took_us = self.keep(served, lane, token, &seats, &reply, site);
            self.source.done(charge, took_us);
            return reply.post(Message::Done { token, work });
        }
        self.row.job_began_us.set(began_us);
        // What a panic leaves half done is this job's, which ends here.
        let carry_out = AssertUnwindSafe(|| {
            match (&mut work, &mut self.thread) {
                (Work::Block(exchange, steps), _) => steps.handle_blocking(exchange),
                (Work::Prefetch(range), Some(thread)) => {
                    range.prefetch(thread.borrow().read_buffer);
                }
                (Work::Prefetch(range), None) => range.prefetch(&mut self.read_buffer),
                (Work::Compute(computation), _) => computation.carry_out(),
                (Work::Serve(served), Some(thread)) => {
                    thread.tick();
                    serve(served, site, thread);
                    thread.end_turn();
                }
                (Work::Task(task), _) => return task.poll(),
                (Work::Serve(_), None) => unreachable!("ordered by `--socket-io worker` alone"),
            }
            Poll::Ready(())
        });
        let polled = catch_unwind(carry_out).unwrap_or_else(|panic| {
            give_up(&mut work, log::panic_text(panic.as_ref()));
            Poll::Ready(())
        });
        self.row.jobs.add(1);
        let is_step = matches!(work, Work::Block(..) | Work::Task(_));
        self.row.steps.add(u64::from(is_step));
        let ended_us = site.clock.now_us();
        let took_us = ended_us.saturating_sub(began_us);
        self.row.job_began_us.set(0);
        self.row.busy_us.add(took_us);
        if let Some(control) = &self.control {
            lock(control).of(lane).done(ended_us, took_us);
        }
        self.source.done(charge, took_us);
        self.row.job_times().add(took_us, 1);
        if polled.is_ready() {
            reply.post(Message::Done { token, work });
        }
    }
}

impl<H: Handler> WorkerDesk<H> {
    /// Serves a connection, and waits with it for its client while nothing else is to be done. Returns for
    /// how long it was busy.
    fn keep(
        &mut self,
        served: &mut Served,
        lane: Lane,
        token: Token,
        seats: &Seats,
        mailbox: &Mailbox<Message>,
        site: &Site<H>,
    ) -> u64 {
        let (Some(connection), Some(thread)) = (&mut served.connection, &mut self.thread) else {
            served.after = After::Close;
            return 0;
        };
        let (queue, index) = self.source.place();
        let hold = Held::new(seats, index, queue, mailbox).with_home(served.home.as_ref(), token);
        thread.begin_visit();
        thread.refusing = served.refusing.take();
        connection.transport_mut().move_to_thread();
        let serve = AssertUnwindSafe(|| serve_while_held(connection, site, thread, &hold));
        let left = catch_unwind(serve);
        thread.end_visit();
        thread.refusing = None;
        connection.transport_mut().move_to_loop();
        let mut took_us = 0;
        served.after = match left {
            Ok((left, busy)) => {
                took_us = busy.us;
                self.row.jobs.add(1);
                if let Some(control) = &self.control {
                    let now_us = site.clock.now_us();
                    (lock(control).of(lane)).done_many(now_us, busy.visits, busy.us);
                }
                match left {
                    Left::AtEnd => After::Close,
                    Left::Waiting => After::Wait,
                    Left::Unfinished => After::Again,
                    Left::AtStep(exchange) => After::Block(exchange),
                }
            }
            Err(panic) => {
                connection_thread::give_up(connection, log::panic_text(panic.as_ref()));
                connection.drop_tasks();
                After::Close
            }
        };
        took_us
    }
}

impl<H: Handler> Drop for WorkerDesk<H> {
    fn drop(&mut self) {
        if self.thread.is_none() {
            self.registry.release(Role::Worker, Arc::clone(&self.row));
        }
    }
}

fn lock(control: &Mutex<LaneControl>) -> MutexGuard<'_, LaneControl> {
    // Nothing panics while it holds the lock.
    control.lock().unwrap_or_else(PoisonError::into_inner)
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
        Work::Task(task) => task.end(),
        Work::Compute(_) => {}  // the session finds it undone
        Work::Prefetch(_) => {} // the loop meets again what was not read
    }
}

/// A connection from reading to writing, on a thread that may block.
fn serve<H: Handler>(served: &mut Served, site: &Site<H>, thread: &mut ThreadContext<H>) {
    let Some(connection) = &mut served.connection else {
        served.after = After::Close;
        return;
    };
    thread.refusing = served.refusing.take();
    if site.shutdown.is_draining() {
        connection.drain(true, &mut (), &mut thread.cx()); // the loop may not have had it
    }
    served.after = match connection.drive(site, thread, &mut (), &mut OnWorker) {
        Step::Wait => After::Wait,
        Step::Again => After::Again,
        Step::Start(exchange) => After::Start(exchange),
        Step::Block(exchange) => After::Block(exchange),
        Step::Close => After::Close,
    };
    thread.refusing = None;
}

/// Where a worker that serves a connection has its work done: here. The loop serves a connection
/// with a task itself, until that has ended, and one of whose requests several may be in progress.
struct OnWorker;

impl<H: Handler> Placement<H> for OnWorker {
    fn block(
        &mut self,
        mut exchange: Box<Exchange>,
        _site: &Site<H>,
        thread: &mut ThreadContext<H>,
    ) -> Blocked {
        if exchange.is_multiplexed() {
            return Blocked::Elsewhere(exchange);
        }
        thread.config().handle_blocking(&mut exchange);
        thread.tick();
        Blocked::Done(exchange)
    }

    fn start(
        &mut self,
        exchange: Box<Exchange>,
        _site: &Site<H>,
        _kit: &mut ThreadContext<H>,
    ) -> TaskStart {
        TaskStart::Elsewhere(exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fairness::ClientKey;
    use crate::site::tests::quiet_site;

    #[test]
    fn a_job_that_panics_takes_no_worker_with_it_and_comes_back() {
        let site = quiet_site();
        let workers = Workers::start(&site, 2, 0).unwrap();
        let reply = Arc::new(Mailbox::new().unwrap());
        for index in 0..10 {
            let job = Job {
                // Without `--socket-io worker` nobody can do that.
                work: Work::Serve(Box::default()),
                token: Token {
                    index,
                    generation: 0,
                },
                reply: Arc::clone(&reply),
                queued_us: 0,
                client: ClientKey::NOBODY,
            };
            assert!(workers.submit(job).is_ok());
        }
        workers.close();
        assert!(workers.wait(Duration::from_secs(60)), "both have ended");
        let mut mail = Vec::new();
        reply.take(&mut mail);
        assert_eq!(mail.len(), 10);
        for message in mail {
            let Message::Done {
                work: Work::Serve(served),
                ..
            } = message
            else {
                panic!("{message:?}");
            };
            assert!(matches!(served.after, After::Close), "{served:?}");
        }
        assert!(site.take_failure().is_none(), "the server goes on");
    }
}
