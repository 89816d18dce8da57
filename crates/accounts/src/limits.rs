//! Every bound that is not an option.

use std::time::Duration;

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
/// A session's last use is written at most this often, or ten times in the time after which it ends without
/// use, if that is more often: a page view is a read, not a write.
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
pub(crate) const POOL_QUEUE_MAX: usize = 1024;
/// Passwords that may wait to be hashed; more would wait too long anyway.
pub(crate) const HASH_QUEUE_MAX: usize = 256;
/// A connection idle for longer is asked whether it is still there before it is used.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(1);
/// Once the database was found gone, requests are answered at once for so long instead of waiting.
pub(crate) const GONE_FOR_MS: u64 = 500;
/// A connection that more slots need is waited for so long.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(1);
/// Once the database granted no more connections, no more are tried for so long.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Pauses between tries to reach the database at the start: doubled from the first to the last.
pub(crate) const START_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];
