//! Where the content of a request ends (RFC 9112 section 6.3), in one function.

use crate::request::{FieldName, Request, Version};
use crate::{Fault, Status};

/// Where the content of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// After this many bytes, at least one.
    Length(u64),
    /// With the last chunk and the trailers.
    Chunked,
}

/// Decides the framing. Whatever two readers could understand differently is refused, since that
/// is how requests are smuggled past one of them.
pub(crate) fn of(request: &Request) -> Result<Framing, Fault> {
    const FRAMING: u32 = FieldName::set(&[FieldName::ContentLength, FieldName::TransferEncoding]);
    if !request.has_any(FRAMING) {
        return Ok(Framing::Empty); // 1. neither: a request without content
    }
    let mut lengths = request.field_values(FieldName::ContentLength);
    let length = lengths.next();
    if lengths.next().is_some() {
        // 2. twice, even if equal: readers differ in which counts
        return Err(Fault::bad_request("more than one Content-Length"));
    }
    let mut codings = request.field_values(FieldName::TransferEncoding);
    let Some(coding) = codings.next() else {
        // 3. a length alone
        let length = parse_length(length.unwrap_or_default());
        return match length.map_err(Fault::bad_request)? {
            0 => Ok(Framing::Empty),
            length => Ok(Framing::Length(length)),
        };
    };
    if length.is_some() {
        // 4. both: the classic way to smuggle
        return Err(Fault::bad_request(
            "both Content-Length and Transfer-Encoding",
        ));
    }
    if codings.next().is_some() {
        return Err(Fault::bad_request("more than one Transfer-Encoding"));
    }
    if request.version == Version::Http10 {
        // 5. not part of HTTP/1.0 (RFC 9112 section 6.1): a proxy of that age ignores it
        return Err(Fault::bad_request("Transfer-Encoding in HTTP/1.0"));
    }
    parse_codings(coding)
}

pub(super) fn parse_length(value: &[u8]) -> Result<u64, &'static str> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err("Content-Length is not a number");
    }
    let length = value.iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    length.ok_or("Content-Length is beyond 64 bits")
}

/// `chunked` alone is understood; other codings in front of it are valid but not implemented; a
/// list that does not end in one `chunked` has no end.
fn parse_codings(value: &[u8]) -> Result<Framing, Fault> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Framing::Chunked);
    }
    let codings = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let chunked = codings()
        .filter(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        .count();
    let last_is_chunked = codings()
        .next_back()
        .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    let all_tokens = codings().all(|coding| {
        let name = coding
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii_end();
        !name.is_empty() && name.iter().all(|byte| crate::ascii::is_token_byte(*byte))
    });
    if all_tokens && chunked == 1 && last_is_chunked {
        return Err(Fault::peer(
            Status::NOT_IMPLEMENTED,
            "a transfer coding that is not known",
        ));
    }
    Err(Fault::bad_request(
        "Transfer-Encoding does not end in chunked",
    ))
}
