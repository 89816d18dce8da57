//! HTTP/2 (RFC 9113): frames and the compression of fields.

pub mod frame;
pub mod hpack;
pub(crate) mod request;
