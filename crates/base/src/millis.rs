//! A point in time on the server's own clock, in milliseconds.

use std::time::Duration;

/// Milliseconds since the server's clock began (any fixed moment, usually the start).
///
/// Eight bytes instead of the sixteen of `Instant`, and free of any real clock, so that state
/// machines can be driven by made-up time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The moment `duration` later, rounded up to a whole millisecond; saturates.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        Self(self.0.saturating_add(u64::try_from(ms).unwrap_or(u64::MAX)))
    }

    /// Milliseconds from `earlier` to here; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
