//! Times as logs write them.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

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
            [_, _, b'/', ..] => Self::parse_common(&to_billionths(text)),
            [_, _, _, _, b'-', ..] => Self::parse_iso(&to_billionths(text)),
            _ => Self::parse_number(text),
        }
    }

    /// `10/Oct/2000:13:55:36 -0700`, and with a fraction of a second behind the seconds.
    fn parse_common(text: &[u8]) -> Option<Self> {
        let format = match text {
            [.., b':', _, _] => "%d/%b/%Y:%H:%M:%S%.f %:z",
            _ => "%d/%b/%Y:%H:%M:%S%.f %z",
        };
        let parsed = strtime::parse(format, text).ok()?;
        Self::at(parsed.to_timestamp().ok()?, text)
    }

    fn parse_iso(text: &[u8]) -> Option<Self> {
        let _ = text.get(16).filter(|byte| **byte == b':')?; // not without seconds
        let pieces = Pieces::parse(text).ok()?;
        let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
        let time = pieces.date().to_datetime(pieces.time()?);
        Self::at(offset.to_timestamp(time).ok()?, text)
    }

    fn at(time: Timestamp, text: &[u8]) -> Option<Self> {
        let unix_ns = i64::try_from(time.as_nanosecond()).ok()?;
        Some(Self {
            unix_ns: (unix_ns >= 0).then_some(unix_ns)?,
            is_whole_second: !text.iter().any(|byte| b".,".contains(byte)),
        })
    }

    fn parse_number(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (whole, fraction) = match text.split_once(['.', ',']) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (text, None),
        };
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !fraction.is_none_or(is_number) {
            return None;
        }
        let billionths = fraction.map(|digits| format!("{digits:0<9.9}").parse());
        Self::from_number(whole.parse().ok()?, billionths.transpose().ok()?)
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

/// Without the digits of a second beyond the ninth, which jiff does not take.
fn to_billionths(text: &[u8]) -> Cow<'_, [u8]> {
    let point = text.iter().position(|byte| b".,".contains(byte));
    let begin = point.map_or(text.len(), |point| point + 1);
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    match text[begin..].iter().take_while(is_digit).count() {
        0..=9 => Cow::Borrowed(text),
        count => Cow::Owned([&text[..begin + 9], &text[begin + count..]].concat()),
    }
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
            "2000-10-10t20:55:36z",
            "10/Oct/2000:13:55:36.0 -0700",
            "10/Oct/2000:13:55:36 -07:00",
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
            "2001-02-29T20:55:36Z",
            "1969-12-31T23:59:59Z",
            "2000-10-10",
            "2000-10-10T20:55",
            "2000-10-10T20:55:36.Z",
            "99999999999999999999",
            "971211336x",
            "971211336.",
            "971211336.+5",
            "9999-10-10T20:55:36Z",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
