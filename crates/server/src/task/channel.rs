//! What passes between a task and the owner of its connection.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicBool as UnmodelledBool;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use loadline_base::{Buffer, Token};
use loadline_proto::{Body, Courier, Exchange, Fields, Gone, Piece, RequestBody, StreamId, Task};

use crate::fairness::ClientKey;
use crate::overload::AppRequest;
use crate::site;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{self, Mutex, MutexGuard};

/// What a task has produced or used up.
#[derive(Debug)]
pub(super) enum TaskEvent {
    Answered(Box<Exchange>),
    Produced(Piece),
    Consumed(usize),
}

/// The loop that a task's connection belongs to, and its workers.
pub(crate) trait TaskHome: Send + Sync {
    /// A task of this connection and stream has events, or the loop is to poll it.
    fn notify(&self, token: Token, stream: StreamId);

    /// Queues a task of this connection for a worker once more. It was admitted before, so it fits.
    fn queue_again(&self, token: Token, task: Task, channel: Arc<Channel>);

    /// Whether jobs wait for its workers.
    fn has_jobs(&self) -> bool;
}

impl fmt::Debug for dyn TaskHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskHome")
    }
}

/// How the owner learns that there are events.
pub(crate) enum Notify {
    /// A loop, of this connection.
    Loop {
        home: Arc<dyn TaskHome>,
        token: Token,
    },
    /// A blocking thread.
    Thread(Arc<sync::Waker>),
}

impl Notify {
    fn notify(&self, stream: StreamId) {
        match self {
            Self::Loop { home, token } => home.notify(*token, stream),
            Self::Thread(waker) => waker.wake(),
        }
    }
}

/// What passes between owner and task.
pub(crate) struct Channel {
    state: Mutex<State>,
    stream: StreamId,
    /// Who has sent the request.
    client: ClientKey,
    /// The owner was notified and has not looked yet, or is looking.
    pub(super) notified: AtomicBool,
    /// The task is to be polled. Only where the owner polls it.
    pub(super) woken: AtomicBool,
    /// Its owner has begun it, and not a worker.
    pub(super) is_local: bool,
    /// Workers poll the task, not the owner; once and for all.
    is_for_worker: AtomicBool,
    /// `State::gone`, for a look without the lock: one before each task that a worker begins. What it decides is
    /// decided once more under the lock, so that models leave it out.
    cancelled: UnmodelledBool,
    notify: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// The request, until a worker begins the task, or nobody awaits the answer any more: the task may be in the
    /// queue for long.
    exchange: Option<Box<Exchange>>,
    pub(super) content: VecDeque<Buffer>,
    pub(super) content_ended: bool,
    /// Fields behind the content.
    pub(super) trailers: Option<Box<Fields>>,
    asked: bool,
    pub(super) room: usize,
    /// The answer is complete, or never will be.
    done: bool,
    gone: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// The task, while it waits to be woken. Only where workers poll it; at other times it is in their
    /// queue, or one of them polls it.
    pub(super) waiting: Option<Task>,
    /// It was woken while it did not wait.
    pub(super) is_woken: bool,
    /// What it has produced: mostly one thing.
    pub(super) first: Option<TaskEvent>,
    pub(super) more: Vec<TaskEvent>,
    /// Until the app has answered it, if there is a latency goal.
    request: Option<AppRequest>,
}

impl State {
    /// The task has been polled and waits: for something of its own, unless for its client's content.
    fn waits(&mut self) {
        if let Some(request) = &mut self.request
            && self.content_ended
            && self.content.is_empty()
        {
            request.waits();
        }
    }

    fn push(&mut self, event: TaskEvent) {
        match self.first.is_none() && self.more.is_empty() {
            true => self.first = Some(event),
            false => self.more.push(event),
        }
    }

    /// The task is over: an answer that is not complete never will be. Returns whether that is an
    /// event.
    pub(super) fn finish(&mut self) -> bool {
        let is_missing = !std::mem::replace(&mut self.done, true) && !self.gone;
        self.request = None;
        if is_missing {
            self.push(TaskEvent::Produced(Piece::Abort));
        }
        is_missing
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

impl Channel {
    /// `is_local`: its owner polls it, and is about to.
    pub(super) fn new(
        exchange: &Exchange,
        room: usize,
        notify: Notify,
        is_local: bool,
        request: Option<AppRequest>,
    ) -> Self {
        let has_content = !matches!(exchange.request.body, RequestBody::Empty);
        Self {
            state: Mutex::new(State {
                content_ended: !has_content,
                room,
                request,
                ..State::default()
            }),
            stream: exchange.stream,
            client: ClientKey::of_request(exchange),
            notified: AtomicBool::new(is_local),
            woken: AtomicBool::new(is_local),
            is_local,
            is_for_worker: AtomicBool::new(!is_local),
            cancelled: UnmodelledBool::new(false),
            notify,
        }
    }

    /// Keeps the request until a worker begins the task.
    pub(super) fn keep(&mut self, exchange: Box<Exchange>) {
        let state = self.state.get_mut();
        state.unwrap_or_else(PoisonError::into_inner).exchange = Some(exchange);
    }

    /// The request, if the task has not begun and its answer is awaited.
    pub(super) fn take_exchange(&self) -> Option<Box<Exchange>> {
        self.lock().exchange.take()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its owner has polled the task, which waits.
    pub(super) fn waits(&self) {
        self.lock().waits();
    }

    /// Forgets what it carried, to be kept for another task.
    pub(super) fn clear(&mut self) {
        self.state = Mutex::default();
    }

    /// Whether the task waits to be woken.
    pub(super) fn is_waiting(&mut self) -> bool {
        let state = self.state.get_mut();
        state
            .unwrap_or_else(PoisonError::into_inner)
            .waiting
            .is_some()
    }

    pub(super) fn client(&self) -> ClientKey {
        self.client
    }

    /// Whether the answer is no longer awaited.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Notifies the owner, unless it knows.
    pub(super) fn notify(&self) {
        if !self.notified.load(Ordering::SeqCst) && !self.notified.swap(true, Ordering::SeqCst) {
            self.notify.notify(self.stream);
        }
    }

    fn report(&self, mut state: MutexGuard<'_, State>, event: TaskEvent) {
        if state.gone {
            return;
        }
        state.push(event);
        drop(state);
        self.notify();
    }

    /// The task is over.
    pub(super) fn finish(&self) {
        let is_missing = self.lock().finish();
        if is_missing {
            self.notify();
        }
    }

    /// A worker is about to poll the task. Gives the request if the task is to begin. `Err`: it is to be dropped.
    pub(super) fn begin_poll(&self) -> Result<Option<Box<Exchange>>, Gone> {
        let mut state = self.lock();
        state.is_woken = false;
        match state.gone {
            true => Err(Gone),
            false => Ok(state.exchange.take()),
        }
    }

    /// A worker has polled the task, which is to wait until it is woken.
    pub(super) fn put_aside(self: &Arc<Self>, task: Task) {
        let mut state = self.lock();
        state.waits();
        if state.is_woken {
            drop(state);
            self.queue_again(task); // others first
        } else {
            state.waiting = Some(task);
        }
    }

    /// Its owner has polled the task so far, and workers do from now on.
    pub(super) fn pass_on(self: &Arc<Self>, task: Task) {
        // Before the look at `woken`, which a waker sets before it looks whom the task is for: one of the
        // two sees the other.
        self.is_for_worker.store(true, Ordering::SeqCst);
        if self.woken.swap(false, Ordering::SeqCst) {
            self.lock().is_woken = true;
        }
        self.put_aside(task);
    }

    /// Has a worker poll the task, now or as soon as it waits.
    fn wake_for_worker(self: &Arc<Self>) {
        let mut state = self.lock();
        match state.waiting.take() {
            Some(task) => {
                drop(state);
                self.queue_again(task);
            }
            None => state.is_woken = true,
        }
    }

    fn queue_again(self: &Arc<Self>, task: Task) {
        match &self.notify {
            Notify::Loop { home, token } => home.queue_again(*token, task, Arc::clone(self)),
            Notify::Thread(_) => site::drop_guarded(Some(task)), // it polls its tasks itself
        }
    }

    /// The answer is no longer awaited. A worker drops the task.
    pub(super) fn cancel(self: &Arc<Self>) {
        let mut state = self.lock();
        state.gone = true;
        self.cancelled.store(true, Ordering::Relaxed);
        state.content.clear();
        state.trailers = None;
        state.first = None;
        state.more.clear();
        state.request = None;
        let exchange = state.exchange.take();
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        drop(exchange);
        wakers.into_iter().flatten().for_each(Waker::wake);
        if self.is_for_worker.load(Ordering::SeqCst) {
            self.wake_for_worker();
        }
    }
}

impl Courier for Channel {
    fn answer(&self, exchange: Box<Exchange>) {
        let mut state = self.lock();
        state.done |= !matches!(exchange.response.body, Body::Stream { .. });
        if let Some(request) = state.request.take() {
            request.answered();
        }
        self.report(state, TaskEvent::Answered(exchange));
    }

    fn produce(&self, piece: Piece) {
        let mut state = self.lock();
        match &piece {
            Piece::Data(bytes) => state.room = state.room.saturating_sub(bytes.len()),
            Piece::Trailers(_) => {}
            Piece::End | Piece::Abort => state.done = true,
        }
        self.report(state, TaskEvent::Produced(piece));
    }

    fn poll_content(&self, context: &mut Context<'_>) -> Poll<Result<Option<Buffer>, Gone>> {
        let mut state = self.lock();
        if state.gone {
            return Poll::Ready(Err(Gone));
        }
        if let Some(bytes) = state.content.pop_front() {
            state.asked = true;
            self.report(state, TaskEvent::Consumed(bytes.len()));
            return Poll::Ready(Ok(Some(bytes)));
        }
        if state.content_ended {
            return Poll::Ready(Ok(None));
        }
        remember(&mut state.reader, context);
        let is_first = !std::mem::replace(&mut state.asked, true);
        if is_first {
            self.report(state, TaskEvent::Consumed(0));
        }
        Poll::Pending
    }

    fn take_trailers(&self) -> Option<Fields> {
        self.lock().trailers.take().map(|fields| *fields)
    }

    fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<usize, Gone>> {
        let mut state = self.lock();
        if state.gone {
            return Poll::Ready(Err(Gone));
        }
        if state.room > 0 {
            return Poll::Ready(Ok(state.room));
        }
        remember(&mut state.writer, context);
        Poll::Pending
    }
}

fn remember(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(known) => known.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

/// Wakes the task.
impl Wake for Channel {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_for_worker.load(Ordering::SeqCst) {
            return self.wake_for_worker();
        }
        if self.woken.swap(true, Ordering::SeqCst) {
            return;
        }
        match self.is_for_worker.load(Ordering::SeqCst) {
            true => self.wake_for_worker(), // passed on meanwhile
            false => self.notify(),
        }
    }
}
