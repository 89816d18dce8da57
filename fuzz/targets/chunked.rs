//! Any bytes as a chunked body, and any bytes put into one: the cuts do not matter, and what was
//! encoded comes back.
//!
//! The first byte says how the rest is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadline_fuzz::as_text;
use loadline_proto::http1::ChunkedDecoder;
use loadline_proto::{Limits, Status};

/// What decoding came to: the content, the bytes used, whether the end was seen, or the refusal.
#[derive(Debug, PartialEq)]
struct Decoded {
    content: Vec<u8>,
    outcome: Result<(usize, bool), Option<Status>>,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, body)) = bytes.split_first() else {
        return;
    };
    let piece = usize::from(*cut).max(1);
    let at_once = decode(body, body.len().max(1));
    assert_eq!(decode(body, piece), at_once, "{}", as_text(body));
    assert_eq!(decode(body, 1), at_once, "{}", as_text(body));

    let mut encoded = encode(body, piece);
    let len = encoded.len();
    encoded.extend_from_slice(b"GET / HTTP/1.1\r\n"); // the next request is not touched
    let decoded = decode(&encoded, usize::from(cut.reverse_bits()).max(1));
    assert_eq!(decoded.outcome, Ok((len, true)));
    assert_eq!(decoded.content, body);
});

fn decode(body: &[u8], piece: usize) -> Decoded {
    let limits = Limits::default();
    let mut decoder = ChunkedDecoder::default();
    let mut content = Vec::new();
    let mut used = 0;
    for piece in body.chunks(piece) {
        match decoder.decode(piece, &limits, |bytes| content.extend_from_slice(bytes)) {
            Ok(count) => used += count,
            Err(fault) => {
                let outcome = Err(fault.status);
                return Decoded { content, outcome };
            }
        }
        if decoder.is_done() {
            break;
        }
    }
    assert!(content.len() <= used && used <= body.len());
    assert!(decoder.is_done() || used == body.len());
    let outcome = Ok((used, decoder.is_done()));
    Decoded { content, outcome }
}

fn encode(content: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in content.chunks(piece) {
        out.extend_from_slice(format!("{:X};x=\"y\"\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    out
}
