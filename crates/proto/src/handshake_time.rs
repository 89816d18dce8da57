//! How long the server has kept the handshake before a request.

use crate::FIRST_REQUEST_GRACE_MS;

/// The time of a connection's handshake, for the first request behind it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeTime {
    /// How long the server has kept it, waiting included; 0: there was none, or this is not its first request.
    pub kept_us: u64,
    /// How long ago its last step was computed.
    pub computed_ago_us: u64,
    /// How long ago it was done; 0 until then.
    pub done_ago_us: u64,
}

impl HandshakeTime {
    /// How much of the last `us` the request behind it has waited. One that has come along with the last message of
    /// the handshake (early data, or behind a client's certificate) waits once that is computed: before, it is the
    /// handshake that is kept.
    #[must_use]
    pub fn waited_behind_us(self, us: u64) -> u64 {
        match self.kept_us {
            0 => us,
            _ => us.min(self.computed_ago_us),
        }
    }

    /// How much of it counts for a request that has waited for `waited_us`: less if its client has let time pass
    /// before that, as one does that connects early.
    #[must_use]
    pub fn counted_us(self, waited_us: u64) -> u64 {
        let rested_us = self.done_ago_us.saturating_sub(waited_us);
        let is_over_us = rested_us.saturating_sub(1000 * FIRST_REQUEST_GRACE_MS);
        self.kept_us.saturating_sub(is_over_us)
    }
}
