//! Which connection has a thread, and for how long.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use loadline_base::{MemoryBudget, Millis, Token};
use loadline_proto::CloseReason;
use loadline_sys::Waker;

use crate::fairness::{ClientKey, Occupation};
use crate::task::TaskHome;

/// A connection's right to its thread, which it may lose while it waits for its client.
pub(crate) trait Hold {
    /// Whether the thread gives a connection back that has lost it, and goes on with others. Otherwise one
    /// that has lost it is closed.
    const GIVES_BACK: bool;

    /// Whether somebody else wakes the thread at the deadline of the connection that it may lose.
    const IS_WOKEN_AT_DEADLINE: bool = false;

    /// The connection begins to wait. `false`: it has lost the thread already.
    fn rest(&self, resting: &Resting) -> bool;

    /// It goes on; `false` if it has lost the thread meanwhile.
    fn resume(&self) -> bool;

    /// Why it has lost the thread, if it has.
    fn has_lost(&self) -> Option<CloseReason> {
        None
    }

    /// Memory is short: others lose their threads. `false`: too few can, and nobody may have more.
    fn relieve(&self, _memory: &MemoryBudget, _now: Millis) -> bool {
        false
    }

    /// Whether others wait for the thread.
    fn is_wanted(&self) -> bool {
        false
    }

    /// What wakes the thread when its connection has lost it, as all do in a shutdown.
    fn waker(&self) -> Option<&Waker> {
        None
    }

    /// The loop that the connection belongs to, which takes it back while it waits for its tasks.
    fn home(&self) -> Option<(&Arc<dyn TaskHome>, Token)> {
        None
    }

    /// The socket, if nobody has looked yet how long its requests have waited for this thread.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A connection that begins to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resting {
    pub(crate) now: Millis,
    pub(crate) deadline: Option<Millis>,
    pub(crate) occupation: Occupation,
    /// Behind a trusted proxy: for whose request it holds what it holds.
    pub(crate) proxied_client: Option<ClientKey>,
    /// What its end would free.
    pub(crate) bytes: u64,
}

/// A connection that keeps its thread to its end.
pub(super) struct Forever<'s> {
    pub(super) socket: BorrowedFd<'s>,
}

impl Hold for Forever<'_> {
    const GIVES_BACK: bool = false;

    fn rest(&self, _resting: &Resting) -> bool {
        true
    }

    fn resume(&self) -> bool {
        true
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket)
    }
}
