//! The trailers of a request (RFC 9110 section 6.5), gathered as their lines come, and which fields may not be
//! among them.

use crate::{Fault, Fields, Limits};

/// The trailers of chunked content, as far as they have come. Their bytes are bounded by whoever decodes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Trailers {
    fields: Fields,
    /// The line in the making: its name, then its value.
    line: Vec<u8>,
    name_len: usize,
}

impl Trailers {
    /// A byte of a name or a value.
    pub(super) fn push(&mut self, byte: u8) {
        self.line.push(byte);
    }

    /// A name has come; its value follows.
    ///
    /// # Errors
    /// A request may not have such a trailer, or no more of them.
    pub(super) fn end_name(&mut self, limits: &Limits) -> Result<(), Fault> {
        if is_no_trailer(&self.line) {
            return Err(Fault::bad_request("a trailer that belongs into the head"));
        }
        if self.fields.len() >= limits.fields_max {
            return Err(Fault::large_fields("more trailers than allowed"));
        }
        self.name_len = self.line.len();
        Ok(())
    }

    /// A value has come, and with it the line.
    ///
    /// # Errors
    /// The name is longer than any may be.
    pub(super) fn end_line(&mut self) -> Result<(), Fault> {
        let (name, value) = self.line.split_at(self.name_len);
        let is_added = self.fields.try_add(name, value);
        self.line.clear();
        match is_added {
            true => Ok(()),
            false => Err(Fault::large_fields("a trailer with too long a name")),
        }
    }

    pub(super) fn into_fields(self) -> Fields {
        self.fields
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.fields.memory_bytes() + self.line.capacity()
    }
}

/// Whether a request may not have a trailer of this name.
pub(crate) fn is_no_trailer(name: &[u8]) -> bool {
    FORBIDDEN.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// What has to be known before the content: framing, routing, request modifiers, authentication and
/// the format of the content (RFC 9110 section 6.5.1), and fields of the connection. A recipient
/// that merges trailers into the head would read another request than one that does not.
const FORBIDDEN: [&[u8]; 31] = [
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
    b"x-forwarded-proto",
    b"x-real-ip",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case_and_no_others() {
        for name in FORBIDDEN {
            assert!(is_no_trailer(name) && is_no_trailer(&name.to_ascii_uppercase()));
            assert!(!is_no_trailer(&name[1..]));
            assert!(!is_no_trailer(&[name, b"x"].concat()));
        }
        assert!(!is_no_trailer(b"content-md5") && !is_no_trailer(&[b'a'; 100]));
    }

    fn line(trailers: &mut Trailers, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        name.iter().for_each(|byte| trailers.push(*byte));
        trailers.end_name(&Limits::default())?;
        value.iter().for_each(|byte| trailers.push(*byte));
        trailers.end_line()
    }

    #[test]
    fn one_line_after_the_other() {
        let mut trailers = Trailers::default();
        line(&mut trailers, b"X-Sum", b"  7 \t").unwrap();
        line(&mut trailers, b"x-empty", b"").unwrap();
        line(&mut trailers, b"x-sum", b"\xff").unwrap();
        assert!(line(&mut trailers.clone(), b"Host", b"h").is_err());
        assert!(line(&mut trailers.clone(), &[b'a'; 1 << 16], b"").is_err());
        let lines = b"X-Sum: 7\r\nx-empty: \r\nx-sum: \xff\r\n";
        assert_eq!(trailers.into_fields().http1_lines(), lines);
    }
}
