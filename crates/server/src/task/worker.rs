//! A task that a worker carries out.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use loadline_proto::{Courier, Exchange, Port};

use super::channel::Channel;
use crate::config::Steps;
use crate::site;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};

/// A task on its way to a worker.
#[derive(Debug)]
pub(crate) struct WorkerTask {
    /// Until it begins.
    pub(crate) exchange: Option<Box<Exchange>>,
    channel: Arc<Channel>,
    steps: Arc<dyn Steps>,
}

impl WorkerTask {
    pub(super) fn new(
        exchange: Box<Exchange>,
        channel: Arc<Channel>,
        steps: Arc<dyn Steps>,
    ) -> Self {
        Self {
            exchange: Some(exchange),
            channel,
            steps,
        }
    }

    /// Answers with 503 in its place.
    pub(crate) fn refuse(&mut self, retry_after_s: u32) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.response.overloaded(retry_after_s);
            self.channel.answer(exchange);
        }
    }

    /// Carries the task out, to its end or until it is cancelled; sleeps in between.
    pub(crate) fn run(&mut self, sleeper: &Arc<Sleeper>) {
        let Some(exchange) = self.exchange.take_if(|_| !self.channel.is_gone()) else {
            return;
        };
        let _ending = Ending(&self.channel);
        let waker = Waker::from(Arc::clone(sleeper));
        self.channel.lock().poller = Some(waker.clone());
        let port = Port::new(Arc::clone(&self.channel) as Arc<dyn Courier>);
        let mut task = self.steps.start(exchange, port);
        while let Some(running) = &mut task {
            if self.channel.is_gone() {
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

/// Reports the end of a task, also after a panic.
struct Ending<'e>(&'e Channel);

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
            thread: thread::current(),
            woken: AtomicBool::new(false),
        })
    }

    /// Until somebody wakes it; not at all if somebody has. A task may still be woken by wakers of an
    /// earlier one: then it is polled once in vain.
    fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            thread::park();
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
