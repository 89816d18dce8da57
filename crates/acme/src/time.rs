//! Moments and days as certificates and authorities count them: whole seconds of the wall clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds since 1970. The wall clock may be set back: nobody may rely on it to grow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// The present.
    #[must_use]
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.as_secs()))
    }

    /// So much earlier.
    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time.as_secs()))
    }

    /// The time since then; none if it is yet to come.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixTime {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs()))
    }
}

/// The latest that there is, if that is earlier.
impl From<UnixTime> for SystemTime {
    fn from(time: UnixTime) -> Self {
        let since = Duration::from_secs(time.0.min(i64::MAX as u64));
        UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
    }
}

/// As `2026-11-25T16:20:00Z`.
impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_second(seconds) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "second {}", self.0),
        }
    }
}
