//! Sizes in bytes.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use super::number::{scale, split_unit};
use crate::ValueError;

/// The largest size of anything.
const SIZE_MAX: u64 = 1 << 40;

/// A size with an optional unit, in powers of 1024: `600`, `64k`, `1.5M`, `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size<const LEAST: u64 = 0, const MOST: u64 = SIZE_MAX>(u64);

impl<const LEAST: u64, const MOST: u64> Size<LEAST, MOST> {
    /// Bytes, or the bound that they are beyond.
    #[must_use]
    pub fn clamped(bytes: u64) -> Self {
        Self(bytes.clamp(LEAST, MOST))
    }
}

impl<const LEAST: u64, const MOST: u64> Deref for Size<LEAST, MOST> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.0
    }
}

impl<const LEAST: u64, const MOST: u64> FromStr for Size<LEAST, MOST> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError::new(
                "not a size",
                "a number of bytes, with a unit if you like: 4096, 64k, 8M, 2G",
            )
        };
        let (number, unit) = split_unit(text);
        let unit_bytes: u128 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return Err(wrong()),
        };
        let bytes = scale(number, unit_bytes).ok_or_else(wrong)?;
        match u64::try_from(bytes) {
            Ok(bytes) if bytes < LEAST => Err(ValueError::new(
                "out of range",
                match MOST {
                    SIZE_MAX => format!("at least {LEAST}"),
                    most => format!("{LEAST} to {most} bytes"),
                },
            )),
            Ok(bytes) if bytes <= MOST => Ok(Self(bytes)),
            _ if MOST == SIZE_MAX => Err(ValueError::new("too large", "at most 1024G")),
            _ => Err(ValueError::new(
                "out of range",
                format!("{LEAST} to {MOST} bytes"),
            )),
        }
    }
}

impl<const LEAST: u64, const MOST: u64> fmt::Display for Size<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::refused;

    #[test]
    fn sizes() {
        let size = |text: &str| text.parse::<Size>();
        for (text, bytes) in [
            ("0", 0),
            ("600", 600),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("1.5M", 3 << 19),
            ("2GB", 2 << 30),
            ("1024G", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(Size(bytes)), "{text}");
        }
        refused::<Size>(&[
            ("", "not a size"),
            ("k", "not a size"),
            ("-1", "not a size"),
            ("1T", "not a size"),
            ("2048G", "too large"),
            ("1e3", "not a size"),
        ]);
        refused::<Size<16, 2048>>(&[("15", "16 to 2048 bytes"), ("4k", "16 to 2048 bytes")]);
    }
}
