//! Times as logs write them.

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTime {
    /// Nanoseconds since 1970-01-01 UTC.
    pub unix_ns: i64,
    /// Whether it was written in whole seconds.
    pub is_whole_second: bool,
}

const NS_PER_S: i64 = 1_000_000_000;

impl LogTime {
    /// Reads a time of any form: `10/Oct/2000:13:55:36 -0700` as in common logs (in brackets or not),
    /// ISO 8601 (`2026-11-21T10:47:15.25+01:00`; UTC if it names no zone), or a number since 1970.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"[").unwrap_or(text);
        let text = text.strip_suffix(b"]").unwrap_or(text);
        match text {
            [_, _, b'/', ..] => Self::parse_common(text),
            [_, _, _, _, b'-', ..] => Self::parse_iso(text),
            _ => Self::parse_number(text),
        }
    }

    /// `10/Oct/2000:13:55:36 -0700`, and with a fraction of a second behind the seconds.
    #[must_use]
    pub fn parse_common(text: &[u8]) -> Option<Self> {
        let mut text = Text(text);
        let day = text.number(2)?;
        text.byte(b"/")?;
        let month = text.month()?;
        text.byte(b"/")?;
        let year = text.number(4)?;
        text.byte(b":")?;
        let (second, fraction) = text.time_of_day()?;
        text.byte(b" ")?;
        let zone = text.zone()?;
        text.end()?;
        Self::at(days(year, month, day)?, second, fraction, zone)
    }

    fn parse_iso(text: &[u8]) -> Option<Self> {
        let mut text = Text(text);
        let year = text.number(4)?;
        text.byte(b"-")?;
        let month = text.number(2)?;
        text.byte(b"-")?;
        let day = text.number(2)?;
        text.byte(b"Tt ")?;
        let (second, fraction) = text.time_of_day()?;
        let zone = match text.0 {
            [] => 0,
            [b'Z' | b'z'] => {
                text.0 = &[];
                0
            }
            _ => text.zone()?,
        };
        text.end()?;
        Self::at(days(year, month, day)?, second, fraction, zone)
    }

    fn at(days: i64, second: i64, fraction_ns: Option<i64>, zone_s: i64) -> Option<Self> {
        let unix_s = days * 86_400 + second - zone_s;
        Some(Self {
            unix_ns: unix_s.checked_mul(NS_PER_S)? + fraction_ns.unwrap_or(0),
            is_whole_second: fraction_ns.is_none(),
        })
    }

    fn parse_number(text: &[u8]) -> Option<Self> {
        let mut text = Text(text);
        let len = text
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if len > 19 {
            return None;
        }
        let whole = text.number(len)?;
        let fraction_ns = text.fraction()?;
        text.end()?;
        Self::from_number(whole, fraction_ns)
    }

    /// A number since 1970, in the unit that puts it between 1973 and 5138: seconds below 10^11,
    /// then milliseconds, microseconds and nanoseconds. Smaller ones are no times but durations.
    /// `fraction_ns`: billionths of the unit, if any were written.
    #[must_use]
    pub fn from_number(whole: i64, fraction_ns: Option<i64>) -> Option<Self> {
        let unit_ns = match whole {
            100_000_000..100_000_000_000 => NS_PER_S,
            100_000_000_000..100_000_000_000_000 => 1_000_000,
            100_000_000_000_000..100_000_000_000_000_000 => 1000,
            100_000_000_000_000_000.. => 1,
            _ => return None,
        };
        let fraction = fraction_ns.unwrap_or(0) / (NS_PER_S / unit_ns);
        Some(Self {
            unix_ns: whole.checked_mul(unit_ns)?.checked_add(fraction)?,
            is_whole_second: unit_ns == NS_PER_S && fraction_ns.is_none(),
        })
    }
}

/// What is left to be read.
struct Text<'t>(&'t [u8]);

impl Text<'_> {
    fn byte(&mut self, one_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        one_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// A number of exactly so many digits.
    fn number(&mut self, len: usize) -> Option<i64> {
        let digits = self.0.get(..len)?;
        if len == 0 || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = &self.0[len..];
        digits.iter().try_fold(0_i64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
        })
    }

    fn month(&mut self) -> Option<i64> {
        const NAMES: [&[u8; 3]; 12] = [
            b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
            b"Dec",
        ];
        let (name, rest) = self.0.split_first_chunk::<3>()?;
        let index = NAMES.iter().position(|month| *month == name)?;
        self.0 = rest;
        Some(index as i64 + 1)
    }

    /// `13:55:36`, and what follows of a second, in nanoseconds.
    fn time_of_day(&mut self) -> Option<(i64, Option<i64>)> {
        let hour = self.number(2)?;
        self.byte(b":")?;
        let minute = self.number(2)?;
        self.byte(b":")?;
        let second = self.number(2)?;
        // A leap second is the 60th.
        let is_time = hour < 24 && minute < 60 && second <= 60;
        let fraction_ns = self.fraction()?;
        is_time.then_some((hour * 3600 + minute * 60 + second, fraction_ns))
    }

    /// `.25` in billionths, of any number of digits; `None` inside if there is none.
    fn fraction(&mut self) -> Option<Option<i64>> {
        if self.byte(b".,").is_none() {
            return Some(None);
        }
        let len = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if len == 0 {
            return None;
        }
        let mut digits = self.0[..len].iter().map(|digit| i64::from(digit - b'0'));
        let billionths = (0..9).fold(0, |sum, _| sum * 10 + digits.next().unwrap_or(0));
        self.0 = &self.0[len..];
        Some(Some(billionths))
    }

    /// `-0700`, `+01:00`, in seconds.
    fn zone(&mut self) -> Option<i64> {
        let sign = if self.byte(b"+-")? == b'-' { -1 } else { 1 };
        let hour = self.number(2)?;
        let _ = self.byte(b":");
        let minute = self.number(2)?;
        (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; years count from March, so that the
/// leap day is their last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..2262).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + leap_days + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<f64> {
        LogTime::parse(text.as_bytes()).map(|time| time.unix_ns as f64 / 1e9)
    }

    #[test]
    fn every_form_is_the_same_moment() {
        for text in [
            "10/Oct/2000:13:55:36 -0700",
            "[10/Oct/2000:13:55:36 -0700]",
            "10/Oct/2000:20:55:36 +0000",
            "11/Oct/2000:02:25:36 +0530",
            "2000-10-10T20:55:36Z",
            "2000-10-10T13:55:36-07:00",
            "2000-10-10 20:55:36",
            "2000-10-10T22:55:36+0200",
            "971211336",
            "971211336000",
            "971211336000000",
            "971211336000000000",
            "971211336.000",
            "2000-10-10T20:55:36.000Z",
        ] {
            assert_eq!(seconds(text), Some(971_211_336.0), "{text}");
        }
    }

    #[test]
    fn a_fraction_is_more_than_whole_seconds() {
        let parse = |text: &str| LogTime::parse(text.as_bytes()).unwrap();
        for text in ["971211336.25", "971211336250", "2000-10-10T20:55:36.25Z"] {
            let time = parse(text);
            assert_eq!(time.unix_ns, 971_211_336_250_000_000, "{text}");
            assert!(!time.is_whole_second, "{text}");
        }
        assert_eq!(
            parse("10/Oct/2000:20:55:36.25 +0000"),
            parse("971211336.250")
        );
        assert!(parse("971211336").is_whole_second);
        assert!(parse("10/Oct/2000:13:55:36 -0700").is_whole_second);
        assert!(!parse("971211336.000").is_whole_second);
        let nines = parse("2000-10-10T20:55:36,9999999999Z");
        assert_eq!(nines.unix_ns, 971_211_336_999_999_999);
    }

    #[test]
    fn days_of_the_calendar() {
        for (date, days_since) in [
            ((1970, 1, 1), 0),
            ((1970, 12, 31), 364),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 21), 20_778),
        ] {
            assert_eq!(days(date.0, date.1, date.2), Some(days_since), "{date:?}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "-",
            "0.003",
            "12",
            "10/Oct/2000",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "10/Oct/2000:24:55:36 -0700",
            "32/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36 -0700x",
            "2000-13-10T20:55:36Z",
            "2000-10-10",
            "2000-10-10T20:55",
            "2000-10-10T20:55:36.Z",
            "99999999999999999999",
            "971211336x",
            "9999-10-10T20:55:36Z",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
