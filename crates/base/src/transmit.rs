//! Output on its way: an owned batch of memory and file pieces, and how far it got.
//!
//! A transmit knows nothing of how it is sent: an architecture writes what `front` or `slices`
//! show and reports with `advance`.

use std::io::IoSlice;
use std::sync::Arc;

use crate::{Buffer, OpenFile};

/// One owned piece of output.
#[derive(Debug)]
pub enum Segment {
    /// Bytes from the pool; the buffer goes back to it.
    Buffer(Buffer),
    /// A range of cached content too large to copy.
    Shared {
        /// The content.
        bytes: Arc<[u8]>,
        /// First byte to send.
        start: usize,
        /// One past the last byte to send; at most `bytes.len()`.
        end: usize,
    },
    /// A range of a file.
    File {
        /// The file and the version of it that the answer promised.
        file: Arc<OpenFile>,
        /// First byte to send.
        offset: u64,
        /// Number of bytes to send.
        len: u64,
    },
}

impl Segment {
    /// Bytes in this piece.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.len() as u64,
            Self::Shared { start, end, .. } => (end - start) as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of its own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.capacity(),
            Self::Shared { .. } | Self::File { .. } => 0,
        }
    }

    fn memory(&self) -> Option<&[u8]> {
        match self {
            Self::Buffer(buffer) => Some(buffer),
            Self::Shared { bytes, start, end } => Some(&bytes[*start..*end]),
            Self::File { .. } => None,
        }
    }
}

/// What is to be sent next.
#[derive(Debug)]
pub enum Chunk<'t> {
    /// Bytes in memory.
    Memory(&'t [u8]),
    /// A range of a file.
    File {
        /// The file.
        file: &'t Arc<OpenFile>,
        /// Next byte to send.
        offset: u64,
        /// Bytes left.
        len: u64,
    },
}

/// A batch of output, owned by whoever is sending it.
#[derive(Debug, Default)]
pub struct Transmit {
    segments: Vec<Segment>,
    front: usize,
    front_sent: u64,
}

impl Transmit {
    /// A batch over `segments`, which must hold no empty piece.
    #[must_use]
    pub fn new(segments: Vec<Segment>) -> Self {
        debug_assert!(segments.iter().all(|segment| !segment.is_empty()));
        Self {
            segments,
            front: 0,
            front_sent: 0,
        }
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.front == self.segments.len()
    }

    /// Bytes still to send.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.segments[self.front..]
            .iter()
            .map(Segment::len)
            .sum::<u64>()
            - self.front_sent
    }

    /// The rest of the piece in front; `None` when done.
    #[must_use]
    pub fn front(&self) -> Option<Chunk<'_>> {
        let segment = self.segments.get(self.front)?;
        Some(match segment {
            Segment::File { file, offset, len } => Chunk::File {
                file,
                offset: offset + self.front_sent,
                len: len - self.front_sent,
            },
            memory => {
                Chunk::Memory(&memory.memory().unwrap_or_default()[self.front_sent as usize..])
            }
        })
    }

    /// Whether only one piece is left, or none.
    #[must_use]
    pub fn is_last_piece(&self) -> bool {
        self.segments.len() <= self.front + 1
    }

    /// Fills `out` with the leading pieces that are in memory; returns how many there are.
    pub fn slices<'t>(&'t self, out: &mut [IoSlice<'t>]) -> usize {
        self.slices_within(usize::MAX, out).0
    }

    /// The same of at most `len_max` bytes; returns how many pieces and how many bytes there are.
    pub fn slices_within<'t>(&'t self, len_max: usize, out: &mut [IoSlice<'t>]) -> (usize, usize) {
        let mut skip = self.front_sent as usize;
        let (mut count, mut len) = (0, 0);
        for (slot, segment) in out.iter_mut().zip(&self.segments[self.front..]) {
            let Some(memory) = segment.memory().filter(|_| len < len_max) else {
                break;
            };
            let memory = &memory[skip..];
            let memory = &memory[..memory.len().min(len_max - len)];
            *slot = IoSlice::new(memory);
            skip = 0;
            count += 1;
            len += memory.len();
        }
        (count, len)
    }

    /// Whether some of what is left is a file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        let left = &self.segments[self.front..];
        left.iter().any(|segment| segment.memory().is_none())
    }

    /// Whether a piece of memory is followed by more to send, so that the kernel should wait for it
    /// before it sends a short packet (`MSG_MORE`).
    #[must_use]
    pub fn memory_then_file(&self) -> bool {
        let first_file = self.segments[self.front..]
            .iter()
            .position(|s| s.memory().is_none());
        first_file.is_some_and(|position| position > 0)
    }

    /// Notes that `sent` more bytes have left.
    ///
    /// # Panics
    /// If more was sent than there was.
    pub fn advance(&mut self, sent: u64) {
        let mut sent = sent + self.front_sent;
        while let Some(segment) = self.segments.get(self.front) {
            let len = segment.len();
            if sent < len {
                self.front_sent = sent;
                return;
            }
            sent -= len;
            self.front += 1;
            self.front_sent = 0;
        }
        assert_eq!(sent, 0, "more sent than there was");
    }

    /// Takes the batch apart, for its buffers to go back to the pool.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        self.segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> Segment {
        Segment::Buffer(Buffer::from(bytes.to_vec()))
    }

    #[test]
    fn advances_over_pieces_and_shows_the_rest() {
        let shared: Arc<[u8]> = Arc::from(&b"0123456789"[..]);
        let mut transmit = Transmit::new(vec![
            buffer(b"abc"),
            Segment::Shared {
                bytes: shared,
                start: 2,
                end: 5,
            },
        ]);
        assert_eq!(transmit.remaining(), 6);
        transmit.advance(4);
        assert!(matches!(transmit.front(), Some(Chunk::Memory(b"34"))));
        let mut out = [IoSlice::new(&[]); 4];
        assert_eq!(transmit.slices(&mut out), 1);
        transmit.advance(2);
        assert!(transmit.is_done() && transmit.front().is_none());
    }

    #[test]
    fn slices_of_so_many_bytes() {
        let mut transmit = Transmit::new(vec![buffer(b"abc"), buffer(b"de"), buffer(b"f")]);
        transmit.advance(1);
        let cases: [(usize, &[&[u8]]); 5] = [
            (0, &[]),
            (1, &[b"b"]),
            (2, &[b"bc"]),
            (3, &[b"bc", b"d"]),
            (9, &[b"bc", b"de", b"f"]),
        ];
        for (len_max, expected) in cases {
            let mut out = [IoSlice::new(&[]); 4];
            let (count, len) = transmit.slices_within(len_max, &mut out);
            let found: Vec<&[u8]> = out[..count].iter().map(|slice| &slice[..]).collect();
            assert_eq!(found, expected);
            assert_eq!(len, expected.concat().len());
        }
        let mut two = [IoSlice::new(&[]); 2];
        assert_eq!(transmit.slices_within(9, &mut two), (2, 4));
    }

    #[test]
    fn any_split_of_the_same_bytes_ends_the_same() {
        for cut in 0..=6 {
            let mut transmit = Transmit::new(vec![buffer(b"abc"), buffer(b"de"), buffer(b"f")]);
            transmit.advance(cut);
            assert_eq!(transmit.remaining(), 6 - cut);
            transmit.advance(6 - cut);
            assert!(transmit.is_done());
        }
    }

    #[test]
    #[should_panic(expected = "more sent than there was")]
    fn too_much_is_a_bug() {
        Transmit::new(vec![buffer(b"abc")]).advance(4);
    }
}
