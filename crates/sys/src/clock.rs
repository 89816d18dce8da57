//! The clocks as numbers: the monotonic one, on which all processes of the machine agree, and the
//! calendar's.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Both are positive by the clock's definition.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Milliseconds since 1970-01-01 UTC; 0 before that.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64) // 64 bits are enough for all of history
}
