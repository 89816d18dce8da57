//! HTTP/1.0 and 1.1 on the wire (RFC 9112), strict: what is ambiguous is refused.
//!
//! `head` finds the end of a head and parses it, by its `lines`; `opening` separates other protocols
//! from HTTP/1, `authority` is hosts and ports; `framing` decides where the content ends, `chunked`
//! decodes it and `trailers` judges what may follow it; `forwarded` reads what proxies say. All are
//! pure functions over bytes.

mod authority;
pub mod chunked;
pub(crate) mod forwarded;
mod framing;
mod head;
mod lines;
mod opening;
pub(crate) mod reply;
mod trailers;

pub use chunked::ChunkedDecoder;
pub use framing::Framing;
pub use head::{HeadFacts, HeadScan, HeadScanner};

use crate::{Fault, Limits, Request};

/// Parses one whole head, from the request line to the empty line, into a request.
///
/// # Errors
/// A `Fault` with the status to answer: 400, 414, 417, 421, 431, 501 or 505.
pub fn parse_request(head: &[u8], limits: &Limits) -> Result<(Request, HeadFacts), Fault> {
    let mut request = Request::default();
    request.head.extend_from_slice(head);
    let facts = parse(&mut request, limits)?;
    Ok((request, facts))
}

pub(crate) use head::{check_scheme, facts, parse, parse_method, parse_target};
pub(crate) use lines::{is_lower_case_name, is_text, target_end};
pub(crate) use opening::is_http2;
pub(crate) use trailers::is_no_trailer;
