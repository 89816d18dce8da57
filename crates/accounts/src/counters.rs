//! What the app counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What was counted since the start. Counts and times only rise, but for
        /// `connections`, `pool_size` and `pool_busy`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// All of them with their names, for status pages.
            #[must_use]
            pub fn named(&self) -> [(&'static str, u64); [$(stringify!($name)),+].len()] {
                [$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Accounts made.
    registered,
    /// Successful logins.
    logins,
    /// Logins refused for a wrong user name or password.
    logins_refused,
    /// Tries refused because an account or an address had too many.
    throttled,
    /// Forms refused because their token was missing or not of this browser.
    forged,
    /// Database connections at present.
    connections,
    /// Database connections opened for the pool.
    connections_opened,
    /// Connections that there may be at present.
    pool_size,
    /// The fewest that there may be, and
    pool_size_min,
    /// the most: between these the number changes by itself.
    pool_size_max,
    /// Connections in use.
    pool_busy,
    /// Times a connection of the pool was asked for.
    pool_asked,
    /// Times it had to be waited for, because all were in use.
    pool_waits,
    /// How long all these waits were, in microseconds.
    pool_wait_us,
    /// Waits given up after [`Options::pool_wait`](crate::Options::pool_wait), or not begun because too
    /// many were waiting already.
    pool_refused,
    /// Statements that failed because the database was gone, or too slow.
    database_failures,
    /// Passwords hashed or verified.
    hashes,
    /// Hashes refused because too many were waiting, or for too long.
    hashes_refused,
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
