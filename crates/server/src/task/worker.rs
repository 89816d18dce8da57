//! A task that workers poll.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loadline_proto::{Courier, Exchange, Port, Task};

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
    New(Box<Exchange>, Arc<dyn Steps>),
    Begun(Task),
    /// It is over, or somewhere else.
    Left,
}

impl fmt::Debug for WorkerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerTask")
    }
}

impl WorkerTask {
    pub(super) fn new(
        exchange: Box<Exchange>,
        channel: Arc<Channel>,
        steps: Arc<dyn Steps>,
    ) -> Self {
        Self {
            stage: Stage::New(exchange, steps),
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
            Stage::New(exchange, _) => exchange.handshake_us,
            Stage::Begun(_) | Stage::Left => 0,
        }
    }

    /// Whether its client has left before a worker has polled it: for certain, or so it seems and it has
    /// `waited_long`.
    pub(crate) fn is_abandoned(&self, waited_long: bool) -> bool {
        match &self.stage {
            Stage::New(exchange, _) => {
                self.channel.is_cancelled() || exchange.hang_up.has_left(waited_long)
            }
            Stage::Begun(_) | Stage::Left => false,
        }
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
        if !self.channel.begin_poll() || self.poll_task().is_ready() {
            self.end();
            return Poll::Ready(());
        }
        if let Stage::Begun(task) = mem::replace(&mut self.stage, Stage::Left) {
            self.channel.put_aside(task);
        }
        Poll::Pending
    }

    fn poll_task(&mut self) -> Poll<()> {
        if let Stage::New(..) = self.stage
            && let Stage::New(exchange, steps) = mem::replace(&mut self.stage, Stage::Left)
        {
            let port = Port::new(Arc::clone(&self.channel) as Arc<dyn Courier>);
            match steps.start(exchange, port) {
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

    /// Takes the request back from a task that no worker has polled.
    pub(crate) fn take_exchange(&mut self) -> Option<Box<Exchange>> {
        match mem::replace(&mut self.stage, Stage::Left) {
            Stage::New(exchange, _) => Some(exchange),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Drops the task, and reports its end.
    pub(crate) fn end(&mut self) {
        match mem::replace(&mut self.stage, Stage::Left) {
            Stage::New(..) => {}
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
