//! Threads that come and go, and waiting until all have gone.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loadline_proto::Handler;
use loadline_sys::{Waker, wait_readable};

use crate::shutdown::Stage;
use crate::site::Site;
use crate::telemetry::log;

/// Stack of a blocking thread: 1 MiB instead of 2 MiB, for thousands of them. Only what is used is
/// ever real memory (some 20 KiB); the rest is for handlers and apps, and for the report of a panic.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Time that threads have to end after everything was cut. One that is still inside a handler then
/// is left behind: nothing can interrupt it.
pub(crate) const LEAVE_MS: u64 = 500;

/// The system starts no more threads.
pub(crate) fn too_few(started: usize, wanted: usize, error: &io::Error) -> io::Error {
    let text = format!("only {started} of {wanted} threads could be started: {error}");
    io::Error::new(error.kind(), text)
}

/// Counts threads at work.
#[derive(Debug)]
pub(crate) struct ThreadGroup {
    live: AtomicUsize,
    left: Waker,
}

/// One thread at work, until dropped.
#[derive(Debug)]
pub(crate) struct ThreadGuard(Arc<ThreadGroup>);

impl ThreadGroup {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            live: AtomicUsize::new(0),
            left: Waker::new()?,
        }))
    }

    /// One more.
    pub(crate) fn enter(self: &Arc<Self>) -> ThreadGuard {
        self.live.fetch_add(1, Ordering::Relaxed);
        ThreadGuard(Arc::clone(self))
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// During a shutdown: waits until all have gone, or cannot be waited for any longer; those
    /// count as cut.
    pub(crate) fn wait_empty<H: Handler>(&self, site: &Site<H>) -> io::Result<()> {
        loop {
            self.left.clear();
            let live = self.live.load(Ordering::Acquire);
            if live == 0 {
                return Ok(());
            }
            let now = site.clock.now();
            let end = site.shutdown.cut_at().map(|at| at.0 + LEAVE_MS);
            if end.is_some_and(|end| now.0 >= end) {
                log::say(|| {
                    tracing::warn!(threads = live, "threads inside a handler were left behind");
                });
                site.registry.cut.add(live as u64);
                return Ok(());
            }
            let timeout_ms = end.map(|end| end - now.0);
            let left = self.left.as_fd();
            if site.shutdown.stage() == Stage::Stopping {
                wait_readable(&[left], timeout_ms)?;
            } else {
                wait_readable(&[left, site.shutdown.stop_fd()], timeout_ms)?;
            }
        }
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if self.0.live.fetch_sub(1, Ordering::Release) == 1 {
            self.0.left.wake();
        }
    }
}
