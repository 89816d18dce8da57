//! The owner's end of its tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{self, Waker};

use loadline_proto::{
    Body, Context, Courier, Exchange, Piece, Port, ServerSession, StreamId, Task,
};

use super::channel::{Channel, Notify, TaskEvent};
use super::worker::{New, WorkerTask};
use crate::config::Steps;
use crate::overload::AppRequest;
use crate::site;
use crate::telemetry::counters::ThreadStats;

/// Handles of ended tasks that are kept for new ones: of one thread, which mostly polls a task to its
/// end before it begins the next.
const SPARE_MAX: usize = 16;

/// The owner's end of one task. Dropped, it cancels the task.
pub(crate) struct TaskHandle {
    stream: StreamId,
    channel: Arc<Channel>,
    /// Of the owner's thread, which alone writes to it; `None` on the way from one owner to another.
    stats: Option<Arc<ThreadStats>>,
    /// Where the owner polls it itself.
    task: Option<Task>,
    more: Vec<TaskEvent>,
    /// There may be events, or the task is to be polled.
    is_due: bool,
    /// Its answer is complete.
    has_answered: bool,
    has_ended: bool,
    /// The connection's next task.
    next: Option<Box<Self>>,
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskHandle")
    }
}

/// Begins a thread's tasks, and keeps the memory of some that ended.
pub(crate) struct TaskPool {
    stats: Arc<ThreadStats>,
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<TaskHandle>>,
}

impl TaskPool {
    /// Its tasks are counted in `stats`.
    pub(crate) fn new(stats: Arc<ThreadStats>) -> Self {
        Self {
            stats,
            spare: Vec::new(),
        }
    }

    /// Begins a task that the owner polls.
    pub(crate) fn spawn_local(
        &mut self,
        exchange: Box<Exchange>,
        request: Option<AppRequest>,
        notify: Notify,
        steps: &dyn Steps,
    ) -> Box<TaskHandle> {
        let mut handle = self.prepare(&exchange, request, notify);
        handle.is_due = true;
        handle.start(exchange, steps);
        handle
    }

    /// Prepares one that begins later (`Tasks::begin`). What comes for it meanwhile is kept.
    pub(crate) fn prepare(
        &mut self,
        exchange: &Exchange,
        request: Option<AppRequest>,
        notify: Notify,
    ) -> Box<TaskHandle> {
        let window = exchange.stream_window_bytes;
        let channel = Channel::new(exchange, window, notify, true, request);
        self.begin(exchange.stream, channel)
    }

    /// Prepares a task for a worker.
    pub(crate) fn for_worker(
        &mut self,
        exchange: Box<Exchange>,
        request: Option<AppRequest>,
        notify: Notify,
        steps: Arc<dyn Steps>,
    ) -> (Box<TaskHandle>, WorkerTask) {
        let window = exchange.stream_window_bytes;
        let stream = exchange.stream;
        let new = New::of(&exchange, steps);
        let mut channel = Channel::new(&exchange, window, notify, false, request);
        channel.keep(exchange);
        let handle = self.begin(stream, channel);
        let task = WorkerTask::new(new, Arc::clone(&handle.channel));
        (handle, task)
    }

    fn begin(&mut self, stream: StreamId, channel: Channel) -> Box<TaskHandle> {
        self.stats.app_requests_in_progress.add(1);
        if let Some(mut handle) = self.spare.pop()
            && let Some(spare) = Arc::get_mut(&mut handle.channel)
        {
            *spare = channel;
            handle.stream = stream;
            handle.is_due = false;
            handle.has_answered = false;
            handle.has_ended = false;
            return handle;
        }
        Box::new(TaskHandle {
            stream,
            channel: Arc::new(channel),
            stats: Some(Arc::clone(&self.stats)),
            task: None,
            more: Vec::new(),
            is_due: false,
            has_answered: false,
            has_ended: false,
            next: None,
        })
    }

    /// Takes in what another owner has passed on. There may have been events meanwhile.
    pub(crate) fn adopt(&self, tasks: &mut Tasks) {
        tasks.each(|handle| {
            if handle.stats.is_none() {
                self.stats.app_requests_in_progress.add(1);
                handle.stats = Some(Arc::clone(&self.stats));
                handle.is_due = true;
            }
        });
    }

    /// Ends one, and keeps its memory if nobody else has a part of it.
    pub(crate) fn end(&mut self, mut handle: Box<TaskHandle>) {
        handle.end();
        if self.spare.len() == SPARE_MAX || handle.task.is_some() {
            return;
        }
        if let Some(channel) = Arc::get_mut(&mut handle.channel) {
            channel.clear();
            handle.more = Vec::new();
            self.spare.push(handle);
        }
    }
}

/// What reporting to a session has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    Nothing,
    /// Something; there may be more to come.
    Some,
    /// The answer is complete.
    Last,
}

/// What polling the tasks of a connection has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// There were no events.
    Nothing,
    /// Events were reported.
    Some,
    /// Others are still to be polled.
    NotAll,
}

impl TaskHandle {
    /// Makes the task, which is polled here.
    fn start(&mut self, exchange: Box<Exchange>, steps: &dyn Steps) {
        if let Some(stats) = &self.stats {
            stats.app_requests.add(1);
        }
        let port = Port::new(Arc::clone(&self.channel) as Arc<dyn Courier>);
        self.task = steps.start(exchange, port);
        if self.task.is_none() {
            self.channel.finish();
        }
    }

    /// Whether no task, port or waker of it is left.
    fn is_alone(&mut self) -> bool {
        let channel = Arc::get_mut(&mut self.channel);
        self.task.is_none() && channel.is_some_and(|channel| !channel.is_waiting())
    }

    /// Cancels what is not over.
    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if !self.is_alone() {
            self.expect();
            self.channel.cancel();
            site::drop_guarded(self.task.take());
        }
        if let Some(stats) = &self.stats {
            stats.app_requests_in_progress.sub(1);
        }
    }

    /// Leaves the task to workers, and its count to the next owner.
    fn pass_on(&mut self) {
        if let Some(task) = self.task.take() {
            self.channel.pass_on(task);
        }
        if let Some(stats) = self.stats.take() {
            stats.app_requests_in_progress.sub(1);
        }
    }

    /// A task that is polled here is woken without a notification: it is due anyway.
    fn expect(&self) {
        if self.task.is_some() && !self.channel.notified.load(Ordering::SeqCst) {
            self.channel.notified.store(true, Ordering::SeqCst);
        }
    }

    fn offer(&mut self, piece: Piece) {
        self.is_due = true;
        self.expect();
        let mut state = self.channel.lock();
        match piece {
            Piece::Data(bytes) => state.content.push_back(bytes),
            Piece::End => state.content_ended = true,
            Piece::Trailers(fields) => {
                state.trailers = Some(Box::new(fields));
                return; // the end is right behind them
            }
            Piece::Abort => return,
        }
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn pull(&mut self, room: usize) {
        self.is_due = true;
        self.expect();
        let mut state = self.channel.lock();
        state.room += room;
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }

    /// Whether it is polled here when its turn comes.
    fn is_to_be_polled(&self) -> bool {
        self.task.is_some() && self.channel.woken.load(Ordering::SeqCst)
    }

    /// Polls the task once, if that is due and it is here, and reports its events to the session.
    fn go_on(&mut self, session: &mut ServerSession, cx: &mut Context<'_>) -> Reported {
        let is_over = self.poll_if_due();
        self.report_all(is_over, session, cx)
    }

    /// The same without the report. Whether the task is over.
    fn poll_if_due(&mut self) -> bool {
        self.is_due = false;
        if self.task.is_none() || !self.channel.woken.swap(false, Ordering::SeqCst) {
            return false;
        }
        self.expect();
        self.poll()
    }

    fn report_all(
        &mut self,
        is_over: bool,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> Reported {
        let reported = self.report(is_over, session, cx);
        if reported != Reported::Last && self.is_to_be_polled() {
            self.channel.notify(); // others first
        }
        reported
    }

    /// Whether the task is over.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.channel));
        let Some(task) = &mut self.task else {
            return false;
        };
        let polled = site::poll_guarded(task, &mut task::Context::from_waker(&waker));
        match polled.is_ready() {
            true => site::drop_guarded(self.task.take()),
            false => self.channel.waits(),
        }
        polled.is_ready()
    }

    fn report(
        &mut self,
        is_over: bool,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) -> Reported {
        self.channel.notified.store(false, Ordering::SeqCst);
        let mut state = self.channel.lock();
        if is_over {
            state.finish();
        }
        std::mem::swap(&mut self.more, &mut state.more);
        let first = state.first.take();
        drop(state);
        let mut reported = Reported::Nothing;
        for event in first.into_iter().chain(self.more.drain(..)) {
            let is_last = match event {
                TaskEvent::Answered(exchange) => {
                    let is_last = !matches!(exchange.response.body, Body::Stream { .. });
                    session.answered(exchange, cx);
                    is_last
                }
                TaskEvent::Produced(piece) => {
                    let is_last = matches!(piece, Piece::End | Piece::Abort);
                    session.produced(self.stream, piece, cx);
                    is_last
                }
                TaskEvent::Consumed(bytes) => {
                    session.consumed(self.stream, bytes, cx);
                    false
                }
            };
            if is_last {
                return Reported::Last;
            }
            reported = Reported::Some;
        }
        reported
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// The tasks of one connection, by stream. HTTP/1 has one at most.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Option<Box<TaskHandle>>);

impl Drop for Tasks {
    /// One after the other: dropped as a chain, each would take stack within the one before.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut handle) = next {
            next = handle.next.take();
        }
    }
}

impl Tasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Puts one, or a chain of them, behind the others.
    pub(crate) fn insert(&mut self, handle: Box<TaskHandle>) {
        let mut link = &mut self.0;
        while let Some(before) = link {
            link = &mut before.next;
        }
        *link = Some(handle);
    }

    /// Makes the task of this request, which was prepared, and polls it once. Whether it is over; its events
    /// are still to be reported. Gives the request back if its task was cancelled.
    pub(crate) fn begin(
        &mut self,
        exchange: Box<Exchange>,
        steps: &dyn Steps,
    ) -> Result<bool, Box<Exchange>> {
        let Some(handle) = self.get_mut(exchange.stream) else {
            return Err(exchange);
        };
        handle.start(exchange, steps);
        Ok(handle.poll_if_due())
    }

    /// Reports the events of a task that has begun to the session.
    pub(crate) fn report(
        &mut self,
        stream: StreamId,
        is_over: bool,
        pool: &mut TaskPool,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
    ) {
        let Some(handle) = self.get_mut(stream) else {
            return;
        };
        if handle.report_all(is_over, session, cx) == Reported::Last
            && let Some(handle) = self.remove(stream)
        {
            pool.end(handle);
        }
    }

    /// The first ones, so many, go behind the others.
    fn rotate(&mut self, count: usize) {
        let mut link = &mut self.0;
        for _ in 0..count {
            let Some(handle) = link else {
                return;
            };
            link = &mut handle.next;
        }
        let others = link.take();
        if let Some(first) = std::mem::replace(&mut self.0, others) {
            self.insert(first);
        }
    }

    /// Content for a task.
    pub(crate) fn offer(&mut self, stream: StreamId, piece: Piece) {
        if let Some(handle) = self.get_mut(stream) {
            handle.offer(piece);
        }
    }

    /// Room for a task's answer, in bytes.
    pub(crate) fn pull(&mut self, stream: StreamId, room: usize) {
        if let Some(handle) = self.get_mut(stream) {
            handle.pull(room);
        }
    }

    /// The task of this stream has events or is to be polled; without a stream: any.
    pub(crate) fn notified(&mut self, stream: Option<StreamId>) {
        self.each(|handle| {
            handle.is_due |= stream.is_none_or(|stream| stream == handle.stream);
        });
    }

    /// Looks which of them have notified their owner, who was busy.
    pub(crate) fn look(&mut self) {
        self.each(|handle| handle.is_due |= handle.channel.notified.load(Ordering::SeqCst));
    }

    /// Leaves them to the workers of the loop that they were begun for, and to that loop.
    pub(crate) fn pass_on(&mut self) {
        self.each(TaskHandle::pass_on);
    }

    fn each(&mut self, mut act: impl FnMut(&mut TaskHandle)) {
        let mut next = self.0.as_deref_mut();
        while let Some(handle) = next {
            act(handle);
            next = handle.next.as_deref_mut();
        }
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, stream: StreamId) -> Option<Box<TaskHandle>> {
        self.remove_if(|handle| handle.stream == stream)
    }

    /// Polls those that are due, and reports their events to the session. `is_time_up` is asked before each
    /// poll: the tasks that are left have their turn before others of this connection the next time.
    pub(crate) fn poll(
        &mut self,
        pool: &mut TaskPool,
        session: &mut ServerSession,
        cx: &mut Context<'_>,
        mut is_time_up: impl FnMut() -> bool,
    ) -> Polled {
        let mut polled = Polled::Nothing;
        let (mut passed, mut ended) = (0, 0);
        let mut next = self.0.as_deref_mut();
        while let Some(handle) = next {
            if handle.is_due {
                if handle.is_to_be_polled() && is_time_up() {
                    polled = Polled::NotAll;
                    break;
                }
                match handle.go_on(session, cx) {
                    Reported::Nothing => {}
                    Reported::Some => polled = Polled::Some,
                    Reported::Last => {
                        polled = Polled::Some;
                        handle.has_answered = true;
                        ended += 1;
                    }
                }
            }
            passed += 1;
            next = handle.next.as_deref_mut();
        }
        if polled == Polled::NotAll {
            self.rotate(passed);
        }
        for _ in 0..ended {
            if let Some(handle) = self.remove_if(|handle| handle.has_answered) {
                pool.end(handle);
            }
        }
        polled
    }

    fn get_mut(&mut self, stream: StreamId) -> Option<&mut TaskHandle> {
        let mut next = self.0.as_deref_mut();
        while let Some(handle) = next {
            if handle.stream == stream {
                return Some(handle);
            }
            next = handle.next.as_deref_mut();
        }
        None
    }

    fn remove_if(&mut self, is_it: impl Fn(&TaskHandle) -> bool) -> Option<Box<TaskHandle>> {
        let mut link = &mut self.0;
        while link.as_ref().is_some_and(|handle| !is_it(handle)) {
            link = &mut link.as_mut()?.next;
        }
        let mut found = link.take()?;
        *link = found.next.take();
        Some(found)
    }
}
