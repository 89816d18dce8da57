//! Range requests and what their answers say (RFC 9110 section 14).

use crate::scenario::header;

/// The request with a Range field, which asks for the bytes `first` to `last`, both included; its
/// empty line stays the end. A request with content is not a player's, and is left as it is.
pub(super) fn asking(request: &[u8], first: u64, last: u64) -> Vec<u8> {
    let Some(fields) = request.strip_suffix(b"\r\n\r\n") else {
        return request.to_vec();
    };
    let range = format!("\r\nRange: bytes={first}-{last}\r\n\r\n");
    [fields, range.as_bytes()].concat()
}

/// What a Content-Range says of a part that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Bytes of the whole; `None`: not known.
    pub(super) length: Option<u64>,
}

/// The Content-Range of an answer's head; `None` without one that can be read.
pub(super) fn sent(head: &[u8]) -> Option<Sent> {
    let text = str::from_utf8(header(head, "Content-Range")?).ok()?;
    let (unit, range) = text.split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (range, length) = range.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let sent = Sent {
        first: number(first)?,
        last: number(last)?,
        length: match length {
            "*" => None,
            length => Some(number(length)?),
        },
    };
    let is_within = sent.length.is_none_or(|length| sent.last < length);
    (sent.first <= sent.last && is_within).then_some(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_asked_for_in_the_last_line() {
        let request = b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n";
        let asked = asking(request, 10, 19);
        let expected = "GET /a HTTP/1.1\r\nHost: here\r\nRange: bytes=10-19\r\n\r\n";
        assert_eq!(str::from_utf8(&asked), Ok(expected));
    }

    #[test]
    fn what_was_sent_is_read_strictly() {
        let whole = |first, last, length| {
            Some(Sent {
                first,
                last,
                length,
            })
        };
        for (field, expected) in [
            ("Content-Range: bytes 0-9/100", whole(0, 9, Some(100))),
            ("content-range:bytes 5-5/*", whole(5, 5, None)),
            ("CONTENT-RANGE:  BYTES 0-99/100 ", whole(0, 99, Some(100))),
            ("Content-Range: bytes 0-100/100", None),
            ("Content-Range: bytes 9-0/100", None),
            ("Content-Range: bytes */100", None),
            ("Content-Range: lines 0-9/100", None),
            ("Content-Range: bytes +0-9/100", None),
            ("Content-Range: bytes 0-9/99999999999999999999", None),
            ("X-Content-Range: bytes 0-9/100", None),
        ] {
            let head = format!("HTTP/1.1 206 Partial\r\nA: b\r\n{field}\r\n\r\n");
            assert_eq!(sent(head.as_bytes()), expected, "{field}");
        }
    }
}
