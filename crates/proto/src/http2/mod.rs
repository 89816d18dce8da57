//! HTTP/2 (RFC 9113): frames, requests and responses in them, and what is known of a stream.

pub(crate) mod field;
pub mod frame;
mod memory;
pub(crate) mod priority;
pub(crate) mod request;
pub(crate) mod response;
pub mod state;
pub(crate) mod stream;

pub(crate) use memory::{Http2Memory, STREAMS_MAX};
