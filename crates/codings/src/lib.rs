//! Content codings (RFC 9110 section 8.4): which one a client wants, what gets smaller by one, and encoders
//! for gzip, zstd and brotli.
//!
//! Nothing here knows of requests, files or threads.
#![forbid(unsafe_code)]

mod brotli;
mod compress;
mod encoding;
mod text_like;

pub use brotli::BrotliWriter;
pub use compress::{Effort, Encoder, Smaller, compress, stream_bytes};
pub use encoding::{AcceptedCodings, Coding};
pub use text_like::{BYTES_MIN, essence, is_text_like};
