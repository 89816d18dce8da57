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
mod thread;

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use loadline_base::{Millis, Token};
use loadline_proto::{Handler, spread_retry_after_s};

use crate::admission::Refusing;
use crate::clock::Clock;
use crate::fairness::lanes::{FlowKey, LANES};
use crate::overload::LaneControl;
use crate::site::Site;
use crate::task::WorkerTask;
use crate::telemetry::counters::ThreadStats;
use crate::thread::group::{STACK_BYTES, too_few};
use crate::worker::early_look::EarlyLook;
use crate::worker::holding::Holders;
use crate::worker::job::{Job, Message, Work};
use crate::worker::job_queue::JobQueue;
use crate::worker::mailbox::Mailbox;
use crate::worker::meter::Meter;

pub(crate) use thread::WorkerThread;

/// A pool of workers.
pub(crate) struct Workers {
    queue: Arc<JobQueue<Job>>,
    /// Of the first worker; the pool's own counts are kept there.
    stats: Arc<ThreadStats>,
    clock: Clock,
    alive: Alive,
    control: Control,
    /// If workers keep their connections while nothing else is to be done.
    holders: Option<Arc<Holders>>,
    /// Files and apps, and clients, have the workers in turn. Handshakes do in any case.
    is_fair: bool,
    /// When it was last looked for jobs that nobody needs, in microseconds, by lane.
    swept_us: [AtomicU64; LANES],
    /// Which of the pools.
    number: usize,
    /// If the number of workers changes.
    meter: Option<Arc<Meter>>,
    early: OnceLock<Arc<EarlyLook>>,
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
        let (workers, threads) = Self::new(site, count, number)?;
        for (index, thread) in threads.into_iter().enumerate() {
            if let Err(error) = workers.start_one(site, thread) {
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
    ) -> io::Result<(Arc<Self>, Vec<WorkerThread<H>>)> {
        assert!(count > 0, "a pool without workers would never answer");
        let options = &site.options;
        let range = options.changing_sizes();
        let count_max = range.map_or(count, |range| range.max.max(count));
        let queue = JobQueue::new(options.queue, count_max, options.queue_max);
        let mut threads: Vec<_> = queue
            .resize(count)
            .into_iter()
            .map(|source| WorkerThread::new(site, source))
            .collect();
        let control = options
            .latency_goal
            .map(|goal| Arc::new(Mutex::new(LaneControl::new(goal, count))));
        let keeps_connections = options.threads_share();
        let holders = keeps_connections.then(|| Holders::new(count_max));
        let workers = Arc::new(Self {
            queue,
            stats: Arc::clone(&threads[0].stats),
            clock: site.clock,
            alive: Alive::default(),
            control,
            holders: holders.transpose()?.map(Arc::new),
            is_fair: options.fairness,
            swept_us: Default::default(),
            number,
            meter: range.map(|_| Arc::new(Meter::new(keeps_connections))),
            early: OnceLock::new(),
        });
        threads.iter_mut().for_each(|thread| thread.join(&workers));
        Ok((workers, threads))
    }

    fn start_one<H: Handler>(
        self: &Arc<Self>,
        site: &Arc<Site<H>>,
        thread: WorkerThread<H>,
    ) -> io::Result<()> {
        let index = thread.index();
        let builder = match self.holders {
            Some(_) => (Builder::new().name(format!("serving {index}"))).stack_size(STACK_BYTES),
            None => Builder::new().name(format!("worker {}.{index}", self.number)),
        };
        let (site, leaving) = (Arc::clone(site), Leaving::new(self));
        let work = move || {
            let _leaving = leaving;
            site.guarded_alone("a worker", || {
                thread.work(&site);
                Ok(())
            });
        };
        builder.spawn(work).map(drop)
    }

    /// Queues a job; gives it back if the queue is full, or if it could not be done in time.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Refused> {
        let flow = self.flow(&job);
        if let Work::Prefetch(_) = job.work {
            self.note_unoffered(job.queued_us, flow); // its answer has begun
        } else if let Some(control) = &self.control
            && let Err(refusal) = self.offer(control, job.queued_us, flow, job.before_us())
        {
            let is_request = !job.work.is_unparsed();
            self.stats.refused_late.add(u64::from(is_request));
            if self.is_fair && refusal.is_over_share {
                self.stats.refused_over_share.add(1);
            }
            let refusing = Refusing::late(refusal.retry_after_s);
            return Err(Refused { job, refusing });
        }
        // Before the push: a worker must not take away what was not added yet.
        self.stats.queue_depth.add(1);
        let queued = (self.queue.push(flow, job))
            .or_else(|job| self.push_in_the_place_of_another(flow, job));
        queued.map_err(|job| {
            self.stats.queue_depth.sub(1);
            // Of a connection its requests are counted, when they are answered.
            let is_request = !job.work.is_unparsed();
            self.stats.queue_full.add(u64::from(is_request));
            let refusing = Refusing::queue_full(self.retry_after_full_s(flow, job.queued_us));
            Refused { job, refusing }
        })?;
        self.free_for_job();
        self.look_early();
        Ok(())
    }

    /// When a client is to come back whose job finds the queue full. Without a goal it is not measured how long jobs
    /// take.
    fn retry_after_full_s(&self, flow: FlowKey, now_us: u64) -> u32 {
        match &self.control {
            Some(control) => lock(control).of(flow.lane).retry_after_s(now_us),
            None => spread_retry_after_s(now_us),
        }
    }

    /// A job was queued: if no worker is free, one gives up its connection that waits for its client.
    fn free_for_job(&self) {
        if let Some(holders) = &self.holders
            && !self.queue.has_free_workers()
        {
            holders.free_one();
        }
    }

    /// Whether connections may have to make room for others: then no worker keeps one that waits.
    pub(crate) fn want_connections(&self, all_wanted: bool) {
        if let Some(holders) = &self.holders {
            holders.want_all(all_wanted);
        }
    }

    /// Wakes workers whose connections have waited long enough; says when to look again.
    pub(crate) fn wake_expired(&self, now: Millis) -> Option<Millis> {
        self.holders.as_ref()?.wake_expired(now)
    }

    /// Whether a worker is free that keeps a connection while it waits for its client.
    pub(crate) fn has_free_threads(&self) -> bool {
        self.holders.is_some() && self.queue.has_more_free_workers()
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
            already_waited_us: 0, // it has begun
            handshake_us: 0,
        };
        let flow = self.flow(&job);
        self.note_unoffered(job.queued_us, flow);
        self.stats.queue_depth.add(1);
        match self.queue.push_again(flow, job) {
            Ok(()) => {
                self.free_for_job();
                self.look_early();
            }
            Err(_) => self.stats.queue_depth.sub(1),
        }
    }

    /// Lets the workers go once nothing waits any more.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Waits for the workers to end, after `close`; `false` if some still run after `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let count = self
            .alive
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .alive
            .changed
            .wait_timeout_while(count, timeout, |count| *count > 0);
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

fn lock(control: &Mutex<LaneControl>) -> MutexGuard<'_, LaneControl> {
    // Nothing panics while it holds the lock.
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use loadline_proto::Computation;

    use super::*;
    use crate::ServerOptions;
    use crate::fairness::ClientKey;
    use crate::fairness::lanes::Lane;
    use crate::options::Queue;
    use crate::site::tests::{Quiet, config_of, quiet_site, site_of};
    use crate::worker::holding::Held;
    use crate::worker::job::After;

    impl Workers {
        /// As a worker has it.
        pub(crate) fn hold<'w>(&'w self, index: usize, mailbox: &'w Mailbox<Message>) -> Held<'w> {
            let holders = self.holders.as_deref().unwrap();
            Held::new(holders, index, &self.queue, mailbox)
        }
    }

    #[test]
    fn a_job_that_panics_takes_no_worker_with_it_and_comes_back() {
        let site = quiet_site();
        let workers = Workers::start(&site, 2, 0).unwrap();
        let reply = Arc::new(Mailbox::new().unwrap());
        for _ in 0..10 {
            // Without `--socket-io worker` nobody can do that.
            let work = Work::Serve(Box::default());
            let job = Job::of(ClientKey::NOBODY, work, &reply);
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

    #[derive(Debug)]
    struct Nothing;

    impl Computation for Nothing {
        fn carry_out(&mut self) {}
    }

    /// One worker, without a latency goal.
    fn with_room_for_two() -> (Arc<Workers>, Vec<WorkerThread<Quiet>>) {
        let options = ServerOptions {
            workers: 1,
            queue_max: 2,
            latency_goal: None,
            ..ServerOptions::default()
        };
        Workers::new(&site_of(config_of(Quiet), options), 1, 0).unwrap()
    }

    #[test]
    fn a_job_that_makes_room_for_another_clients_is_counted_as_one_of_a_full_queue() {
        let (workers, _threads) = with_room_for_two();
        let reply = Arc::new(Mailbox::new().unwrap());
        let submit = |client: u8| {
            let client = ClientKey::of([192, 0, 2, client].into());
            let work = Work::Compute(Box::new(Nothing), 0);
            workers.submit(Job::of(client, work, &reply))
        };
        let taken = [1, 1, 1, 2].map(|client| submit(client).is_ok());
        assert_eq!(taken, [true, true, false, true]);
        let stats = &workers.stats;
        let counts = [
            stats.queue_full.value(),
            stats.queue_full_over_share.value(),
            stats.refused_over_share.value(),
            stats.refused_late.value(),
        ];
        assert_eq!(counts, [2, 1, 1, 0]);
    }

    /// None did: others got 503 while one client had the whole queue.
    #[test]
    fn a_connection_that_makes_room_for_another_clients_is_refused_by_its_loop() {
        let (workers, _threads) = with_room_for_two();
        let reply = Arc::new(Mailbox::new().unwrap());
        let submit = |client: u8| {
            let client = ClientKey::of([192, 0, 2, client].into());
            let work = Work::Serve(Box::default());
            workers.submit(Job {
                queued_us: 900,
                already_waited_us: 200,
                ..Job::of(client, work, &reply)
            })
        };
        let taken = [1, 1, 1, 2].map(|client| submit(client).is_ok());
        assert_eq!(taken, [true, true, false, true]);
        let stats = &workers.stats;
        let counts = || {
            [
                stats.queue_full.value(),
                stats.queue_full_over_share.value(),
                stats.refused_over_share.value(),
                stats.refused_late.value(),
            ]
        };
        assert_eq!((counts(), stats.queue_depth.value()), ([0; 4], 2));
        let mut mail = Vec::new();
        reply.take(&mut mail);
        assert_eq!(mail.len(), 1);
        let Some(Message::Done {
            work: Work::Serve(served),
            ..
        }) = mail.first()
        else {
            panic!("{mail:?}");
        };
        served.refusing.unwrap().count(stats); // as for a request that its loop reads
        assert_eq!(counts(), [1, 1, 1, 0]);
        assert_eq!(served.ready_us, Some(700), "for its line in the log");
    }

    /// All of them came back after a second.
    #[test]
    fn without_a_goal_clients_of_a_full_queue_come_back_at_different_times() {
        let options = ServerOptions {
            workers: 1,
            queue_max: 1,
            latency_goal: None,
            ..ServerOptions::default()
        };
        let site = site_of(config_of(Quiet), options);
        let (workers, _thread) = Workers::new(&site, 1, 0).unwrap();
        let reply = Arc::new(Mailbox::new().unwrap());
        let submit = |queued_us| {
            let work = Work::Compute(Box::new(Nothing), 0);
            workers.submit(Job {
                queued_us,
                ..Job::of(ClientKey::NOBODY, work, &reply)
            })
        };
        assert!(submit(0).is_ok());
        let refused = (1..=20).map(|us| submit(us).unwrap_err().refusing.retry_after_s);
        let seen: BTreeSet<u32> = refused.collect();
        assert_eq!(seen, (1..=5).collect());
    }

    /// While one lane was looked at again and again, what nobody needs stayed in the others.
    #[test]
    fn each_lane_is_looked_at_for_jobs_that_nobody_needs() {
        let options = ServerOptions {
            workers: 1,
            ..ServerOptions::default()
        };
        let site = site_of(config_of(Quiet), options);
        let (workers, _thread) = Workers::new(&site, 1, 0).unwrap();
        let control = workers.control.as_ref().unwrap();
        workers.sweep(control, 50_000, Lane::Apps);
        let is_due = [Lane::Apps, Lane::Files].map(|lane| workers.is_sweep_due(55_000, lane));
        assert_eq!(is_due, [false, true]);
    }

    /// They were in one line with requests, and waited behind those.
    #[test]
    fn handshakes_have_a_queue_of_their_own_without_fairness() {
        for queue in [Queue::Shared, Queue::WorkStealing] {
            let options = ServerOptions {
                workers: 1,
                queue,
                fairness: false,
                ..ServerOptions::default()
            };
            let site = site_of(config_of(Quiet), options);
            let (workers, _thread) = Workers::new(&site, 1, 0).unwrap();
            let reply = Arc::new(Mailbox::new().unwrap());
            let request = || Work::Serve(Box::default());
            let handshake = Work::Compute(Box::new(Nothing), 0);
            let client = ClientKey::of([192, 0, 2, 1].into());
            for work in [request(), request(), handshake] {
                let submitted = workers.submit(Job::of(client, work, &reply));
                assert!(submitted.is_ok(), "{queue:?}");
            }
            let ahead = workers.queue.ahead(FlowKey {
                lane: Lane::Handshakes,
                client: ClientKey::NOBODY,
            });
            let requests = ahead.beside[Lane::Files as usize];
            assert_eq!((ahead.jobs, requests), (1, 2), "{queue:?}");
        }
    }
}
