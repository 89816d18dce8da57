//! The Range field (RFC 9110 sections 14.1 and 14.2).

/// Bytes of a representation; never empty, never beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// What a request wants of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it, with 200: there is no Range, or it is to be ignored.
    Whole,
    /// One range, with 206 and Content-Range.
    One(ByteRange),
    /// Two or more, in the order asked for, with 206 and multipart/byteranges.
    Several(Vec<ByteRange>),
    /// No range lies inside: 416 with Content-Range `bytes */size`.
    Unsatisfiable,
}

/// Most ranges that one request may ask for; a request with more gets the whole.
pub const RANGES_MAX: usize = 16;

/// Reads the values of the Range field of a GET against a representation of `size` bytes.
pub fn select<'v>(values: impl IntoIterator<Item = &'v [u8]>, size: u64) -> Selection {
    let _ = (values.into_iter(), size);
    unimplemented!()
}
