//! Which fields may not stand in the trailers of a request.

/// The name of a trailer as its bytes come, as far as it can be one of those that are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrailerName {
    bytes: [u8; LONGEST],
    /// Beyond `LONGEST`: another name.
    len: usize,
}

impl TrailerName {
    pub(super) fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte.to_ascii_lowercase();
        }
        self.len += 1; // bounded by the limit on trailers
    }

    /// Ends it, for the next one; says whether a request may not have it.
    pub(super) fn end(&mut self) -> bool {
        let len = std::mem::take(&mut self.len);
        let name = self.bytes.get(..len);
        name.is_some_and(is_no_trailer)
    }
}

/// Whether a request may not have a trailer of this name, which is in lower case.
pub(crate) fn is_no_trailer(name: &[u8]) -> bool {
    FORBIDDEN.contains(&name)
}

/// What has to be known before the content: framing, routing, request modifiers, authentication and
/// the format of the content (RFC 9110 section 6.5.1), and fields of the connection. A recipient
/// that merges trailers into the head would read another request than one that does not.
const FORBIDDEN: [&[u8]; 29] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"cache-control",
    b"expect",
    b"max-forwards",
    b"pragma",
    b"range",
    b"te",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
    b"if-range",
    b"authorization",
    b"proxy-authorization",
    b"cookie",
    b"set-cookie",
    b"content-encoding",
    b"content-type",
    b"content-range",
    b"trailer",
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"upgrade",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
];

const LONGEST: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_forbidden(text: &[u8]) -> bool {
        let mut name = TrailerName::default();
        text.iter().for_each(|byte| name.push(*byte));
        name.end()
    }

    #[test]
    fn names_in_any_case_and_no_others() {
        for name in FORBIDDEN {
            assert!(name.len() <= LONGEST);
            assert!(is_forbidden(name) && is_forbidden(&name.to_ascii_uppercase()));
            assert!(!is_forbidden(&name[1..]));
            assert!(!is_forbidden(&[name, b"x"].concat()));
        }
        assert!(!is_forbidden(b"content-md5") && !is_forbidden(&[b'a'; 100]));
    }

    #[test]
    fn one_name_after_the_other() {
        let mut name = TrailerName::default();
        b"a-name-that-is-longer-than-all"
            .iter()
            .for_each(|byte| name.push(*byte));
        assert!(!name.end());
        b"Host".iter().for_each(|byte| name.push(*byte));
        assert!(name.end());
        b"te".iter().for_each(|byte| name.push(*byte));
        assert!(name.end());
    }
}
