//! What became of handshakes. Written once for each, by whichever thread has it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustls::HandshakeKind;

/// Counts of a server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    full: AtomicU64,
    resumed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) plaintext: AtomicU64,
    pub(crate) truncated: AtomicU64,
}

impl Counters {
    /// Of handshakes of this kind that are done.
    pub(crate) fn of(&self, kind: Option<HandshakeKind>) -> &AtomicU64 {
        match kind {
            Some(HandshakeKind::Resumed) => &self.resumed,
            _ => &self.full,
        }
    }

    pub(crate) fn counts(&self) -> HandshakeCounts {
        HandshakeCounts {
            full: self.full.load(Relaxed),
            resumed: self.resumed.load(Relaxed),
            failed: self.failed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            plaintext: self.plaintext.load(Relaxed),
            truncated: self.truncated.load(Relaxed),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// What became of handshakes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Full ones.
    pub full: u64,
    /// Of sessions that were taken up again.
    pub resumed: u64,
    /// Ended by one of the two sides, but for clients that left before they had sent anything.
    pub failed: u64,
    /// Ended because too many were computed at the time.
    pub refused: u64,
    /// Not done in time, also of clients that sent nothing.
    pub timed_out: u64,
    /// Connections that began with something else than TLS.
    pub plaintext: u64,
    /// Connections that ended without `close_notify`: somebody may have cut them.
    pub truncated: u64,
}
