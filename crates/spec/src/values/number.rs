//! Counts between bounds, and decimal numbers.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::ValueError;

/// A whole number between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count<const LEAST: usize, const MOST: usize>(usize);

impl<const LEAST: usize, const MOST: usize> Count<LEAST, MOST> {
    /// The number, or the bound that it is beyond.
    #[must_use]
    pub fn clamped(count: usize) -> Self {
        Self(count.clamp(LEAST, MOST))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }

    /// The number, where 32 bits hold it.
    #[must_use]
    pub fn saturating_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<const LEAST: usize, const MOST: usize> Deref for Count<LEAST, MOST> {
    type Target = usize;

    fn deref(&self) -> &usize {
        &self.0
    }
}

impl<const LEAST: usize, const MOST: usize> FromStr for Count<LEAST, MOST> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |problem: &'static str| {
            ValueError::new(problem, format!("a whole number from {LEAST} to {MOST}"))
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        match text.parse::<usize>() {
            Ok(count) if (LEAST..=MOST).contains(&count) => Ok(Self(count)),
            Ok(_) => Err(wrong("out of range")),
            Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(wrong("out of range"))
            }
            Err(_) => Err(wrong("not a number")),
        }
    }
}

impl<const LEAST: usize, const MOST: usize> fmt::Display for Count<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that the program works out by itself unless it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auto<T> {
    /// Work it out.
    #[default]
    Auto,
    /// As given.
    Given(T),
}

impl<T: Copy> Auto<T> {
    /// The given one, or what `auto` makes of it.
    pub fn or_else(self, auto: impl FnOnce() -> T) -> T {
        match self {
            Self::Auto => auto(),
            Self::Given(value) => value,
        }
    }

    /// The same with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Auto<U> {
        match self {
            Self::Auto => Auto::Auto,
            Self::Given(value) => Auto::Given(change(value)),
        }
    }

    /// The given one.
    pub fn given(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Given(value) => Some(value),
        }
    }
}

impl<T: FromStr<Err = ValueError>> FromStr for Auto<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(value) => Ok(Self::Given(value)),
                Err(error) => Err(error.or("auto")),
            },
        }
    }
}

impl<T: fmt::Display> fmt::Display for Auto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Given(value) => value.fmt(f),
        }
    }
}

/// Splits a number from the letters behind it.
#[must_use]
pub fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

/// A decimal number without sign or exponent, up to 18 digits before the point and nine behind.
#[must_use]
pub fn decimal(number: &str) -> Option<f64> {
    scale(number, 1_000_000_000).map(|billionths| billionths as f64 / 1e9)
}

/// A decimal number with up to nine digits behind the point, times `unit`.
pub(super) fn scale(number: &str, unit: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 || (part.is_empty() && number.contains('.')) {
        return None;
    }
    let digits = |text: &str| -> Option<u128> {
        match text {
            "" => Some(0),
            _ if text.len() <= 18 => text.parse().ok(),
            _ => None,
        }
    };
    let power = 10_u128.pow(u32::try_from(part.len()).ok()?);
    Some(digits(whole)? * unit + digits(part)? * unit / power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::refused;

    #[test]
    fn counts() {
        let workers = |text: &str| text.parse::<Auto<Count<0, 64>>>();
        assert_eq!(workers("auto"), Ok(Auto::Auto));
        assert_eq!(workers("0"), Ok(Auto::Given(Count(0))));
        assert_eq!(workers("64"), Ok(Auto::Given(Count(64))));
        for (text, part) in [
            ("65", "out of range"),
            ("99999999999999999999999", "out of range"),
            ("-1", "out of range"),
            ("-", "not a number"),
            ("", "not a number"),
            ("2.5", "not a number"),
        ] {
            refused::<Auto<Count<0, 64>>>(&[(text, part), (text, "0 to 64, or auto")]);
        }
    }
}
