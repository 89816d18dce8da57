//! The field block of a response, judged as it is decoded (RFC 9113 section 8.3.2).

/// What the fields of one block come to.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    /// 100 to 599; 0: there is none, as in trailers.
    pub(super) status: u16,
    /// Of the content.
    pub(super) length: Option<u64>,
    /// What is wrong first.
    pub(super) fault: Option<&'static str>,
    has_regular: bool,
    count: usize,
}

impl ResponseFields {
    /// Takes the next field. `fields_max` bounds their number.
    #[inline]
    pub(super) fn field(&mut self, name: &[u8], value: &[u8], fields_max: usize) {
        self.count += 1;
        let judged = match name {
            _ if self.count > fields_max => Err("more fields than allowed"),
            [] => Err("a field without a name"),
            [b':', ..] => self.pseudo(name, value),
            _ => self.regular(name, value),
        };
        if let Err(text) = judged {
            self.fault.get_or_insert(text);
        }
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.has_regular || name != b":status" || self.status != 0 {
            return Err("a pseudo-header field that is out of place");
        }
        let &[
            hundreds @ b'1'..=b'5',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
        ] = value
        else {
            return Err("the status is not three digits from 100 to 599");
        };
        let digit = |byte: u8| u16::from(byte - b'0');
        self.status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
        Ok(())
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.has_regular = true;
        if name.iter().any(u8::is_ascii_uppercase) {
            return Err("a field name with capital letters");
        }
        match name {
            b"content-length" => self.content_length(value),
            b"connection" | b"transfer-encoding" | b"keep-alive" | b"proxy-connection"
            | b"upgrade" => Err("a field about the connection"),
            _ => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let digits = std::str::from_utf8(value).ok();
        let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length = digits.and_then(|text| text.parse().ok());
        match (length, self.length) {
            (None, _) => Err("the content length is not a number"),
            (Some(length), Some(before)) if length != before => Err("two content lengths"),
            (Some(length), _) => {
                self.length = Some(length);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_block_comes_to() {
        for (fields, status, length, fault) in [
            (
                &[(":status", "200"), ("content-length", "12")][..],
                200,
                Some(12),
                None,
            ),
            (&[(":status", "103"), ("link", "</a>")], 103, None, None),
            (&[("x-sum", "1")], 0, None, None),
            (
                &[(":status", "20")],
                0,
                None,
                Some("the status is not three"),
            ),
            (
                &[(":status", "600")],
                0,
                None,
                Some("the status is not three"),
            ),
            (
                &[(":status", "200"), (":status", "200")],
                200,
                None,
                Some("a pseudo-header"),
            ),
            (&[(":path", "/")], 0, None, Some("a pseudo-header")),
            (
                &[("a", "b"), (":status", "200")],
                0,
                None,
                Some("a pseudo-header"),
            ),
            (
                &[(":status", "200"), ("A", "b")],
                200,
                None,
                Some("a field name"),
            ),
            (
                &[(":status", "200"), ("", "b")],
                200,
                None,
                Some("a field without"),
            ),
            (
                &[(":status", "200"), ("connection", "close")],
                200,
                None,
                Some("a field about"),
            ),
            (
                &[("content-length", "+1")],
                0,
                None,
                Some("the content length"),
            ),
            (
                &[("content-length", "")],
                0,
                None,
                Some("the content length"),
            ),
            (
                &[("content-length", "1"), ("content-length", "2")],
                0,
                Some(1),
                Some("two content"),
            ),
            (
                &[("a", "b"), ("a", "b"), ("a", "b")],
                0,
                None,
                Some("more fields"),
            ),
        ] {
            let mut found = ResponseFields::default();
            for (name, value) in fields {
                found.field(name.as_bytes(), value.as_bytes(), 2);
            }
            assert_eq!((found.status, found.length), (status, length), "{fields:?}");
            let is_same = match (found.fault, fault) {
                (Some(text), Some(begin)) => text.starts_with(begin),
                (None, None) => true,
                _ => false,
            };
            assert!(is_same, "{fields:?} {:?}", found.fault);
        }
    }
}
