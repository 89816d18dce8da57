//! Any bytes as field blocks of a connection, for our decoder and for that of `loona-hpack`: both find the
//! same fields, or both refuse them.
//!
//! The first byte is the length of the first block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_proto::hpack::{Decoder, HpackError, TABLE_BYTES};
use loona_hpack::decoder::DecoderError;

/// A block of this length names 4 MiB at most.
const BLOCK_MAX: usize = 1024;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first() else {
        return;
    };
    let (first, second) = rest.split_at(rest.len().min(usize::from(*len)));
    let mut ours = Decoder::default();
    let mut theirs = loona_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(TABLE_BYTES);
    for block in [first, second] {
        let block = &block[..block.len().min(BLOCK_MAX)];
        let mut fields = Vec::new();
        let decoded = ours.decode(block, &mut Vec::new(), |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
        });
        match (decoded, theirs.decode(block)) {
            (Ok(()), Ok(their_fields)) => assert_eq!(fields, their_fields),
            (Err(_), Err(_)) => return, // the connection is over
            // RFC 7541 section 4.2: a size stands at the beginning of a block. Theirs does not look.
            (Err(HpackError::TableSize), Ok(_)) => return,
            // A block may be a size alone. Theirs wants a field behind it.
            (Ok(()), Err(DecoderError::SizeUpdateAtEnd)) if fields.is_empty() => return,
            (our, their) => panic!("ours: {our:?}, theirs: {their:?}"),
        }
    }
});
