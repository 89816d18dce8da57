//! The time that all threads of a server agree on.

#[cfg(test)]
use std::sync::atomic::Ordering;
use std::time::Instant;

use loadline_base::Millis;

/// The server's own clock: one for all its threads, so that times can pass between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// What a simulation says the time is, in microseconds.
    #[cfg(test)]
    simulated_us: Option<&'static std::sync::atomic::AtomicU64>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            #[cfg(test)]
            simulated_us: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn simulated(now_us: &'static std::sync::atomic::AtomicU64) -> Self {
        Self {
            simulated_us: Some(now_us),
            ..Self::new()
        }
    }

    /// The time since the clock began, rounded down.
    pub(crate) fn now(self) -> Millis {
        Millis(self.now_us() / 1000)
    }

    /// The same in microseconds, for measuring spans.
    pub(crate) fn now_us(self) -> u64 {
        #[cfg(test)]
        if let Some(now_us) = self.simulated_us {
            return now_us.load(Ordering::Relaxed);
        }
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
