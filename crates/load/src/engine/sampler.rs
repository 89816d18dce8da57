//! Which answers have their content checked: every n-th, with hashes that are used again.

use sha2::{Digest, Sha256};

/// Hands out hashes.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    every: u32,
    passed: u32,
    #[expect(clippy::vec_box, reason = "clients hold a pointer, not the hash")]
    spare: Vec<Box<Sha256>>,
}

impl Sampler {
    /// Every `every`-th; 0: none.
    pub(super) fn new(every: u32) -> Self {
        Self {
            every,
            ..Self::default()
        }
    }

    /// The hash for the next answer, if it is one to be checked.
    pub(super) fn next(&mut self) -> Option<Box<Sha256>> {
        self.passed += 1;
        if self.passed != self.every {
            self.passed %= self.every.max(1);
            return None;
        }
        self.passed = 0;
        Some(self.spare.pop().unwrap_or_default())
    }

    /// The hash of what went through; its memory serves again.
    pub(super) fn end(&mut self, mut hasher: Box<Sha256>) -> [u8; 32] {
        let sha256 = hasher.finalize_reset().into();
        self.spare.push(hasher);
        sha256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_answer_is_taken() {
        for (every, expected) in [(0, 0), (1, 12), (3, 4), (12, 1), (13, 0)] {
            let mut sampler = Sampler::new(every);
            let taken = (0..12).filter_map(|_| sampler.next()).count();
            assert_eq!(taken, expected, "every {every}");
        }
    }

    #[test]
    fn a_hash_begins_anew() {
        let mut sampler = Sampler::new(1);
        let empty = sampler.next().unwrap();
        let of_nothing = sampler.end(empty);
        let mut one = sampler.next().unwrap();
        one.update(b"abc");
        assert_ne!(sampler.end(one), of_nothing);
        let again = sampler.next().unwrap();
        assert_eq!(sampler.end(again), of_nothing);
    }
}
