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

    /// The request behind it was not read for the last `us`, in which its connection waited. Returns how much of that
    /// the request has waited: what was before the handshake was done is counted as the handshake's. It is no time
    /// that the client has let pass.
    pub fn waited_unread(&mut self, us: u64) -> u64 {
        let waited_us = match self.kept_us {
            0 => us,
            _ => us.min(self.done_ago_us),
        };
        self.done_ago_us = self.done_ago_us.saturating_sub(waited_us);
        waited_us
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

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(kept_us: u64, done_ago_us: u64) -> HandshakeTime {
        HandshakeTime {
            kept_us,
            computed_ago_us: done_ago_us,
            done_ago_us,
        }
    }

    #[test]
    fn what_a_request_has_waited_unread_counts_once() {
        // There was none; it came with the last message, which the handshake was kept for; it came later.
        for (kept_us, done_ago_us, waited_us) in [
            (0, 0, 600_000),
            (300_000, 0, 0),
            (300_000, 400_000, 400_000),
            (300_000, 800_000, 600_000),
        ] {
            let mut handshake = handshake(kept_us, done_ago_us);
            assert_eq!(handshake.waited_unread(600_000), waited_us);
        }
    }

    /// What was more than 250 ms of it was subtracted from the time of the handshake.
    #[test]
    fn what_a_request_has_waited_unread_is_no_time_that_its_client_has_let_pass() {
        let mut handshake = handshake(300_000, 700_000);
        assert_eq!(handshake.waited_unread(600_000), 600_000);
        assert_eq!(handshake.counted_us(0), 300_000);
    }
}
