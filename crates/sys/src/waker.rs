//! Waking a thread that waits on descriptors: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd. Any thread may wake; whoever polls it sees it readable until it is cleared.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker that has not been woken.
    ///
    /// # Errors
    /// At the descriptor limit.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes it readable; with edge-triggered polling, each call is an edge.
    pub fn wake(&self) {
        // The one failure is a counter at its end, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again. Not needed with edge-triggered polling.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]); // it may have been clear already
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_readable;

    #[test]
    fn readable_from_wake_to_clear() {
        let waker = Waker::new().unwrap();
        let is_awake = || wait_readable(&[waker.as_fd()], Some(0)).unwrap()[0];
        assert!(!is_awake());
        waker.wake();
        waker.wake();
        assert!(is_awake() && is_awake());
        waker.clear();
        assert!(!is_awake());
        waker.clear();
    }
}
