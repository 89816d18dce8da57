//! Durations with a unit.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use super::number::{scale, split_unit};
use crate::ValueError;

/// The longest duration that makes sense here: beyond it a slip of the unit is likelier.
pub const DAY_S: u64 = 24 * 60 * 60;

/// A duration with its unit between two bounds, in microseconds and seconds: `200us`, `15s`, `1.5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time<const LEAST_US: u64, const MOST_S: u64>(Duration);

/// Any duration, none at all too.
pub type AnyTime = Time<0, DAY_S>;
/// A duration of more than nothing.
pub type SomeTime = Time<1, DAY_S>;
/// The length of a run, or of a part of it, that something is measured in.
pub type RunTime = Time<10_000, DAY_S>;
/// A timeout or a deadline of a request: histograms end at ten minutes.
pub type Timeout = Time<1000, 600>;

impl<const LEAST_US: u64, const MOST_S: u64> Time<LEAST_US, MOST_S> {
    /// A duration, or the bound that it is beyond.
    #[must_use]
    pub fn clamped(time: Duration) -> Self {
        let (least, most) = (Duration::from_micros(LEAST_US), Duration::from_secs(MOST_S));
        Self(time.clamp(least, most))
    }

    /// The same in seconds; what is no duration at all is the least.
    #[must_use]
    pub fn clamped_s(seconds: f64) -> Self {
        let time = Duration::try_from_secs_f64(seconds);
        Self::clamped(time.unwrap_or_default())
    }
}

impl<const LEAST_US: u64, const MOST_S: u64> Deref for Time<LEAST_US, MOST_S> {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl<const LEAST_US: u64, const MOST_S: u64> FromStr for Time<LEAST_US, MOST_S> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let time = duration(text)?;
        if time < Duration::from_micros(LEAST_US) {
            let least = shown(Duration::from_micros(LEAST_US));
            return Err(ValueError::new("too short", format!("at least {least}")));
        }
        if time > Duration::from_secs(MOST_S) {
            let most = shown(Duration::from_secs(MOST_S));
            return Err(ValueError::new("too long", format!("at most {most}")));
        }
        Ok(Self(time))
    }
}

impl<const LEAST_US: u64, const MOST_S: u64> fmt::Display for Time<LEAST_US, MOST_S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0))
    }
}

const UNITS: [(&str, u128); 5] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// In the largest unit that it is a whole number of, and below a microsecond in fractions of one.
fn shown(time: Duration) -> String {
    let nanos = time.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    match UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None => format!("{}.{:03}us", nanos / 1000, nanos % 1000),
    }
}

/// A duration of a day at most. Zero may go without a unit.
///
/// # Errors
/// It is none.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = || {
        ValueError::new(
            "not a duration",
            "a number with a unit: 200us, 50ms, 10s, 5m or 1h",
        )
    };
    let (number, unit) = split_unit(text);
    let unit_ns = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, unit_ns)) => *unit_ns,
        None if unit.is_empty() && number == "0" => 1,
        None if unit.is_empty() && !number.is_empty() => {
            return Err(ValueError::new(
                "the unit is missing",
                format!("{number}s, say"),
            ));
        }
        None => return Err(wrong()),
    };
    let nanos = scale(number, unit_ns).ok_or_else(wrong)?;
    match u64::try_from(nanos).map(Duration::from_nanos) {
        Ok(duration) if duration <= Duration::from_secs(DAY_S) => Ok(duration),
        _ => Err(ValueError::new("too long", "at most 24h")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::tests::refused;

    #[test]
    fn durations() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("200us", 200_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("0.25s", 250_000_000),
            ("5m", 300_000_000_000),
            ("24h", 86_400_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        refused::<AnyTime>(&[
            ("", "not a duration"),
            ("10", "right would be 10s"),
            ("s", "not a duration"),
            ("-1s", "not a duration"),
            ("1,5s", "not a duration"),
            ("1.s", "not a duration"),
            ("1.2.3s", "not a duration"),
            ("1 s", "not a duration"),
            ("1d", "not a duration"),
            ("25h", "too long"),
            ("99999999999999999999s", "not a duration"),
            ("999999999999999999h", "too long"),
        ]);
        refused::<SomeTime>(&[("0", "too short")]);
        refused::<Timeout>(&[("11m", "at most 10m"), ("500us", "at least 1ms")]);
        refused::<RunTime>(&[("0s", "at least 10ms")]);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(nanos in 0..=DAY_S * 1_000_000_000) {
            let time = AnyTime::clamped(Duration::from_nanos(nanos));
            prop_assert_eq!(time.to_string().parse::<AnyTime>(), Ok(time));
        }
    }
}
