//! Conditional requests (RFC 9110 section 13).

use loadline_proto::{FieldName, Method, Request};

/// The condition fields of a request: values as they came.
#[derive(Clone, Debug)]
pub struct Conditions<'r, M, N> {
    /// The method.
    pub method: Method,
    /// Every value of If-Match.
    pub if_match: M,
    /// The value of If-Unmodified-Since.
    pub if_unmodified_since: Option<&'r [u8]>,
    /// Every value of If-None-Match.
    pub if_none_match: N,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'r [u8]>,
    /// The value of If-Range.
    pub if_range: Option<&'r [u8]>,
}

/// What is known of the representation that a request selects.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'v> {
    /// Its ETag as sent: with quotes, and `W/` if it is weak.
    pub etag: Option<&'v [u8]>,
    /// When it last changed, in whole seconds since 1970 (rounded down), as Last-Modified says.
    pub modified_seconds: Option<u64>,
    /// The time now, in seconds since 1970, as Date says.
    pub now_seconds: u64,
}

/// What the conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Answer as if there were no conditions; `range`: Range may be honoured, if it is there.
    Proceed {
        /// Whether Range applies.
        range: bool,
    },
    /// 304: the client's copy is good.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// The condition fields of `request`.
pub fn conditions_of(
    request: &Request,
) -> Conditions<'_, impl Iterator<Item = &[u8]>, impl Iterator<Item = &[u8]>> {
    Conditions {
        method: request.method,
        if_match: request.field_values(FieldName::IfMatch),
        if_unmodified_since: request.field(FieldName::IfUnmodifiedSince),
        if_none_match: request.field_values(FieldName::IfNoneMatch),
        if_modified_since: request.field(FieldName::IfModifiedSince),
        if_range: request.field(FieldName::IfRange),
    }
}

/// Weighs the conditions in the order of RFC 9110 section 13.2.2. To be asked only if the answer
/// without them would be 200.
pub fn evaluate<'r, M, N>(conditions: Conditions<'r, M, N>, validators: &Validators<'_>) -> Decision
where
    M: Iterator<Item = &'r [u8]>,
    N: Iterator<Item = &'r [u8]>,
{
    let _ = (conditions, validators);
    unimplemented!()
}
