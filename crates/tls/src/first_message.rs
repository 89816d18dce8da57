//! How much of a client's first message has come, however it is cut into records (RFC 8446 section 5.1).

/// A record's type, version and length.
pub(crate) const RECORD_HEAD_BYTES: usize = 5;
/// The type of a handshake's record.
pub(crate) const HANDSHAKE: u8 = 22;
/// A message's type and length (RFC 8446 section 4).
const MESSAGE_HEAD_BYTES: usize = 4;

/// The message, as far as its records are whole.
#[derive(Debug, Default)]
pub(crate) struct FirstMessage {
    /// What was counted: records from the beginning, with their heads.
    counted: usize,
    /// What they hold of the message.
    len: usize,
    head: [u8; MESSAGE_HEAD_BYTES],
}

impl FirstMessage {
    /// Whether there is nothing to wait for: it is whole, or something else has come in its place. `input`
    /// is all that has come so far.
    pub(crate) fn is_whole(&mut self, input: &[u8]) -> bool {
        while let Some((kind, content)) = record(input.get(self.counted..).unwrap_or_default()) {
            if kind != HANDSHAKE || content.is_empty() {
                return true;
            }
            let head = self.head.iter_mut().skip(self.len);
            head.zip(content).for_each(|(at, byte)| *at = *byte);
            self.len += content.len();
            self.counted += RECORD_HEAD_BYTES + content.len();
            let [_, high, middle, low] = self.head;
            let whole = u32::from_be_bytes([0, high, middle, low]) as usize;
            if self.len >= MESSAGE_HEAD_BYTES && self.len - MESSAGE_HEAD_BYTES >= whole {
                return true;
            }
        }
        false
    }
}

/// How long the first record is, with its head.
pub(crate) fn record_len(input: &[u8]) -> Option<usize> {
    let head = input.first_chunk::<RECORD_HEAD_BYTES>()?;
    Some(RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([head[3], head[4]])))
}

/// The first record, if it is whole: its type and its content.
fn record(input: &[u8]) -> Option<(u8, &[u8])> {
    let content = input.get(RECORD_HEAD_BYTES..record_len(input)?)?;
    Some((input[0], content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of a message, each with so many bytes of it.
    fn records(message: &[u8], piece: usize) -> Vec<u8> {
        let record = |piece: &[u8]| {
            let mut record = vec![HANDSHAKE, 3, 1, 0, 0];
            record[3..].copy_from_slice(&(piece.len() as u16).to_be_bytes());
            record.extend_from_slice(piece);
            record
        };
        message.chunks(piece).flat_map(record).collect()
    }

    #[test]
    fn a_message_is_whole_at_its_last_byte_however_it_is_cut() {
        for len in [0, 1, 3, 300] {
            let mut message = vec![1, 0, (len >> 8) as u8, len as u8];
            message.resize(4 + len, 7);
            for piece in [1, 2, 3, 4, 5, 100, 1000] {
                let input = records(&message, piece);
                let mut it = FirstMessage::default();
                for end in 0..=input.len() {
                    let whole = it.is_whole(&input[..end]);
                    assert_eq!(whole, end == input.len(), "{len} by {piece}: {end}");
                }
                assert!(FirstMessage::default().is_whole(&input), "{len} by {piece}");
            }
        }
    }

    #[test]
    fn nothing_is_waited_for_behind_what_is_no_part_of_it() {
        let part = records(&[1, 0, 1], 1);
        assert!(!FirstMessage::default().is_whole(&part));
        for other in [&[HANDSHAKE, 3, 1, 0, 0][..], &[21, 3, 1, 0, 2, 1, 0]] {
            let input = [&part, other].concat();
            assert!(FirstMessage::default().is_whole(&input), "{other:?}");
        }
    }
}
