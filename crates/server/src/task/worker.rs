//! A task that workers poll.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loadline_proto::{Courier, Exchange, Gone, HangUp, Port, Task};

use super::channel::Channel;
use crate::config::Steps;
use crate::fairness::ClientKey;
use crate::site;

/// A task on its way to a worker. Dropped, it ends.
pub(crate) struct WorkerTask {
    stage: Stage,
    channel: Arc<Channel>,
}

enum Stage {
    New(New),
    Begun(Task),
    /// It is over, or somewhere else.
    Left,
}

/// What is known of a task that has not begun. The channel keeps its request.
pub(super) struct New {
    steps: Arc<dyn Steps>,
    hang_up: HangUp,
    handshake_us: u64,
}

impl New {
    pub(super) fn of(exchange: &Exchange, steps: Arc<dyn Steps>) -> Self {
        Self {
            steps,
            hang_up: exchange.hang_up.clone(),
            handshake_us: exchange.handshake.counted_us(0),
        }
    }
}

impl fmt::Debug for WorkerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerTask")
    }
}

impl WorkerTask {
    pub(super) fn new(new: New, channel: Arc<Channel>) -> Self {
        Self {
            stage: Stage::New(new),
            channel,
        }
    }

    /// Answers with 503 in its place, if it has not begun.
    pub(crate) fn refuse(&mut self, retry_after_s: u32) {
        if let Some(mut exchange) = self.take_exchange() {
            exchange.refuse(retry_after_s);
            self.channel.answer(exchange);
        }
    }

    /// Whether no worker has polled it.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.stage, Stage::New(..))
    }

    /// Who has sent its request.
    pub(crate) fn client(&self) -> ClientKey {
        self.channel.client()
    }

    /// How long its connection's handshake was kept, if it is the first request behind that and has not begun.
    pub(crate) fn handshake_us(&self) -> u64 {
        match &self.stage {
            Stage::New(new) => new.handshake_us,
            Stage::Begun(_) | Stage::Left => 0,
        }
    }

    /// Whether its client has left before a worker has polled it: for certain, or so it seems and it has
    /// `waited_long`.
    pub(crate) fn is_abandoned(&self, waited_long: bool) -> bool {
        match &self.stage {
            Stage::New(new) => self.channel.is_cancelled() || new.hang_up.has_left(waited_long),
            Stage::Begun(_) | Stage::Left => false,
        }
    }

    /// Whether its answer is no longer awaited.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.channel.is_cancelled()
    }

    /// Whether it was begun where its connection was served, and passed on to workers from there.
    pub(crate) fn is_passed_on(&self) -> bool {
        self.channel.is_local
    }

    /// One that has been polled before.
    pub(crate) fn begun(task: Task, channel: Arc<Channel>) -> Self {
        Self {
            stage: Stage::Begun(task),
            channel,
        }
    }

    /// Polls the task once, unless it was cancelled. `Pending`: it waits, or is queued again.
    pub(crate) fn poll(&mut self) -> Poll<()> {
        let is_over = match self.channel.begin_poll() {
            Ok(exchange) => self.poll_task(exchange).is_ready(),
            Err(Gone) => true,
        };
        if is_over {
            self.end();
            return Poll::Ready(());
        }
        if let Stage::Begun(task) = mem::replace(&mut self.stage, Stage::Left) {
            self.channel.put_aside(task);
        }
        Poll::Pending
    }

    /// `exchange`: the request, if the task is to begin.
    fn poll_task(&mut self, exchange: Option<Box<Exchange>>) -> Poll<()> {
        if let Some(exchange) = exchange
            && let Stage::New(new) = mem::replace(&mut self.stage, Stage::Left)
        {
            let port = Port::new(Arc::clone(&self.channel) as Arc<dyn Courier>);
            match new.steps.start(exchange, port) {
                Some(task) => self.stage = Stage::Begun(task),
                None => self.channel.finish(), // making it has panicked
            }
        }
        let Stage::Begun(task) = &mut self.stage else {
            return Poll::Ready(());
        };
        let waker = Waker::from(Arc::clone(&self.channel));
        site::poll_guarded(task, &mut Context::from_waker(&waker))
    }

    /// Takes the request back from a task that no worker has polled; `None` also if it was cancelled.
    pub(crate) fn take_exchange(&mut self) -> Option<Box<Exchange>> {
        if !self.is_new() {
            return None;
        }
        self.stage = Stage::Left;
        self.channel.take_exchange()
    }

    /// Drops the task, and reports its end.
    pub(crate) fn end(&mut self) {
        match mem::replace(&mut self.stage, Stage::Left) {
            Stage::New(..) => drop(self.channel.take_exchange()),
            Stage::Begun(task) => site::drop_guarded(Some(task)),
            Stage::Left => return,
        }
        self.channel.finish();
    }
}

impl Drop for WorkerTask {
    fn drop(&mut self) {
        self.end();
    }
}
