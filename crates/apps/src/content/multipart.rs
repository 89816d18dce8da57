//! multipart/byteranges bodies (RFC 9110 section 14.6).

use std::fmt;
use std::sync::Arc;

use loadline_base::{OpenFile, Segment};

use super::range::ByteRange;

/// Where the bytes of a representation are.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Shared(Arc<[u8]>),
    /// In a file.
    File(Arc<OpenFile>),
}

/// What separates the parts: 32 hexadecimal digits, which the caller draws so that the content
/// cannot be made to contain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary(pub u128);

impl Boundary {
    /// The Content-Type of the whole answer.
    #[must_use]
    pub fn content_type(self) -> String {
        format!("multipart/byteranges; boundary={self}")
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The body: a part per range of a representation of `size` bytes and of type `media_type`. Its
/// Content-Length is the sum of the segments' lengths (as `Body::len` has it).
#[must_use]
pub fn body(
    content: &Content,
    ranges: &[ByteRange],
    size: u64,
    media_type: &str,
    boundary: Boundary,
) -> Vec<Segment> {
    let _ = (content, ranges, size, media_type, boundary);
    unimplemented!()
}
