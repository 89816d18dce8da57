//! Where a request ends, and what of it matters here.
//!
//! Less than HTTP: a head, and content of an announced length. It is for clients that send what
//! they should; everything else is not understood.

/// A request head as far as an answer depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes of the head, with the empty line.
    pub(crate) head_bytes: usize,
    /// Bytes of content that follow.
    pub(crate) content_bytes: u64,
    /// The answer has no content.
    pub(crate) is_head: bool,
    /// The client wants the connection closed after the answer.
    pub(crate) wants_close: bool,
    /// Of HTTP/2; 0: HTTP/1.
    pub(crate) stream: u32,
}

/// What the bytes so far are, of HTTP/1 or HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More has to come.
    More,
    /// A head; of HTTP/2, a whole request.
    Request(Request),
    /// Nothing that is understood here.
    Not,
}

/// Beyond this a head is not understood.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Looks for a head at the begin of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() < HEAD_BYTES_MAX {
            true => Parsed::More,
            false => Parsed::Not,
        };
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default().trim_ascii_end();
    let is_persistent = first.ends_with(b" HTTP/1.1");
    if !is_persistent && !first.ends_with(b" HTTP/1.0") {
        return Parsed::Not;
    }
    let mut request = Request {
        head_bytes: end + 4,
        is_head: first.starts_with(b"HEAD "),
        wants_close: !is_persistent,
        ..Request::default()
    };
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Parsed::Not;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = std::str::from_utf8(value).ok();
            let Some(number) = number.and_then(|text| text.parse().ok()) else {
                return Parsed::Not;
            };
            request.content_bytes = number;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Parsed::Not;
        } else if name.eq_ignore_ascii_case(b"connection") {
            let says = |option: &[u8]| {
                let mut options = value.split(|byte| *byte == b',');
                options.any(|one| one.trim_ascii().eq_ignore_ascii_case(option))
            };
            request.wants_close = says(b"close") || request.wants_close && !says(b"keep-alive");
        }
    }
    Parsed::Request(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Option<(usize, u64, bool, bool)> {
        match parse(text.as_bytes()) {
            Parsed::Request(request) => Some((
                request.head_bytes,
                request.content_bytes,
                request.is_head,
                request.wants_close,
            )),
            _ => None,
        }
    }

    #[test]
    fn what_matters_of_a_request() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(request(get), Some((get.len(), 0, false, false)));
        let two = [get, get].concat();
        assert_eq!(request(&two), Some((get.len(), 0, false, false)));
        let old = "HEAD /b HTTP/1.0\r\n\r\n";
        assert_eq!(request(old), Some((old.len(), 0, true, true)));
        let kept = "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
        assert_eq!(request(kept), Some((kept.len(), 0, false, false)));
        let listed = "GET / HTTP/1.1\r\nConnection: te, close\r\n\r\n";
        assert_eq!(request(listed), Some((listed.len(), 0, false, true)));
        let post = "POST / HTTP/1.1\r\nconnection: close\r\ncontent-length:  12 \r\n\r\n";
        let with_content = format!("{post}twelve bytes");
        assert_eq!(request(&with_content), Some((post.len(), 12, false, true)));
    }

    #[test]
    fn what_is_not_understood() {
        for text in [
            "GET /\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Not, "{text:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r"), Parsed::More);
        assert_eq!(parse(&vec![b'a'; HEAD_BYTES_MAX]), Parsed::Not);
    }
}
