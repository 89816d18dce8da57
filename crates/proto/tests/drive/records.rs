//! A layer for tests, in the manner of TLS: records of changed bytes, a handshake, an end of its own.
//!
//! A record is its length in two bytes, then that many bytes, each XORed with a key. The client's first
//! one is `hello`, which the server answers with `welcome`; an empty one is the end.

use loadline_base::Buffer;
use loadline_proto::{Fault, Layer};

const KEY: u8 = 0x5a;
const RECORD_BYTES_MAX: usize = 16_000;

/// One end of a connection.
#[derive(Debug, Default)]
pub struct Records {
    partial: Vec<u8>,
    is_open: bool,
    has_ended: bool,
    is_client: bool,
}

impl Records {
    /// A client's end. What it opens with is in `out`.
    pub fn client(out: &mut Buffer) -> Self {
        push(b"hello", out);
        Self {
            is_client: true,
            ..Self::default()
        }
    }
}

/// These bytes as records.
pub fn records(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in bytes.chunks(RECORD_BYTES_MAX) {
        push(piece, &mut out);
    }
    out
}

/// A record that ends the output.
pub const END: [u8; 2] = [0, 0];

/// What a client opens with.
pub fn hello() -> Vec<u8> {
    records(b"hello")
}

/// The bytes in these records, and whether they came to their end. What comes first is `welcome`.
pub fn plain(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::new();
    let mut ended = false;
    while let Some((record, rest)) = next(bytes) {
        assert!(!ended, "a record behind the end");
        ended = record.is_empty();
        plain.extend_from_slice(&xored(record));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "part of a record");
    let plain = plain.strip_prefix(b"welcome").map(<[u8]>::to_vec);
    (plain.unwrap_or_default(), ended)
}

fn push(piece: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(piece.len() as u16).to_be_bytes());
    out.extend_from_slice(&xored(piece));
}

/// Many bytes at a time: tests of megabytes are not optimised everywhere.
fn xored(bytes: &[u8]) -> Vec<u8> {
    const KEYS: u128 = u128::from_ne_bytes([KEY; 16]);
    let mut xored = bytes.to_vec();
    let (many, rest) = xored.as_chunks_mut::<16>();
    for bytes in many {
        *bytes = (u128::from_ne_bytes(*bytes) ^ KEYS).to_ne_bytes();
    }
    rest.iter_mut().for_each(|byte| *byte ^= KEY);
    xored
}

fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

impl Layer for Records {
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault> {
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        let mut rest = &partial[..];
        while let Some((record, behind)) = next(rest) {
            rest = behind;
            let record = xored(record);
            if self.has_ended || record.len() > RECORD_BYTES_MAX {
                push(b"alert", out);
                return Err(Fault::bad_request("a record that may not be"));
            } else if !self.is_open {
                let expected: &[u8] = if self.is_client { b"welcome" } else { b"hello" };
                if record != expected {
                    push(b"alert", out);
                    return Err(Fault::bad_request("no handshake"));
                }
                if !self.is_client {
                    push(b"welcome", out);
                }
                self.is_open = true;
            } else if record.is_empty() {
                self.has_ended = true;
            } else {
                plain.extend_from_slice(&record);
            }
        }
        self.partial = rest.to_vec();
        Ok(())
    }

    fn send(&mut self, plain: &[u8], out: &mut Buffer) {
        out.extend_from_slice(&records(plain));
    }

    fn finish(&mut self, out: &mut Buffer) {
        out.extend_from_slice(&END);
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn has_begun(&self) -> bool {
        self.is_open || self.partial_bytes() > 0
    }

    fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
