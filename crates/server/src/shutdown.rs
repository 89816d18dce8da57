//! The two stages of going down, seen by every thread at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use loadline_base::Millis;
pub(crate) use loadline_proto::FIRST_REQUEST_GRACE_MS;
use loadline_sys::Waker;

/// How far the shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Serving.
    Up,
    /// No new connections; what was accepted is finished, until the grace ends.
    Draining,
    /// Everything is cut now.
    Stopping,
}

/// The flag and the events of a shutdown.
///
/// Two eventfds that are written once and never read: a thread that polls one, now or later, level- or
/// edge-triggered, learns of its stage. A thread that has seen a stage stops polling for it. Before
/// the first stage the server may say that it is not ready, while it serves as ever: no thread needs
/// to learn of that.
pub(crate) struct Shutdown {
    ready: AtomicBool,
    stage: AtomicU8,
    drain_began_ms: AtomicU64,
    cut_at_ms: AtomicU64,
    drain: Waker,
    stop: Waker,
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shutdown({:?})", self.stage())
    }
}

impl Shutdown {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            ready: AtomicBool::new(true),
            stage: AtomicU8::new(Stage::Up as u8),
            drain_began_ms: AtomicU64::new(u64::MAX),
            cut_at_ms: AtomicU64::new(u64::MAX),
            drain: Waker::new()?,
            stop: Waker::new()?,
        })
    }

    /// Before the first stage: readiness probes fail, so that requests go elsewhere.
    pub(crate) fn announce(&self) {
        self.ready.store(false, Ordering::SeqCst);
    }

    /// Whether more requests are welcome: until a shutdown is announced.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    /// First stage. Later calls change nothing.
    pub(crate) fn begin_drain(&self, now: Millis, grace: Duration) {
        self.announce();
        self.drain_began_ms.fetch_min(now.0, Ordering::SeqCst);
        let cut_at = now.after(grace).0;
        let _ =
            self.cut_at_ms
                .compare_exchange(u64::MAX, cut_at, Ordering::SeqCst, Ordering::SeqCst);
        self.stage
            .fetch_max(Stage::Draining as u8, Ordering::SeqCst);
        self.drain.wake();
    }

    /// Second stage: everything is cut.
    pub(crate) fn stop(&self, now: Millis) {
        self.announce();
        self.cut_at_ms.fetch_min(now.0, Ordering::SeqCst);
        self.stage
            .fetch_max(Stage::Stopping as u8, Ordering::SeqCst);
        self.drain.wake();
        self.stop.wake();
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Up,
            1 => Stage::Draining,
            _ => Stage::Stopping,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.stage() != Stage::Up
    }

    /// When what is left has to be cut; `None` while serving.
    pub(crate) fn cut_at(&self) -> Option<Millis> {
        match self.cut_at_ms.load(Ordering::SeqCst) {
            u64::MAX => None,
            ms => Some(Millis(ms)),
        }
    }

    /// Until when a thread waits in a drain for the first bytes of its connection, which began then. One
    /// that the thread took up later has waited longer: many of them do not hold up the end one by one.
    pub(crate) fn first_request_until(&self, began: Millis) -> Millis {
        let drain_began_ms = self.drain_began_ms.load(Ordering::SeqCst);
        Millis(began.0.min(drain_began_ms) + FIRST_REQUEST_GRACE_MS)
    }

    /// Whether what is left has to be cut by `now`.
    pub(crate) fn is_cut(&self, now: Millis) -> bool {
        self.stage() == Stage::Stopping || self.cut_at().is_some_and(|at| now >= at)
    }

    /// Readable from the first stage on. Not to be read.
    pub(crate) fn drain_fd(&self) -> BorrowedFd<'_> {
        self.drain.as_fd()
    }

    /// Readable from the second stage on. Not to be read.
    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// What a thread polls for the next stage that it has not seen: `seen` is the one it has.
    pub(crate) fn next_fd(&self, seen: Stage) -> BorrowedFd<'_> {
        if seen == Stage::Up {
            self.drain_fd()
        } else {
            self.stop_fd()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: BorrowedFd<'_>) -> bool {
        loadline_sys::wait_readable(&[fd], Some(0)).unwrap()[0]
    }

    #[test]
    fn stages_only_go_forward_and_stay_visible() {
        let shutdown = Shutdown::new().unwrap();
        assert!(!shutdown.is_draining() && !readable(shutdown.drain_fd()));
        assert!(shutdown.is_ready());
        shutdown.announce();
        assert!(!shutdown.is_ready() && shutdown.stage() == Stage::Up);
        assert!(!readable(shutdown.drain_fd()));
        shutdown.begin_drain(Millis(100), Duration::from_secs(1));
        assert_eq!(shutdown.cut_at(), Some(Millis(1100)));
        shutdown.begin_drain(Millis(900), Duration::from_secs(1));
        assert_eq!(shutdown.cut_at(), Some(Millis(1100)));
        assert!(!shutdown.is_cut(Millis(1099)) && shutdown.is_cut(Millis(1100)));
        assert!(readable(shutdown.drain_fd()) && readable(shutdown.drain_fd()));
        assert!(!readable(shutdown.stop_fd()));
        shutdown.stop(Millis(500));
        assert!(shutdown.is_cut(Millis(500)) && readable(shutdown.stop_fd()));
        shutdown.begin_drain(Millis(900), Duration::from_secs(1));
        assert_eq!(shutdown.stage(), Stage::Stopping);
        assert_eq!(shutdown.cut_at(), Some(Millis(500)));
    }

    #[test]
    fn first_requests_have_their_time_from_the_connection_or_from_the_drain() {
        let shutdown = Shutdown::new().unwrap();
        shutdown.begin_drain(Millis(1000), Duration::from_secs(1));
        shutdown.begin_drain(Millis(1500), Duration::from_secs(1));
        let until = |began| shutdown.first_request_until(Millis(began)).0;
        assert_eq!([until(900), until(1000), until(1100)], [1150, 1250, 1250]);
    }

    #[test]
    fn stopping_at_once_wakes_those_who_only_poll_for_the_first_stage() {
        let shutdown = Shutdown::new().unwrap();
        shutdown.stop(Millis(5));
        assert!(!shutdown.is_ready());
        assert!(readable(shutdown.next_fd(Stage::Up)));
        assert!(readable(shutdown.next_fd(Stage::Draining)));
    }
}
