//! The owner of a connection: carries out the orders of a real session, and waits as a loop or a
//! blocking thread does. The client is at hand: what it sends is there, what it receives is kept.

use std::sync::Arc;

use loadline_base::{Chunk, Millis, Token, Transmit};
use loadline_proto::{
    Action, Context, Counters, Exchange, HttpDate, Limits, Outcome, Pool, ServerSession,
    SessionConfig, StreamId, Task, TaskOptions,
};
use loom::thread::JoinHandle;

use crate::config::App;
use crate::fairness::lanes;
use crate::options::Queue;
use crate::sync::Waker;
use crate::task::{Channel, Notify, Polled, TaskHome, TaskPool, Tasks, WorkerTask};
use crate::telemetry::counters::ThreadStats;
use crate::worker::job::Message;
use crate::worker::job_queue::JobQueue;
use crate::worker::job_queue::source::JobSource;
use crate::worker::mailbox::Mailbox;

/// Room for answers and content in progress, in bytes.
pub(crate) const WINDOW_BYTES: usize = 2;

/// Who polls the tasks, and how the owner waits.
enum Place {
    Loop,
    Thread(Arc<Waker>),
    Worker,
    /// A thread of a pool, until the task waits; then a loop and workers.
    ThreadThenWorker,
}

/// As a loop with workers, or without.
struct Home {
    mailbox: Arc<Mailbox<Message>>,
    queue: Option<Arc<JobQueue<WorkerTask>>>,
}

impl TaskHome for Home {
    fn notify(&self, token: Token, stream: StreamId) {
        self.mailbox.post(Message::Task { token, stream });
    }

    fn queue_again(&self, _: Token, task: Task, channel: Arc<Channel>) {
        let queue = self.queue.as_ref().expect("there are workers");
        let _ = queue.push_again(lanes::FlowKey::default(), WorkerTask::begun(task, channel)); // closed: it ends
    }

    fn has_jobs(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.depth() > 0)
    }
}

pub(crate) struct Owner {
    app: Arc<App>,
    pub(crate) mailbox: Arc<Mailbox<Message>>,
    place: Place,
    session: ServerSession,
    tasks: Tasks,
    task_pool: TaskPool,
    stats: Arc<ThreadStats>,
    pool: Pool,
    counters: Counters,
    date: HttpDate,
    home: Arc<Home>,
    /// Ends of the queue for workers that have not started.
    sources: Vec<JobSource<WorkerTask>>,
    /// What the client has received.
    pub(crate) received: Vec<u8>,
    pub(crate) is_closed: bool,
}

macro_rules! cx {
    ($owner:ident) => {
        &mut Context {
            now: Millis(0),
            came: Millis(0),
            date: &$owner.date,
            pool: &mut $owner.pool,
            counters: &$owner.counters,
            log: None,
        }
    };
}

impl Owner {
    /// A loop that polls its tasks.
    pub(crate) fn on_loop(app: App) -> Self {
        Self::new(app, Place::Loop, None)
    }

    /// A blocking thread.
    pub(crate) fn on_thread(app: App) -> Self {
        Self::new(app, Place::Thread(Arc::default()), None)
    }

    /// A loop whose tasks a worker polls.
    pub(crate) fn with_worker(app: App) -> Self {
        Self::with_workers(app, Queue::Shared, 1)
    }

    /// A loop whose tasks are polled by as many workers. Their queue has room for one new job.
    pub(crate) fn with_workers(app: App, kind: Queue, workers: usize) -> Self {
        let (queue, sources) = JobQueue::with_workers(kind, workers, 1);
        let mut owner = Self::new(app, Place::Worker, Some(queue));
        owner.sources = sources;
        owner
    }

    /// A thread of a pool, which leaves the task to a worker where that waits.
    pub(crate) fn on_thread_of_pool(app: App) -> Self {
        let (queue, sources) = JobQueue::with_workers(Queue::Shared, 1, 1);
        let mut owner = Self::new(app, Place::ThreadThenWorker, Some(queue));
        owner.sources = sources;
        owner
    }

    fn new(app: App, place: Place, queue: Option<Arc<JobQueue<WorkerTask>>>) -> Self {
        let limits = Limits {
            stream_window_bytes: WINDOW_BYTES,
            ..Limits::default()
        };
        let config = SessionConfig {
            limits,
            ..SessionConfig::default()
        };
        let (mut pool, counters, date) = (Pool::new(), Counters::default(), HttpDate::at(0));
        let cx = &mut Context {
            now: Millis(0),
            came: Millis(0),
            date: &date,
            pool: &mut pool,
            counters: &counters,
            log: None,
        };
        let stats = Arc::new(ThreadStats::default());
        let mailbox = Arc::new(Mailbox::new().unwrap());
        Self {
            app: Arc::new(app),
            session: ServerSession::new(&Arc::new(config), None, cx),
            home: Arc::new(Home {
                mailbox: Arc::clone(&mailbox),
                queue,
            }),
            mailbox,
            place,
            tasks: Tasks::default(),
            task_pool: TaskPool::new(Arc::clone(&stats)),
            stats,
            pool,
            counters,
            date,
            sources: Vec::new(),
            received: Vec::new(),
            is_closed: false,
        }
    }

    /// The client sends.
    pub(crate) fn receive(&mut self, bytes: &str) {
        self.session
            .received(&mut bytes.as_bytes().to_vec(), cx!(self));
        self.go_on();
    }

    /// The client has gone.
    pub(crate) fn lose_client(&mut self) {
        self.session.peer_gone(cx!(self));
        self.go_on();
        assert!(self.is_closed && self.tasks.is_empty());
    }

    /// Another worker's end of the queue.
    pub(crate) fn take_source(&mut self) -> JobSource<WorkerTask> {
        self.sources.pop().expect("a worker that has not started")
    }

    /// A worker polls tasks until the queue is closed.
    pub(crate) fn spawn_worker(&mut self) -> JoinHandle<()> {
        let source = self.take_source();
        loom::thread::spawn(move || {
            while let Some(mut taken) = source.take(|| 0) {
                let _ = taken.job.poll();
            }
        })
    }

    /// Takes turns until the client has received an answer with this end.
    pub(crate) fn serve_until(&mut self, end: &str) {
        while !self.received.ends_with(end.as_bytes()) {
            assert!(!self.is_closed, "{}", self.text());
            self.turn();
        }
    }

    /// One turn: waits for a notification, and goes on.
    pub(crate) fn turn(&mut self) {
        match &self.place {
            Place::Thread(waker) => {
                waker.wait();
                waker.clear();
                self.tasks.notified(None);
            }
            Place::Loop | Place::Worker | Place::ThreadThenWorker => {
                if self.mailbox.fall_asleep() {
                    self.mailbox.waker().wait_edge();
                }
                self.mailbox.wake_up();
                let mut mail = Vec::new();
                self.mailbox.take(&mut mail);
                for message in mail {
                    if let Message::Task { stream, .. } = message {
                        self.tasks.notified(Some(stream));
                    }
                }
            }
        }
        self.go_on();
    }

    /// Carries out orders until there are none.
    fn go_on(&mut self) {
        while !self.is_closed {
            let order = self.session.next_action(cx!(self));
            match order {
                Action::Run(exchange) => {
                    let later = Outcome::Later(TaskOptions::default());
                    self.session.ran(exchange, later, cx!(self));
                }
                Action::Start(exchange) => self.start(exchange),
                Action::Offer(stream, piece) => self.tasks.offer(stream, piece),
                Action::Pull(stream, room) => self.tasks.pull(stream, room),
                Action::Cancel(stream) => {
                    let task = self.tasks.remove(stream);
                    task.into_iter().for_each(|task| self.task_pool.end(task));
                }
                Action::Send { transmit, .. } => self.send(transmit),
                Action::ReceivePending { .. } => self.session.nothing_pending(cx!(self)),
                Action::Finish => {}
                Action::Wait { .. } => {
                    let (pool, session) = (&mut self.task_pool, &mut self.session);
                    let polled = self.tasks.poll(pool, session, cx!(self), || false);
                    if polled == Polled::Nothing && !self.pass_on() {
                        return;
                    }
                }
                Action::Close => self.is_closed = true,
                Action::Block(_) | Action::Fill(_) | Action::Compute(_) => {
                    unreachable!("an app's answer is in memory")
                }
            }
        }
    }

    /// The thread waits no longer: the loop has the connection from here on. `false`: it had it already.
    fn pass_on(&mut self) -> bool {
        let is_thread = matches!(self.place, Place::ThreadThenWorker);
        if is_thread {
            self.place = Place::Worker;
            self.tasks.pass_on();
            self.task_pool.adopt(&mut self.tasks);
        }
        is_thread
    }

    fn start(&mut self, exchange: Box<Exchange>) {
        let notify = match &self.place {
            Place::Thread(waker) => Notify::Thread(Arc::clone(waker)),
            Place::Loop | Place::Worker | Place::ThreadThenWorker => Notify::Loop {
                home: Arc::clone(&self.home) as Arc<dyn TaskHome>,
                token: Token {
                    index: 0,
                    generation: 0,
                },
            },
        };
        let handle = match self.place {
            Place::Worker => {
                let (handle, task) =
                    self.task_pool
                        .for_worker(exchange, None, notify, Arc::clone(&self.app) as _);
                let queue = self.home.queue.as_ref().expect("there are workers");
                assert!(
                    queue.push(lanes::FlowKey::default(), task).is_ok(),
                    "there is room for it"
                );
                handle
            }
            Place::Loop | Place::Thread(_) | Place::ThreadThenWorker => self
                .task_pool
                .spawn_local(exchange, None, notify, &*self.app),
        };
        self.tasks.insert(handle);
    }

    fn send(&mut self, mut transmit: Transmit) {
        while let Some(Chunk::Memory(bytes)) = transmit.front() {
            self.received.extend_from_slice(bytes);
            let len = bytes.len() as u64;
            transmit.advance(len);
        }
        self.session.sent(transmit, cx!(self));
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Answers that the client has received.
    pub(crate) fn answers(&self) -> usize {
        self.text().matches("HTTP/1.1 ").count()
    }

    /// Drops what is left, lets the workers go, and checks that every request is counted out.
    pub(crate) fn end(mut self) {
        self.tasks = Tasks::default();
        self.close_queue();
        assert_eq!(self.stats.app_requests_in_progress.value(), 0);
    }

    /// Lets the workers go once nothing is queued.
    pub(crate) fn close_queue(&self) {
        self.home.queue.iter().for_each(|queue| queue.close());
    }
}
