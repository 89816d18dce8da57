//! Whether the client of a request has left while a worker has the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const HALF_CLOSED: u8 = 1;
const GONE: u8 = 2;

/// Shared by a session and the exchange that it has given away: what happens to the connection shows
/// in the exchange, on whichever thread that is.
#[derive(Clone, Debug, Default)]
pub struct HangUp(Arc<AtomicU8>);

impl HangUp {
    /// The client will send no more: it may have left, or may still read the response.
    #[must_use]
    pub fn is_half_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= HALF_CLOSED
    }

    /// The connection is closed: nobody reads the response.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == GONE
    }

    /// Whether the client has left: for certain, or so it seems and its request has `waited_long`.
    #[must_use]
    pub fn has_left(&self, waited_long: bool) -> bool {
        self.is_gone() || (waited_long && self.is_half_closed())
    }

    pub(crate) fn half_close(&self) {
        self.0.fetch_max(HALF_CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.0.store(GONE, Ordering::Relaxed);
    }

    /// For the next request. Nobody else has it then.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
