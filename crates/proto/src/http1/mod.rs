//! HTTP/1.0 and 1.1 on the wire (RFC 9112).

pub(crate) mod encode;
