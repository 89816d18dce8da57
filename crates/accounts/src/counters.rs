//! What the app counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was counted since the start. Counts and times only rise, but for `connections`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Accounts made.
    pub registered: u64,
    /// Successful logins.
    pub logins: u64,
    /// Logins refused for a wrong user name or password.
    pub logins_refused: u64,
    /// Tries refused because an account or an address had too many.
    pub throttled: u64,
    /// Forms refused because their token was missing or not of this browser.
    pub forged: u64,
    /// Database connections at present.
    pub connections: u64,
    /// Database connections opened for the pool.
    pub connections_opened: u64,
    /// Times a connection of the pool was asked for.
    pub pool_asked: u64,
    /// Times it had to be waited for, because all were in use.
    pub pool_waits: u64,
    /// How long all these waits were, in microseconds.
    pub pool_wait_us: u64,
    /// Waits given up after [`Options::pool_wait`](crate::Options::pool_wait), or not begun because too
    /// many were waiting already.
    pub pool_refused: u64,
    /// Statements that failed because the database was gone, or too slow.
    pub database_failures: u64,
    /// Passwords hashed or verified.
    pub hashes: u64,
    /// Hashes refused because too many were waiting, or for too long.
    pub hashes_refused: u64,
}

impl Counters {
    /// All of them with their names, for status pages.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("registered", self.registered),
            ("logins", self.logins),
            ("logins_refused", self.logins_refused),
            ("throttled", self.throttled),
            ("forged", self.forged),
            ("connections", self.connections),
            ("connections_opened", self.connections_opened),
            ("pool_asked", self.pool_asked),
            ("pool_waits", self.pool_waits),
            ("pool_wait_us", self.pool_wait_us),
            ("pool_refused", self.pool_refused),
            ("database_failures", self.database_failures),
            ("hashes", self.hashes),
            ("hashes_refused", self.hashes_refused),
        ]
    }
}

/// A count that many threads raise.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
