//! How often something may be said that others cause: so many lines in a while, the rest is counted.
//!
//! The time is the caller's to read. Locked rather than atomic: whoever asks is about to write a line,
//! and a line that is suppressed costs less than whatever went wrong.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a window is, in which so many lines may be said.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Bounds one kind of line. Made for a `static` beside the line.
#[derive(Debug)]
pub struct LogLimit {
    lines_max: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    began: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

/// How many lines were left out before this one; as text the end of a message, mostly empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suppressed(pub u64);

impl LogLimit {
    /// At most so many lines in each [`WINDOW`].
    #[must_use]
    pub const fn new(lines_max: u32) -> Self {
        Self {
            lines_max,
            state: Mutex::new(State {
                began: None,
                lines: 0,
                suppressed: 0,
            }),
        }
    }

    /// Whether a line may be said now: then also how many could not be since the last one.
    pub fn admit(&self, now: Instant) -> Option<Suppressed> {
        // Nothing panics while it holds the lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began| now.saturating_duration_since(began) >= WINDOW;
        if state.began.is_none_or(is_over) {
            state.began = Some(now);
            state.lines = 0;
        }
        if state.lines >= self.lines_max {
            state.suppressed += 1;
            return None;
        }
        state.lines += 1;
        Some(Suppressed(std::mem::take(&mut state.suppressed)))
    }
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more like it since the last one)"),
        }
    }
}

/// Says a line that others can cause, unless so many like it were said in this [`WINDOW`]:
/// `limited!(20, Instant::now(), |more| tracing::warn!("no route{more}"))`. `more` says how many were
/// left out before it.
#[macro_export]
macro_rules! limited {
    ($lines_max:expr, $now:expr, |$more:ident| $line:expr) => {{
        static LIMIT: $crate::LogLimit = $crate::LogLimit::new($lines_max);
        if let Some($more) = LIMIT.admit($now) {
            $line;
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_in_a_window_and_the_rest_is_counted() {
        let limit = LogLimit::new(3);
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let said = |ms| limit.admit(at(ms)).map(|suppressed| suppressed.0);
        assert_eq!([said(0), said(1), said(2)], [Some(0); 3]);
        assert_eq!([said(3), said(9_999)], [None; 2]);
        assert_eq!([said(10_000), said(10_001)], [Some(2), Some(0)]);
        assert_eq!([said(19_000), said(19_001)], [Some(0), None]);
        assert_eq!(said(90_000), Some(1));
    }

    #[test]
    fn what_was_left_out_is_said_at_the_end() {
        assert_eq!(format!("disk full{}", Suppressed(0)), "disk full");
        assert_eq!(
            format!("disk full{}", Suppressed(7)),
            "disk full (7 more like it since the last one)"
        );
    }
}
