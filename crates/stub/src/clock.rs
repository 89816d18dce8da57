//! The monotonic clock, as nanoseconds that every process of the machine agrees on.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
pub(crate) fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Nanoseconds of a clock.
pub(crate) fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both are positive by the clocks' definitions.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
