//! Host and port, as `Host` and some targets have them (RFC 9110 section 7.2, RFC 3986 section 3.2).

use memchr::memchr;

use crate::ascii::letters_digits_and;

/// `uri-host [":" port]`, without user information.
pub(super) fn is_authority(text: &[u8]) -> bool {
    let (host_ok, rest) = if text.first() == Some(&b'[') {
        let Some(end) = memchr(b']', text) else {
            return false;
        };
        let inside = &text[1..end];
        let valid = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        (
            !inside.is_empty() && inside.iter().all(valid),
            &text[end + 1..],
        )
    } else {
        let end = text.iter().position(|byte| !REG_NAME[*byte as usize]);
        let end = end.unwrap_or(text.len());
        match text.get(end) {
            Some(b'%') => return is_authority_with_escapes(text),
            _ => (end > 0, &text[end..]),
        }
    };
    host_ok
        && match rest {
            [] => true,
            [b':'] => true,
            [b':', port @ ..] => is_port(port),
            _ => false,
        }
}

#[cold]
fn is_authority_with_escapes(text: &[u8]) -> bool {
    let end = memchr(b':', text).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    // The rest is judged behind a host that is none of its matter.
    has_good_escapes(name) && is_authority(&[b"h", rest].concat())
}

/// Whether an authority names a port.
pub(super) fn has_port(authority: &[u8]) -> bool {
    let digits = authority
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    digits > 0 && authority.len() > digits && authority[authority.len() - digits - 1] == b':'
}

/// A number that a port can have: 1 to 65535.
#[inline]
fn is_port(digits: &[u8]) -> bool {
    const MOST: u32 = u32::from_be_bytes(*b"6553");
    digits.iter().all(u8::is_ascii_digit)
        && match *digits {
            // Digits compare as the numbers do that they write.
            [a @ b'1'..=b'9', b, c, d, e] => match u32::from_be_bytes([a, b, c, d]) {
                MOST => e <= b'5',
                first => first < MOST,
            },
            [b'1'..=b'9', ..] if digits.len() < 5 => true,
            _ => is_port_behind_zeros(digits),
        }
}

#[cold]
fn is_port_behind_zeros(digits: &[u8]) -> bool {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    zeros > 0 && zeros < digits.len() && is_port(&digits[zeros..])
}

/// Whether it is a registered name of which each escape is whole and stands for what a name may hold: a letter, a digit, `-`, `.`,
/// `_`, `~`, or UTF-8 beyond ASCII, which is what escapes in a name are for (RFC 3986 section
/// 3.2.2). A delimiter, NUL or a percent sign would make another name of it if it is decoded
/// once more.
fn has_good_escapes(name: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            if !REG_NAME[*first as usize] {
                return false;
            }
            decoded.push(*first);
            rest = after;
            continue;
        }
        let [high, low, after @ ..] = after else {
            return false;
        };
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        let (Some(high), Some(low)) = (hex(high), hex(low)) else {
            return false;
        };
        let byte = (high * 16 + low) as u8; // two digits
        if byte.is_ascii() && !UNRESERVED[byte as usize] {
            return false;
        }
        decoded.push(byte);
        rest = after;
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// But for escapes.
static REG_NAME: [bool; 256] = letters_digits_and(b"-._~!$&'()*+,;=");

static UNRESERVED: [bool; 256] = letters_digits_and(b"-._~");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for good in [
            "h",
            "example.org",
            "h:80",
            "h:",
            "h:1",
            "h:65535",
            "h:00080",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "a_b~c!$&'()*+,;=",
            "%61",
            "b%C3%BCcher.example",
            "%e6%97%a5.example:443",
            "a%2Db%2e%5F%7e9",
            "x%F0%9F%A6%80y%C3%A4",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "h:x",
            "h:0",
            "h:00",
            "h:65536",
            "h:99999",
            "h:100000",
            "h:4294967376",
            "h:18446744073709551696",
            "[::1]:65536",
            "[::1",
            "[]",
            "[::1%25lo]",
            "h:%38",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn escapes_that_no_host_may_have() {
        let malformed = ["%", "h%", "%4", "h%4", "%4g", "%g4", "%%41", "% 41", "%+4"];
        let delimiters = [
            "%00", "%2F", "%3a", "%3F", "%23", "%5B", "%5d", "%40", // gen-delims
            "%21", "%24", "%26", "%27", "%28", "%29", "%2A", "%2b", "%2C", "%3B", "%3D", "%25",
            "%20", "%09", "%0d", "%0A", "%1f", "%7F", "%5C", "%22", "%3C", "%7c",
        ];
        let not_utf_8 = [
            "%80",
            "%C3",
            "%C3a",
            "%c0%af",
            "%ED%A0%80",
            "%ff",
            "%C3%28",
            "%f5%80%80%80",
        ];
        for bad in malformed.iter().chain(&delimiters).chain(&not_utf_8) {
            for host in [(*bad).to_owned(), format!("a{bad}z"), format!("a.{bad}:80")] {
                assert!(!is_authority(host.as_bytes()), "{host}");
            }
        }
    }

    #[test]
    fn every_port() {
        for port in 0..=70_000_u32 {
            let host = format!("h:{port}");
            assert_eq!(is_authority(host.as_bytes()), (1..=65_535).contains(&port));
        }
    }
}
