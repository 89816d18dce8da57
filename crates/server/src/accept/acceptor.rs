//! Taking connections from listeners without spinning or dying when descriptors run out.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_base::Millis;
use loadline_sys::socket::{AcceptError, accept};
use loadline_sys::{Accepted, wait_any};

use crate::Listener;
use crate::telemetry::counters::ThreadStats;
use crate::telemetry::log;

/// Connections taken in a row before others have their turn: 64 take some 200 us.
pub(crate) const ACCEPT_BATCH: usize = 64;

/// What becomes of new connections when descriptors have run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// They wait in the backlog until something closes.
    Wait,
    /// One at a time is answered with 503, by means of the spare descriptor; the others wait.
    Refuse,
}

/// A connection that was taken.
#[derive(Debug)]
pub(crate) enum NewConnection {
    /// To be served.
    Regular(Accepted),
    /// To be refused with 503: it holds the last descriptor.
    LastDescriptor(Accepted),
}

/// First pause at the descriptor limit: about what a request takes to end.
const BACK_OFF_MS_MIN: u64 = 10;
/// Longest pause: a freed descriptor is found within half a second.
const BACK_OFF_MS_MAX: u64 = 500;
/// Between two log lines about the same trouble.
const LOG_INTERVAL_MS: u64 = 10_000;

/// When the next log line about descriptors may be written: one for all accepting threads of a
/// server, in milliseconds of its clock.
pub(crate) type LogAfter = Arc<AtomicU64>;

/// The listeners of one accepting thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    /// Which listener comes first next time, so that none is starved by another.
    next: usize,
    at_limit: AtLimit,
    /// A descriptor to let go of when none is left, so that a new connection can be accepted and refused.
    spare: Option<OwnedFd>,
    back_off_ms: u64,
    paused_until: Option<Millis>,
    log_after: LogAfter,
    deferred_since_log: u64,
    /// During a drain: connections of the backlog that are still to be taken.
    left: Option<u64>,
}

impl Acceptor {
    /// Accepts from `listeners`.
    ///
    /// # Errors
    /// At the descriptor limit already.
    pub(crate) fn new(
        listeners: Vec<Listener>,
        at_limit: AtLimit,
        log_after: &LogAfter,
    ) -> io::Result<Self> {
        Ok(Self {
            listeners,
            next: 0,
            at_limit,
            spare: Some(open_spare()?),
            back_off_ms: BACK_OFF_MS_MIN,
            paused_until: None,
            log_after: Arc::clone(log_after),
            deferred_since_log: 0,
            left: None,
        })
    }

    /// The next connection; `None` if none waits, or while accepting is paused.
    pub(crate) fn next(
        &mut self,
        now: Millis,
        stats: &ThreadStats,
    ) -> io::Result<Option<NewConnection>> {
        if self.is_drained() || self.paused_until.is_some_and(|until| now < until) {
            return Ok(None);
        }
        self.paused_until = None;
        if self.spare.is_none() {
            self.spare = open_spare().ok();
        }
        for _ in 0..self.listeners.len() {
            self.next = (self.next + 1) % self.listeners.len();
            match accept(self.listeners[self.next].as_fd()) {
                Ok(Some(accepted)) => {
                    self.back_off_ms = BACK_OFF_MS_MIN;
                    let accepted = self.taken(accepted);
                    return Ok(Some(NewConnection::Regular(accepted)));
                }
                Ok(None) => {}
                Err(AcceptError::Exhausted) => return Ok(self.exhausted(now, stats)),
                Err(AcceptError::Listener(error)) => return Err(error),
            }
        }
        self.left = self.left.map(|_| 0);
        Ok(None)
    }

    /// A connection of the listener whose turn it is.
    fn taken(&mut self, accepted: Accepted) -> Accepted {
        self.left = self.left.map(|left| left.saturating_sub(1));
        Accepted {
            listener: self.listeners[self.next].number(),
            ..accepted
        }
    }

    /// The server is going down: what the kernel has completed by now is still taken, and no more.
    /// Without that bound, clients that connect anew for each request would keep it up for ever.
    pub(crate) fn begin_drain(&mut self) {
        if self.left.is_none() {
            self.left = Some(self.listeners.iter().map(Listener::backlog_len).sum());
        }
    }

    /// Whether the drain has taken all that it had to. The listeners can be closed.
    pub(crate) fn is_drained(&self) -> bool {
        self.left == Some(0)
    }

    /// Waits until `next` may have something, or `stage_fd` is readable. For threads that do
    /// nothing else.
    pub(crate) fn wait(&self, now: Millis, stage_fd: BorrowedFd<'_>) -> io::Result<()> {
        self.wait_at_most(now, stage_fd, None)
    }

    /// The same, no longer than this.
    pub(crate) fn wait_at_most(
        &self,
        now: Millis,
        stage_fd: BorrowedFd<'_>,
        timeout_ms: Option<u64>,
    ) -> io::Result<()> {
        let mut fds = vec![stage_fd];
        if self.paused_until.is_none() {
            fds.extend(self.listeners.iter().map(AsFd::as_fd));
        }
        let paused_ms = self.paused_until.map(|until| until.since(now));
        wait_any(&fds, paused_ms.into_iter().chain(timeout_ms).min())
    }

    /// Descriptors have run out: pauses, and accepts one connection by the spare if it is to be refused.
    #[cold]
    fn exhausted(&mut self, now: Millis, stats: &ThreadStats) -> Option<NewConnection> {
        stats.accepts_deferred.add(1);
        self.deferred_since_log += 1;
        let after = self.log_after.load(Ordering::Relaxed);
        let is_mine = || {
            let next = now.0 + LOG_INTERVAL_MS;
            let won =
                self.log_after
                    .compare_exchange(after, next, Ordering::Relaxed, Ordering::Relaxed);
            won.is_ok()
        };
        if now.0 >= after && is_mine() {
            let times = self.deferred_since_log;
            log::say(|| {
                tracing::warn!(
                    times,
                    "out of descriptors (or memory for sockets): new connections have to wait; \
                     raise the limit of open files (ulimit -n) or lower --connections-max"
                );
            });
            self.deferred_since_log = 0;
        }
        self.paused_until = Some(Millis(now.0 + self.back_off_ms));
        self.back_off_ms = (2 * self.back_off_ms).min(BACK_OFF_MS_MAX);
        if self.at_limit == AtLimit::Wait {
            return None;
        }
        drop(self.spare.take()?);
        match accept(self.listeners[self.next].as_fd()) {
            Ok(Some(accepted)) => Some(NewConnection::LastDescriptor(self.taken(accepted))),
            _ => {
                self.spare = open_spare().ok();
                None
            }
        }
    }

    /// A connection was accepted by other means: there are descriptors again.
    pub(crate) fn accepted(&mut self) {
        self.back_off_ms = BACK_OFF_MS_MIN;
        if self.spare.is_none() {
            self.spare = open_spare().ok();
        }
    }

    /// Until when nothing is accepted. Meanwhile listeners must not be watched: they are readable.
    pub(crate) fn paused_until(&self) -> Option<Millis> {
        self.paused_until
    }

    /// As if descriptors had run out.
    #[cfg(test)]
    pub(crate) fn pause(&mut self, until: Millis) {
        self.paused_until = Some(until);
    }

    /// Forgets the pause: something has been closed to make room.
    pub(crate) fn resume(&mut self) {
        self.paused_until = None;
        self.back_off_ms = BACK_OFF_MS_MIN;
    }

    /// For watching them.
    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }
}

fn open_spare() -> io::Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use loadline_sys::ListenAddr;

    use super::*;
    use crate::ServerOptions;
    use crate::telemetry::counters::{Registry, Role};

    /// In its place one was taken that connected after the drain had begun.
    #[test]
    fn a_connection_with_the_last_descriptor_is_one_of_those_that_a_drain_has_to_take() {
        let any_port = ListenAddr::Tcp(([127, 0, 0, 1], 0).into());
        let options = ServerOptions {
            defer_accept: false, // the client sends nothing
            ..ServerOptions::default()
        };
        let listeners = Listener::bind_all(&[any_port], &options, None).unwrap();
        let ListenAddr::Tcp(address) = *listeners[0].address() else {
            panic!("not TCP");
        };
        let _client = TcpStream::connect(address).unwrap();
        wait_any(&[listeners[0].as_fd()], Some(20_000)).unwrap();
        let log_after = LogAfter::default();
        let mut acceptor = Acceptor::new(listeners, AtLimit::Refuse, &log_after).unwrap();
        acceptor.begin_drain();
        assert!(!acceptor.is_drained());
        let stats = Registry::default().thread_stats(Role::Acceptor);
        let taken = acceptor.exhausted(Millis(0), &stats);
        let is_last = matches!(taken, Some(NewConnection::LastDescriptor(_)));
        assert!(is_last, "{taken:?}");
        assert!(acceptor.is_drained());
    }
}
