//! A request that an app's task has: what passes between the thread that polls the task and the one
//! that owns the connection. Often both are one.
//!
//! ```text
//!   owner   offer · pull · cancel ──►  ┌────────┐ ──► content · room · gone     task
//!           take_news            ◄──   │ Errand │ ◄── answer · produce
//!                                      └────────┘
//! ```
//!
//! What the task says is kept until the owner takes it, and the owner is told once for all of it: by
//! its mailbox, or by an eventfd that a blocking thread polls. Bounded by the windows of the session.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use loadline_base::{Buffer, Token};
use loadline_proto::{
    Body, Courier, Exchange, Gone, Handler, Piece, Port, ServerSession, StreamId, Task, Turn,
};

use crate::parts::counters::Row;
use crate::parts::mailbox::Mailbox;
use crate::parts::workers::Message;
use crate::site::{self, Site};

/// What a task has said.
#[derive(Debug)]
enum News {
    Answered(Box<Exchange>),
    Produced(Piece),
    Consumed(usize),
}

/// How the owner learns that there is news.
pub(crate) enum Bell {
    /// A loop, of this connection.
    Loop {
        mailbox: Arc<Mailbox<Message>>,
        token: Token,
    },
    /// A blocking thread.
    Thread(Arc<loadline_sys::Waker>),
}

impl Bell {
    fn ring(&self) {
        match self {
            Self::Loop { mailbox, token } => mailbox.post(Message::Errand(*token)),
            Self::Thread(waker) => waker.wake(),
        }
    }
}

/// What passes between owner and task.
pub(crate) struct Errand {
    state: Mutex<State>,
    /// The owner has been told and has not looked yet, or is looking.
    rung: AtomicBool,
    /// The task is to be polled. Only where the owner polls it.
    woken: AtomicBool,
    bell: Bell,
}

#[derive(Default)]
struct State {
    content: VecDeque<Buffer>,
    content_ended: bool,
    asked: bool,
    room: usize,
    /// The answer is complete, or never will be.
    done: bool,
    gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Whom to wake when the task is to be dropped, where a worker has it.
    poller: Option<Waker>,
    /// What it has said: mostly one thing.
    first: Option<News>,
    more: Vec<News>,
}

impl State {
    fn note(&mut self, news: News) {
        match self.first.is_none() && self.more.is_empty() {
            true => self.first = Some(news),
            false => self.more.push(news),
        }
    }

    /// The task is over: an answer that is not complete never will be, and whether that is news.
    fn finish(&mut self) -> bool {
        let is_missing = !std::mem::replace(&mut self.done, true) && !self.gone;
        if is_missing {
            self.note(News::Produced(Piece::Abort));
        }
        is_missing
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}

impl Errand {
    /// `here`: its owner polls it, and is about to.
    fn new(exchange: &Exchange, room: usize, bell: Bell, here: bool) -> Self {
        let has_content = !matches!(exchange.request.body, loadline_proto::RequestBody::Empty);
        Self {
            state: Mutex::new(State {
                content_ended: !has_content,
                room,
                ..State::default()
            }),
            rung: AtomicBool::new(here),
            woken: AtomicBool::new(here),
            bell,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the owner, unless it knows.
    fn ring(&self) {
        if !self.rung.load(Ordering::SeqCst) && !self.rung.swap(true, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    fn tell(&self, mut state: MutexGuard<'_, State>, news: News) {
        if state.gone {
            return; // nobody listens
        }
        state.note(news);
        drop(state);
        self.ring();
    }

    /// The task is over.
    fn finish(&self) {
        let is_missing = self.lock().finish();
        if is_missing {
            self.ring();
        }
    }

    fn is_gone(&self) -> bool {
        self.lock().gone
    }

    fn cancel(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.content.clear();
        state.first = None;
        state.more.clear();
        let wakers = [
            state.reader.take(),
            state.writer.take(),
            state.poller.take(),
        ];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Courier for Errand {
    fn answer(&self, exchange: Box<Exchange>) {
        let mut state = self.lock();
        state.done |= !matches!(exchange.response.body, Body::Stream { .. });
        self.tell(state, News::Answered(exchange));
    }

    fn produce(&self, piece: Piece) {
        let mut state = self.lock();
        match &piece {
            Piece::Data(bytes) => state.room = state.room.saturating_sub(bytes.len()),
            Piece::Trailers(_) => {}
            Piece::End | Piece::Abort => state.done = true,
        }
        self.tell(state, News::Produced(piece));
    }

    fn poll_content(&self, context: &mut Context<'_>) -> Poll<Result<Option<Buffer>, Gone>> {
        let mut state = self.lock();
        if state.gone {
            return Poll::Ready(Err(Gone));
        }
        if let Some(bytes) = state.content.pop_front() {
            state.asked = true;
            self.tell(state, News::Consumed(bytes.len()));
            return Poll::Ready(Ok(Some(bytes)));
        }
        if state.content_ended {
            return Poll::Ready(Ok(None));
        }
        remember(&mut state.reader, context);
        let is_first = !std::mem::replace(&mut state.asked, true);
        if is_first {
            self.tell(state, News::Consumed(0));
        }
        Poll::Pending
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

/// Wakes a task that its owner polls.
impl Wake for Errand {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.ring();
        }
    }
}

/// The owner's end of an errand. Dropped, it cancels the task.
pub(crate) struct Held {
    errand: Arc<Errand>,
    /// Of the owner's thread, which alone makes and drops it.
    row: Arc<Row>,
    /// Where the owner polls it itself.
    task: Option<Task>,
    more: Vec<News>,
    has_ended: bool,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// Errands that ended and are kept for those that begin: of one thread, which mostly polls a task to
/// its end before it begins the next.
const SPARE_MAX: usize = 16;

/// Begins a thread's errands, and keeps the memory of some that ended.
pub(crate) struct Errands {
    row: Arc<Row>,
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<Held>>,
}

impl Errands {
    /// Counted in a row.
    pub(crate) fn new(row: Arc<Row>) -> Self {
        Self {
            row,
            spare: Vec::new(),
        }
    }

    /// Begins a task that the owner polls: `go_on` is due.
    pub(crate) fn here<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        bell: Bell,
        site: &Site<H>,
    ) -> Box<Held> {
        let window = site.session.limits.stream_window_bytes;
        let mut held = self.begin(Errand::new(&exchange, window, bell, true));
        let port = Port::new(Arc::clone(&held.errand) as Arc<dyn Courier>);
        held.task = site.start(exchange, port);
        if held.task.is_none() {
            held.errand.finish();
        }
        held
    }

    /// Prepares a task for a worker.
    pub(crate) fn away<H: Handler>(
        &mut self,
        exchange: Box<Exchange>,
        bell: Bell,
        site: &Site<H>,
    ) -> (Box<Held>, WorkerTask) {
        let window = site.session.limits.stream_window_bytes;
        let held = self.begin(Errand::new(&exchange, window, bell, false));
        let task = WorkerTask {
            exchange: Some(exchange),
            errand: Arc::clone(&held.errand),
        };
        (held, task)
    }

    fn begin(&mut self, errand: Errand) -> Box<Held> {
        self.row.app_requests.add(1);
        self.row.app_requests_in_progress.add(1);
        if let Some(mut held) = self.spare.pop()
            && let Some(spare) = Arc::get_mut(&mut held.errand)
        {
            *spare = errand;
            held.has_ended = false;
            return held;
        }
        Box::new(Held {
            errand: Arc::new(errand),
            row: Arc::clone(&self.row),
            task: None,
            more: Vec::new(),
            has_ended: false,
        })
    }

    /// Ends one, and keeps its memory if nobody else has a part of it, without what it carried.
    pub(crate) fn end(&mut self, mut held: Box<Held>) {
        held.end();
        if self.spare.len() == SPARE_MAX || held.task.is_some() {
            return;
        }
        if let Some(errand) = Arc::get_mut(&mut held.errand) {
            errand.state = Mutex::default();
            held.more = Vec::new();
            self.spare.push(held);
        }
    }
}

/// What telling a session has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// There was nothing to tell.
    Nothing,
    /// Something; there may be more to come.
    Some,
    /// The last of it: the answer is complete.
    Last,
}

impl Held {
    /// Whether no task, port or waker of it is left.
    fn is_alone(&mut self) -> bool {
        self.task.is_none() && Arc::get_mut(&mut self.errand).is_some()
    }

    /// Cancels what is not over.
    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if !self.is_alone() {
            self.expect();
            self.errand.cancel();
            site::drop_guarded(self.task.take());
        }
        self.row.app_requests_in_progress.sub(1);
    }

    /// A task that is polled here is woken without a bell: `go_on` is due after this.
    fn expect(&self) {
        if self.task.is_some() && !self.errand.rung.load(Ordering::SeqCst) {
            self.errand.rung.store(true, Ordering::SeqCst);
        }
    }

    /// Content for the task; `go_on` is due.
    pub(crate) fn offer(&self, piece: Piece) {
        self.expect();
        let mut state = self.errand.lock();
        match piece {
            Piece::Data(bytes) => state.content.push_back(bytes),
            Piece::End => state.content_ended = true,
            Piece::Trailers(_) | Piece::Abort => return,
        }
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Room for the task's answer; `go_on` is due.
    pub(crate) fn pull(&self, room: usize) {
        self.expect();
        let mut state = self.errand.lock();
        state.room += room;
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }

    /// Polls the task once, if that is due and it is here, and tells the session what there is.
    pub(crate) fn go_on(&mut self, session: &mut ServerSession, turn: &mut Turn<'_>) -> Told {
        let mut is_over = false;
        if self.task.is_some() && self.errand.woken.swap(false, Ordering::SeqCst) {
            self.expect();
            is_over = self.poll();
        }
        let told = self.tell(is_over, session, turn);
        if told != Told::Last && self.task.is_some() && self.errand.woken.load(Ordering::SeqCst) {
            self.errand.ring(); // others first
        }
        told
    }

    /// Whether the task is over.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.errand));
        let Some(task) = &mut self.task else {
            return false;
        };
        let polled = site::poll_guarded(task, &mut Context::from_waker(&waker));
        if polled.is_ready() {
            site::drop_guarded(self.task.take());
        }
        polled.is_ready()
    }

    fn tell(&mut self, is_over: bool, session: &mut ServerSession, turn: &mut Turn<'_>) -> Told {
        self.errand.rung.store(false, Ordering::SeqCst);
        let mut state = self.errand.lock();
        if is_over {
            state.finish();
        }
        std::mem::swap(&mut self.more, &mut state.more);
        let first = state.first.take();
        drop(state);
        let mut told = Told::Nothing;
        for news in first.into_iter().chain(self.more.drain(..)) {
            let is_last = match news {
                News::Answered(exchange) => {
                    let is_last = !matches!(exchange.response.body, Body::Stream { .. });
                    session.answered(exchange, turn);
                    is_last
                }
                News::Produced(piece) => {
                    let is_last = matches!(piece, Piece::End | Piece::Abort);
                    session.produced(StreamId::default(), piece, turn);
                    is_last
                }
                News::Consumed(bytes) => {
                    session.consumed(StreamId::default(), bytes, turn);
                    false
                }
            };
            if is_last {
                return Told::Last;
            }
            told = Told::Some;
        }
        told
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// A task on its way to a worker.
#[derive(Debug)]
pub(crate) struct WorkerTask {
    /// Until it begins.
    pub(crate) exchange: Option<Box<Exchange>>,
    errand: Arc<Errand>,
}

impl WorkerTask {
    /// Carries the task out, to its end or until it is cancelled; sleeps in between.
    pub(crate) fn run<H: Handler>(&mut self, site: &Site<H>, sleeper: &Arc<Sleeper>) {
        let Some(exchange) = self.exchange.take_if(|_| !self.errand.is_gone()) else {
            return;
        };
        let _ending = Ending(&self.errand);
        let waker = Waker::from(Arc::clone(sleeper));
        self.errand.lock().poller = Some(waker.clone());
        let port = Port::new(Arc::clone(&self.errand) as Arc<dyn Courier>);
        let mut task = site.start(exchange, port);
        while let Some(running) = &mut task {
            if self.errand.is_gone() {
                break;
            }
            if site::poll_guarded(running, &mut Context::from_waker(&waker)).is_ready() {
                break;
            }
            sleeper.sleep();
        }
        site::drop_guarded(task);
    }
}

/// Tells the owner that a worker is done with a task, however it is.
struct Ending<'e>(&'e Errand);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().poller = None;
        self.0.finish();
    }
}

/// How a worker sleeps while its task waits.
pub(crate) struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Sleeper {
    /// Of this thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: std::thread::current(),
            woken: AtomicBool::new(false),
        })
    }

    /// Until somebody wakes it; not at all if somebody has. A task may still be woken by wakers of an
    /// earlier one: then it is polled once in vain.
    fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}
