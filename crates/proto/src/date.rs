//! A second of wall-clock time as text.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// A second of wall-clock time in the forms that answers and logs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpDate {
    unix_seconds: u64,
    lines: [u8; FIELD_LINES.len()],
    clf: [u8; 26],
}

/// The lines that every answer begins with, with room for the date.
const FIELD_LINES: &[u8; 55] = b"Server: Loadline\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const IMF: std::ops::Range<usize> = 24..53;
const SERVER_LINE_BYTES: usize = 18;

impl HttpDate {
    /// The date `unix_seconds` after 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn at(unix_seconds: u64) -> Self {
        const YEAR_9999: u64 = 253_402_300_799;
        let seconds = unix_seconds.min(YEAR_9999);
        let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds));
        let mut lines = *FIELD_LINES;
        // Into place: a loop allocates nothing for the next second either. It is 29 bytes always.
        let written = write!(&mut lines[IMF], "{date}");
        debug_assert!(written.is_ok());
        let imf = &lines[IMF];
        // "Sun, 06 Nov 1994 08:49:37 GMT" holds all of "06/Nov/1994:08:49:37 +0000".
        let mut clf = *b"dd/Mon/yyyy:hh:mm:ss +0000";
        for (to, from) in [
            (0..2, 5..7),
            (3..6, 8..11),
            (7..11, 12..16),
            (12..20, 17..25),
        ] {
            clf[to].copy_from_slice(&imf[from]);
        }
        Self {
            unix_seconds,
            lines,
            clf,
        }
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        self.unix_seconds
    }

    /// As in the Date field (RFC 9110 section 5.6.7).
    #[must_use]
    pub fn imf(&self) -> &[u8] {
        &self.lines[IMF]
    }

    /// The Server and Date lines, each ending in CRLF.
    #[must_use]
    pub fn field_lines(&self) -> &[u8] {
        &self.lines
    }

    /// The Server line alone, ending in CRLF.
    #[must_use]
    pub fn server_line(&self) -> &[u8] {
        &self.lines[..SERVER_LINE_BYTES]
    }

    /// The Date line alone, ending in CRLF.
    #[must_use]
    pub fn date_line(&self) -> &[u8] {
        &self.lines[SERVER_LINE_BYTES..]
    }

    /// As in RFC 3339, without fractions and zone: `1994-11-06T08:49:37`.
    pub(crate) fn rfc3339(&self) -> [u8; 19] {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let imf = &self.lines[IMF];
        let mut text = *b"yyyy-mm-ddThh:mm:ss";
        for (to, from) in [(0..4, 12..16), (8..10, 5..7), (11..19, 17..25)] {
            text[to].copy_from_slice(&imf[from]);
        }
        let mut months = MONTHS.chunks_exact(3);
        let month = months.position(|name| *name == imf[8..11]).unwrap_or(0) as u8 + 1;
        text[5..7].copy_from_slice(&[b'0' + month / 10, b'0' + month % 10]);
        text
    }

    /// As in the common log format.
    #[must_use]
    pub fn clf(&self) -> &[u8; 26] {
        &self.clf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_example_date() {
        let date = HttpDate::at(784_111_777);
        assert_eq!(date.imf(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.field_lines(), FIELD_LINES);
        assert_eq!(date.clf(), b"06/Nov/1994:08:49:37 +0000");
        assert_eq!(&date.rfc3339(), b"1994-11-06T08:49:37");
        assert_eq!(&HttpDate::at(0).rfc3339(), b"1970-01-01T00:00:00");
        assert_eq!(&HttpDate::at(u64::MAX).rfc3339(), b"9999-12-31T23:59:59");
    }
}
