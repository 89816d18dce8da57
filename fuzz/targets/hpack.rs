//! Any bytes as field blocks of a connection: decoding ends, holds bounded memory, and what was decoded
//! comes back from an encoder.
//!
//! The first byte is the length of the first block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_proto::hpack::{Decoder, Encoder, Indexing, TABLE_BYTES};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first() else {
        return;
    };
    let (first, second) = rest.split_at(rest.len().min(usize::from(*len)));
    let mut decoder = Decoder::default();
    let mut ends = (Encoder::default(), Decoder::default());
    for block in [first, second] {
        let Some(fields) = decode(&mut decoder, block) else {
            return; // the connection is over
        };
        // A block is no bomb for the memory: its strings, and two tables.
        let bound = 8 * TABLE_BYTES + 8 * block.len() + 1024;
        assert!(decoder.held_bytes() <= bound, "{}", decoder.held_bytes());
        come_back(&mut ends, &fields);
    }
});

/// The first fields: an index is one byte, and names 4 KiB.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    let decoded = decoder.decode(block, &mut Vec::new(), |name, value| {
        if fields.len() < 100 {
            fields.push((name.to_vec(), value.to_vec()));
        }
    });
    decoded.ok().map(|()| fields)
}

fn come_back((encoder, decoder): &mut (Encoder, Decoder), fields: &Fields) {
    let mut block = Vec::new();
    encoder.resize(fields.len() * 100);
    encoder.begin(&mut block);
    for (index, (name, value)) in fields.iter().enumerate() {
        let indexing = [Indexing::Kept, Indexing::Not, Indexing::Never][index % 3];
        encoder.field(name, value, indexing, &mut block);
    }
    assert_eq!(decode(decoder, &block).as_ref(), Some(fields));
}
