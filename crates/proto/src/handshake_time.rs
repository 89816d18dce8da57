//! How long the server has kept the handshake before a request.

/// The time of a connection's handshake, for the first request behind it, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeTime {
    /// How long the server has kept it, waiting included; 0: there was none, or this is not its first request.
    pub kept_us: u64,
    /// How long ago its last step was computed.
    pub computed_ago_us: u64,
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
}
