//! What can be chosen, and every limit with its reason.

use std::time::Duration;

use crate::clock::Clock;
use crate::hashing::HashCost;
use crate::store::Database;
use crate::throttle::Tries;
use crate::turns::Turns;

/// Characters of a user name: enough for any name, little enough for any page.
pub(crate) const NAME_CHARS_MAX: usize = 64;
/// The same after normalisation, in bytes: the column has room for 255 characters.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// NIST SP 800-63B and ASVS 6.2.1: at least 8.
pub(crate) const PASSWORD_CHARS_MIN: usize = 8;
/// ASVS 6.2.9 asks for at least 64. A bound all the same, since each byte is hashed.
pub(crate) const PASSWORD_CHARS_MAX: usize = 128;
/// Different characters that a password must have: `aaaaaaaa` and `12121212` are no secrets.
pub(crate) const PASSWORD_DISTINCT_MIN: usize = 4;
/// A form with the longest name and three of the longest passwords, percent-encoded, fits.
pub const FORM_BYTES_MAX: usize = 16 * 1024;
/// Sessions of one user; with another login the oldest ends.
pub(crate) const SESSIONS_PER_USER_MAX: i64 = 20;
/// A session's last use is written at most this often: a page view is a read, not a write.
pub(crate) const SEEN_EVERY_MS: i64 = 60_000;
/// Browsers that an account knows; with another one the account forgets the one that logged in least
/// recently.
pub(crate) const DEVICES_PER_USER_MAX: i64 = 20;
/// Accounts that know a browser, by its cookies: more would make each of its requests long.
pub(crate) const DEVICE_COOKIES_MAX: usize = 8;
/// Cookies of one name that are looked at: a browser has one, but others may have planted some.
pub(crate) const COOKIES_PER_NAME_MAX: usize = 8;
/// Expired sessions are removed this often, by whichever login comes then.
pub(crate) const PURGE_EVERY_MS: i64 = 60_000;
/// Addresses, networks and browsers whose tries are remembered: about 8 MiB for each kind.
pub(crate) const TRIES_ENTRIES_MAX: usize = 65_536;
/// Accounts whose turns are: 2 MiB, or 14 if as many wait for each of them as can.
pub(crate) const TURNS_ENTRIES_MAX: usize = 16_384;
/// Statements that may wait for a connection; more would wait too long anyway.
pub(crate) const POOL_QUEUE_MAX: u64 = 1024;
/// Passwords that may wait to be hashed; more would wait too long anyway.
pub(crate) const HASH_QUEUE_MAX: u64 = 256;
/// A connection idle for longer is asked whether it is still there before it is used.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(1);
/// Once the database was found gone, requests are answered at once for so long instead of waiting.
pub(crate) const GONE_FOR_MS: u64 = 500;
/// Pauses between tries to reach the database at the start: doubled from the first to the last.
pub(crate) const START_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// About 300 guesses a day for one who never tires, and a wait of minutes for one who forgot.
const TRIES_OF_ONE: Tries = Tries {
    free: 5,
    delay_first: Duration::from_secs(1),
    delay_max: Duration::from_secs(5 * 60),
    forgotten_after: Duration::from_secs(15 * 60),
};

/// How the accounts are to be. [`Options::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where accounts are stored.
    pub database: Database,
    /// The path that all pages are below, with a slash at its begin and none at its end.
    pub base: String,
    /// Connections to the database, at most.
    pub pool_size: u32,
    /// Connections that are opened at the start. Unless it is 0, none is closed for being idle or old.
    pub pool_min: u32,
    /// How long a request waits for one of them, or for one to be opened.
    pub pool_wait: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    /// How long the database is waited for at the start.
    pub start_patience: Duration,
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
            pool_min: 0,
            pool_wait: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            start_patience: Duration::from_secs(30),
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
            // A hundred guesses in an hour for a crowd: 20, one in 50 s, and those that were kept.
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
            clock: Clock::system(),
        }
    }
}
