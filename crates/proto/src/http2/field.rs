//! What a field may be by itself (RFC 9113 section 8.2). Errors say why it is malformed.

use crate::http1::{self, is_lower_case_name, is_text};

/// Whether a field may be a trailer of a request: what may not is malformed, as it is in HTTP/1.
pub(crate) fn check_trailer(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    if name.starts_with(b":") {
        return Err("a pseudo-field among the trailers");
    }
    check_name(name)?;
    if !check_value(value)? {
        return Err("a control character in the value of a trailer");
    }
    match is_of_connection(name) || http1::is_no_trailer(name) {
        true => Err("a field that may not be a trailer"),
        false => Ok(()),
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match is_lower_case_name(name) {
        true => Ok(()),
        false => Err("the name of a field is no token in lower case"),
    }
}

/// Whether the value is text: most control characters are refused as in HTTP/1, with an answer.
pub(super) fn check_value(value: &[u8]) -> Result<bool, &'static str> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(value.first()) || is_space(value.last()) {
        return Err("white space around the value of a field");
    }
    if is_text(value) {
        return Ok(true);
    }
    match memchr::memchr3(b'\0', b'\r', b'\n', value) {
        Some(_) => Err("a control character in the value of a field"),
        None => Ok(false),
    }
}

/// Whether it belongs to a connection of HTTP/1 (section 8.2.2).
pub(super) fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_fields_that_nobody_has_to_know_before() {
        assert_eq!(check_trailer(b"checksum", b"1"), Ok(()));
        for name in [
            "Checksum",
            ":path",
            "content-length",
            "te",
            "connection",
            "",
        ] {
            assert!(check_trailer(name.as_bytes(), b"1").is_err(), "{name}");
        }
        for value in ["a\n", "a\0b", " a", "a\x01b", "\x7f"] {
            assert!(check_trailer(b"checksum", value.as_bytes()).is_err());
        }
    }
}
