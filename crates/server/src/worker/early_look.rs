//! A look at the sizes of pools before it is time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use loadline_sys::Waker;

/// Has the sizes looked at before it is time, for a job that has to wait.
#[derive(Debug)]
pub(crate) struct EarlyLook {
    /// While they are looked at rarely.
    is_wanted: AtomicBool,
    waker: Waker,
}

impl EarlyLook {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            is_wanted: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    pub(crate) fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Relaxed);
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    /// One is enough, however many jobs wait.
    #[cold]
    pub(crate) fn begin(&self) {
        if self.is_wanted.swap(false, Relaxed) {
            self.waker.wake();
        }
    }

    pub(crate) fn clear(&self) {
        self.waker.clear();
    }
}

impl AsFd for EarlyLook {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
