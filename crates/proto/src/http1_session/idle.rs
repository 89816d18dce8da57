//! How long an idle connection stays, and what is said about that.

use super::Http1Session;
use crate::Version;

impl Http1Session {
    /// How long it may be idle; `u64::MAX`: without end.
    pub(super) fn idle_timeout_ms(&self) -> u64 {
        self.config.limits.idle_ms(self.peer_is_trusted())
    }

    /// The idle time that a response promises, in seconds, to clients that keep connections for
    /// later: trusted proxies, and HTTP/1.0 clients, whose response says in any case that it stays
    /// open. 0: no promise. Less than the real timeout, for a request that is on its way by then.
    pub(super) fn promised_s(&self, version: Version) -> u32 {
        if !self.peer_is_trusted() && version != Version::Http10 {
            return 0;
        }
        match self.idle_timeout_ms() {
            u64::MAX => 0,
            timeout_ms => {
                let margin_ms = (timeout_ms / 10).clamp(1_000, 5_000);
                let promised_ms = timeout_ms.saturating_sub(margin_ms);
                u32::try_from(promised_ms / 1_000).unwrap_or(u32::MAX)
            }
        }
    }
}
