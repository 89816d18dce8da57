//! How much of the peer's last record has come: rustls keeps a part of one, and does not say so.

use crate::first_message::RECORD_HEAD_BYTES;

/// Where the bytes that came so far end.
#[derive(Debug, Default)]
pub(crate) struct RecordProgress {
    head: [u8; RECORD_HEAD_BYTES],
    /// What has come of a head that is not whole.
    head_len: usize,
    /// What is still to come behind a head that is.
    missing: usize,
    /// What has come of the record, its head included; 0 between two.
    partial_bytes: usize,
}

impl RecordProgress {
    /// These came next.
    pub(crate) fn received(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = match self.missing {
                0 => RECORD_HEAD_BYTES - self.head_len,
                missing => missing,
            };
            let (some, rest) = bytes.split_at(room.min(bytes.len()));
            bytes = rest;
            self.partial_bytes += some.len();
            if self.missing > 0 {
                self.missing -= some.len();
            } else {
                self.head[self.head_len..][..some.len()].copy_from_slice(some);
                self.head_len += some.len();
                if self.head_len == RECORD_HEAD_BYTES {
                    self.head_len = 0;
                    self.missing = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
                }
            }
            if self.head_len == 0 && self.missing == 0 {
                self.partial_bytes = 0;
            }
        }
    }

    /// How many of them are of a record that is not whole.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.partial_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_partial_until_its_last_byte_however_it_is_cut() {
        let (mut input, mut ends) = (Vec::new(), vec![0]);
        for len in [300_u16, 0, 1, 5] {
            input.extend_from_slice(&[23, 3, 3]);
            input.extend_from_slice(&len.to_be_bytes());
            input.resize(input.len() + usize::from(len), 7);
            ends.push(input.len());
        }
        for piece in [1, 2, 3, 5, 7, 100, input.len()] {
            let (mut progress, mut came) = (RecordProgress::default(), 0);
            for bytes in input.chunks(piece) {
                progress.received(bytes);
                came += bytes.len();
                let begun = ends.iter().rfind(|end| **end <= came).unwrap();
                assert_eq!(progress.partial_bytes(), came - begun, "{came} by {piece}");
            }
        }
    }
}
