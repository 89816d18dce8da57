//! HPACK, the compression of fields (RFC 7541).

mod decoder;
mod encoder;
mod huffman;
mod table;

pub use decoder::{Decoder, HpackError};
pub use encoder::{Encoder, Indexing};
pub(crate) use encoder::{is_secret, literals};

/// Size of the dynamic table until something else is said (RFC 9113 section 6.5.2).
pub const TABLE_BYTES: usize = 4096;
