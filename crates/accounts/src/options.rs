//! What can be chosen.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::database::Database;
use crate::throttle::Tries;
use crate::turns::Turns;

/// About 300 guesses a day for an attacker that never stops, and a wait of minutes for a user who
/// forgot the password.
const TRIES_OF_ONE: Tries = Tries {
    free: 5,
    delay_first: Duration::from_secs(1),
    delay_max: Duration::from_secs(5 * 60),
    forgotten_after: Duration::from_secs(15 * 60),
};

/// A year, as ASVS 3.4.1 asks for.
const HSTS_MAX_AGE_S: u64 = 31_536_000;

/// How the accounts are to be. [`Options::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where accounts are stored.
    pub database: Database,
    /// The path that all pages are below, with a slash at its begin and none at its end.
    pub base: String,
    /// Connections to the database, at most; at the start, where the number changes.
    pub pool_size: u32,
    /// Between which numbers it changes, by what statements wait for; `None`: it does not.
    pub pool_range: Option<PoolRange>,
    /// How often that is decided. All its other times are so many of these.
    pub pool_interval: Duration,
    /// Connections that are opened at the start. Unless it is 0, none is closed for being idle or old.
    pub pool_min: u32,
    /// How long a request waits while all of them are in use.
    pub pool_wait: Duration,
    /// How long one may take to be opened; then the database counts as gone.
    pub connect_timeout: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    /// How long the database is waited for at the start.
    pub start_timeout: Duration,
    /// What a password hash costs.
    pub hash_cost: HashCost,
    /// Hashes in progress at the same time, on threads that may block.
    pub hashes_max: usize,
    /// How long a request waits for its turn to hash.
    pub hash_wait: Duration,
    /// The memory of a hash is kept for so long without use; then it is given back.
    pub hash_memory_kept: Duration,
    /// A session ends after so long without use.
    pub session_idle: Duration,
    /// A session ends after so long in any case.
    pub session_max: Duration,
    /// An account knows a browser for so long after its last login.
    pub device_max: Duration,
    /// Tries to log in to one account, or to prove its password, of a browser that the account knows.
    pub tries_by_device: Tries,
    /// The same of all others from one address, or network of IPv6.
    pub tries_by_network: Tries,
    /// The same of all others from anywhere.
    pub turns_by_account: Turns,
    /// The same of all others from one address, on any accounts.
    pub tries_by_address: Tries,
    /// Accounts made from one address.
    pub registrations_by_address: Tries,
    /// Over TLS, pages tell browsers to use only https for so many seconds (Strict-Transport-Security); 0 ends
    /// it.
    pub hsts_max_age_s: u64,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Options {
    /// The defaults, on a database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        let minute = Duration::from_secs(60);
        Self {
            database,
            base: "/accounts".to_owned(),
            pool_size: 8, // as the study whose accounts these are (P2)
            // A few, so that one slow statement does not stop the next; and fewer than the 100 that
            // PostgreSQL and the 151 that MariaDB grant by default.
            pool_range: Some(PoolRange { min: 2, max: 64 }),
            pool_interval: Duration::from_millis(loadline_capacity::sizing::INTERVAL_MS),
            pool_min: 0,
            pool_wait: Duration::from_secs(2),
            // Some round trips, with those of TLS; a request waits for it while the database is gone.
            connect_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(30),
            hash_cost: HashCost::default(),
            // Each holds a CPU for its whole time: half of them stay for everything else.
            hashes_max: std::thread::available_parallelism()
                .map_or(1, |cpus| (cpus.get() / 2).max(1)),
            hash_wait: Duration::from_secs(5),
            hash_memory_kept: Duration::from_secs(10),
            session_idle: 30 * minute,
            session_max: 12 * 60 * minute,
            device_max: 180 * 24 * 60 * minute,
            tries_by_device: TRIES_OF_ONE,
            tries_by_network: TRIES_OF_ONE,
            // A hundred guesses in an hour for many addresses: 20, one in 50 s, and those that were kept.
            turns_by_account: Turns {
                free: 20,
                every: Duration::from_secs(50),
                ahead_max: 15 * minute,
                kept: 5 * minute,
            },
            // More than one account, because many people share an address.
            tries_by_address: Tries {
                free: 20,
                delay_first: Duration::from_secs(1),
                delay_max: 15 * minute,
                forgotten_after: 30 * minute,
            },
            registrations_by_address: Tries {
                free: 20,
                delay_first: minute,
                delay_max: 60 * minute,
                forgotten_after: 60 * minute,
            },
            hsts_max_age_s: HSTS_MAX_AGE_S,
            clock: Clock::system(),
        }
    }
}

/// Bounds of a number of connections; both belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// The fewest, 1 or more.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl Options {
    /// Between which numbers the connections of the pool change; if they do not, both are the same.
    #[must_use]
    pub fn pool_bounds(&self) -> PoolRange {
        let range = self.pool_range.unwrap_or(PoolRange {
            min: self.pool_size,
            max: self.pool_size,
        });
        let min = range.min.max(1);
        let max = range.max.max(min);
        PoolRange {
            min: self.pool_min.clamp(min, max),
            max,
        }
    }
}

impl fmt::Display for PoolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max } = self;
        match min == max {
            true => write!(f, "{max}"),
            false => write!(f, "{min} to {max}"),
        }
    }
}

/// What one hash costs. The default is the second of the equal choices of the OWASP Password Storage
/// Cheat Sheet: 19 MiB, two passes, one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes, which are worked through one after the other.
    pub lanes: u32,
}

impl Default for HashCost {
    fn default() -> Self {
        Self {
            memory_kib: 19 * 1024,
            passes: 2,
            lanes: 1,
        }
    }
}

impl fmt::Display for HashCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory_kib,
            passes,
            lanes,
        } = self;
        write!(f, "argon2id m={memory_kib},t={passes},p={lanes}")
    }
}
