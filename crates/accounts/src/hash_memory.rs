//! Memory for password hashes: pieces that are used again, wiped after each use, and given back to
//! the system once they were not used for a while.
//!
//! Left to the allocator, memory of this size stays: glibc takes it from an arena of each thread
//! that ever hashed, as soon as one such piece was freed, and arenas hardly shrink. So there are as
//! many pieces as hashes at the same time, each mapped for itself.

use std::collections::TryReserveError;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::Block;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// What glibc never takes from an arena, whatever was freed before: more than the 32 MiB that its
/// `DEFAULT_MMAP_THRESHOLD_MAX` is. Pages that are not written to are no memory, only addresses.
const MAPPED_BYTES_MIN: usize = 33 << 20;

/// The pieces that are not in use.
#[derive(Debug)]
pub(crate) struct HashMemory {
    kept: Duration,
    runtime: Handle,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The one used last stands last, and is the next to be used.
    pieces: Vec<Piece>,
    /// Whether a task sees to it that they are given back.
    is_watched: bool,
}

#[derive(Debug)]
struct Piece {
    blocks: Vec<Block>,
    used: Instant,
}

impl HashMemory {
    /// Keeps what is not used for this time; then a task of the runtime gives it back.
    pub(crate) fn new(kept: Duration, runtime: Handle) -> Arc<Self> {
        let idle = Mutex::default();
        Arc::new(Self {
            kept,
            runtime,
            idle,
        })
    }

    /// Works with `count` blocks, which are zero at first.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        count: usize,
        work: impl FnOnce(&mut [Block]) -> T,
    ) -> Result<T, TryReserveError> {
        let mut blocks = self.take(count)?;
        let result = work(&mut blocks[..count]);
        blocks[..count].fill(Block::new()); // it was made of a password
        self.give_back(blocks);
        Ok(result)
    }

    fn take(&self, count: usize) -> Result<Vec<Block>, TryReserveError> {
        let last = self.lock().pieces.pop();
        let mut blocks = last.map(|piece| piece.blocks).unwrap_or_default();
        if blocks.len() < count {
            let room = count.max(MAPPED_BYTES_MIN / Block::SIZE);
            blocks.try_reserve_exact(room - blocks.len())?;
            blocks.resize(count, Block::new());
        }
        Ok(blocks)
    }

    fn give_back(self: &Arc<Self>, blocks: Vec<Block>) {
        let used = Instant::now();
        let mut idle = self.lock();
        idle.pieces.push(Piece { blocks, used });
        if !mem::replace(&mut idle.is_watched, true) {
            let memory = Arc::clone(self);
            self.runtime.spawn(async move {
                while memory.has_idle() {
                    sleep(memory.kept).await;
                }
            });
        }
    }

    /// Gives back what was not used for long enough. Whether anything is left to be watched.
    fn has_idle(&self) -> bool {
        let mut idle = self.lock();
        let is_old = |piece: &mut Piece| piece.used.elapsed() >= self.kept;
        let old: Vec<Piece> = idle.pieces.extract_if(.., is_old).collect();
        idle.is_watched = !idle.pieces.is_empty();
        let is_watched = idle.is_watched;
        drop(idle); // unmapping takes a while
        drop(old);
        is_watched
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner) // pieces are never half there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_piece_is_used_again_wiped_and_at_last_given_back() {
        let memory = HashMemory::new(Duration::ZERO, Handle::current());
        for _ in 0..3 {
            let written = memory.with(64, |blocks| {
                assert!(blocks.iter().all(is_zero), "what was there is wiped");
                blocks[63].as_mut().fill(7);
                blocks.len()
            });
            assert_eq!(written, Ok(64));
            assert_eq!(memory.lock().pieces.len(), 1);
        }
        while !memory.lock().pieces.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(!memory.lock().is_watched);
        memory.with(8, |_| ()).unwrap();
        assert!(memory.lock().is_watched, "and again");
    }

    #[tokio::test]
    async fn there_are_as_many_pieces_as_hashes_at_once() {
        let memory = HashMemory::new(Duration::from_secs(60), Handle::current());
        let nested = memory.with(8, |_| memory.with(16, |_| memory.lock().pieces.len()));
        assert_eq!(nested, Ok(Ok(0)));
        assert_eq!(memory.lock().pieces.len(), 2);
        for _ in 0..10 {
            memory.with(12, |_| ()).unwrap();
        }
        assert_eq!(memory.lock().pieces.len(), 2);
        let rooms = memory.lock().pieces.iter().map(room).collect::<Vec<_>>();
        assert!(rooms.iter().all(|room| *room > 32 << 20), "{rooms:?}");
    }

    fn is_zero(block: &Block) -> bool {
        let words: &[u64] = block.as_ref();
        words.iter().all(|word| *word == 0)
    }

    fn room(piece: &Piece) -> usize {
        piece.blocks.capacity() * Block::SIZE
    }
}
