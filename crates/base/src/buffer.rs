//! Owned byte buffers and a bounded pool of them.

use std::ops::{Deref, DerefMut};

/// Bytes on the heap that travel by value. Dereferences to the vector it wraps.
#[derive(Debug, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty buffer with room for `capacity` bytes; allocates.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// Capacities that the pool hands out, in bytes, and how many of each it keeps.
///
/// 4 KiB holds an answer's head and a small body; 20 KiB a head and the largest inline body of
/// 16 KiB; 68 KiB collected request bodies and batches of pipelined answers.
const CLASSES: [(usize, usize); 3] = [(4 << 10, 64), (20 << 10, 16), (68 << 10, 4)];

/// Spare buffers of one thread, by size class, bounded in number.
#[derive(Debug, Default)]
pub struct BufferPool {
    spare: [Vec<Buffer>; CLASSES.len()],
}

impl BufferPool {
    /// An empty pool; it fills as buffers come back.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for at least `len_min` bytes.
    pub fn take(&mut self, len_min: usize) -> Buffer {
        let Some(class) = CLASSES
            .iter()
            .position(|(capacity, _)| *capacity >= len_min)
        else {
            return Buffer::with_capacity(len_min);
        };
        self.spare[class]
            .pop()
            .unwrap_or_else(|| Buffer::with_capacity(CLASSES[class].0))
    }

    /// Makes room in a buffer for `len` more bytes, by a larger one where it is too small.
    #[inline]
    pub fn reserve(&mut self, buffer: &mut Buffer, len: usize) {
        if buffer.capacity() - buffer.len() >= len {
            return;
        }
        let mut larger = self.take(buffer.len() + len);
        larger.extend_from_slice(buffer);
        self.give(std::mem::replace(buffer, larger));
    }

    /// Takes a buffer back. One that has outgrown the classes, or that the pool has enough of, is
    /// freed.
    pub fn give(&mut self, mut buffer: Buffer) {
        let capacity = buffer.capacity();
        if capacity > 2 * CLASSES[CLASSES.len() - 1].0 {
            return;
        }
        let Some(class) = CLASSES.iter().rposition(|(least, _)| capacity >= *least) else {
            return;
        };
        if self.spare[class].len() < CLASSES[class].1 {
            buffer.clear();
            self.spare[class].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_for_the_same_class() {
        let mut pool = BufferPool::new();
        let mut buffer = pool.take(100);
        buffer.extend_from_slice(b"abc");
        let address = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take(4096);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn the_pool_is_bounded_and_refuses_giants_and_dwarfs() {
        let mut pool = BufferPool::new();
        for _ in 0..1000 {
            pool.give(Buffer::with_capacity(4 << 10));
            pool.give(Buffer::with_capacity(10 << 20));
            pool.give(Buffer::with_capacity(10));
        }
        let kept: usize = pool.spare.iter().map(Vec::len).sum();
        assert_eq!(kept, CLASSES[0].1);
        assert!(pool.take(10 << 20).capacity() >= 10 << 20);
    }
}
