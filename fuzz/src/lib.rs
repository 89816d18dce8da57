//! What the fuzz targets share.
#![forbid(unsafe_code)]

pub mod content;
pub mod driver;
pub mod frames;
#[cfg(feature = "peers")]
pub mod http2;
pub mod replay;
pub mod task;
pub mod windows;
pub mod wire;

use std::borrow::Cow;

/// Input for a message.
#[must_use]
pub fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    Cow::Owned(bytes.escape_ascii().to_string())
}

/// The first line, without its end, and what follows it.
#[must_use]
pub fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}
