//! What is wrong with answers and connections, and with which of them.

use clap::ValueEnum;

/// What is wrong with an answer. It happens when the answer would have been due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes without a byte of an answer.
    Close,
    /// The connection is reset without a byte of an answer.
    Reset,
    /// The connection closes in the middle of the head.
    CutHead,
    /// The connection closes in the middle of the content: half of what was announced has come, or
    /// half of it as a chunk. Content that ends with the connection is short without a sign of it.
    CutBody,
    /// The connection is reset in the middle of the content.
    ResetInBody,
    /// Complete, with another status and the same content.
    Status(u16),
    /// Complete, and of the right length, but each byte of the content is another.
    Content,
    /// Complete, but the content, and the length that is announced, is that much longer.
    Longer {
        /// Bytes more.
        bytes: u32,
    },
    /// Complete, but the content, and the length that is announced, is that much shorter.
    Shorter {
        /// Bytes less; at most to nothing.
        bytes: u32,
    },
    /// More bytes follow behind the end of the answer, in the same piece.
    Excess {
        /// How many.
        bytes: u32,
    },
    /// As it should be, but later.
    Late {
        /// By how much, in nanoseconds.
        by_ns: u64,
    },
    /// Nothing ever, and the connection stays open.
    Never,
    /// Not the HTTP that a client may accept.
    Malformed(Malformed),
}

impl Fault {
    /// What it makes of content.
    pub(crate) fn content(self, content: &[u8]) -> Vec<u8> {
        let mut content = content.to_vec();
        let len = content.len();
        match self {
            Self::Content => content.iter_mut().for_each(|byte| *byte = !*byte),
            Self::Shorter { bytes } => content.truncate(len.saturating_sub(bytes as usize)),
            Self::Longer { bytes } | Self::Excess { bytes } => {
                content.resize(len + bytes as usize, b'+');
            }
            _ => {}
        }
        content
    }
}

/// Ways in which an answer is not HTTP. After each the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Malformed {
    /// The first line is that of another protocol.
    Protocol,
    /// The status is not three digits.
    Status,
    /// `Content-Length` is not a number.
    Length,
    /// There are two different `Content-Length`s.
    Lengths,
    /// The size of a chunk is not a number.
    ChunkSize,
    /// There is a space between a field's name and its colon.
    FieldName,
    /// Fields without end: more than a mebibyte of them.
    EndlessHead,
}

impl Malformed {
    /// All of them.
    #[must_use]
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }
}

/// What happens to a connection right after it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConnectionFault {
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
}

/// Something that happens to every `every`th: to number `every`, twice that, and so on, counted
/// from 1 over the whole responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every<T> {
    /// Above 0.
    pub every: u64,
    /// What happens.
    pub fault: T,
}

impl<T: Copy> Every<T> {
    /// The first that concerns `number`, with its index.
    pub(crate) fn find(rules: &[Self], number: u64) -> Option<(usize, T)> {
        let index = rules
            .iter()
            .position(|rule| number.is_multiple_of(rule.every))?;
        Some((index, rules[index].fault))
    }

    /// How many of the numbers up to and with `count` each of the rules concerns, the first match
    /// deciding: what the counts have to be.
    #[must_use]
    pub fn hits(rules: &[Self], count: u64) -> Vec<u64> {
        let mut hits = vec![0; rules.len()];
        for number in 1..=count {
            if let Some((index, _)) = Self::find(rules, number) {
                hits[index] += 1;
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule = |every| Every {
            every,
            fault: Fault::Never,
        };
        let rules = [rule(6), rule(3)];
        let index = |number| Every::find(&rules, number).map(|(index, _)| index);
        assert_eq!([1, 3, 6, 9].map(index), [None, Some(1), Some(0), Some(1)]);
        assert_eq!(Every::hits(&rules, 20), [3, 3]);
        assert_eq!(Every::<Fault>::hits(&[], 20), [0; 0]);
    }
}
