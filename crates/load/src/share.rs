//! Which part of the whole load one thread carries.

use serde::{Deserialize, Serialize};

/// Part `index` of `of` equal parts, counted over all threads of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Which part, from 0.
    pub index: u32,
    /// How many parts there are; at least 1.
    pub of: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// This part of `count` things; the parts add up to `count`.
    #[must_use]
    pub fn count(self, count: u64) -> u64 {
        let (index, of) = (u64::from(self.index), u64::from(self.of.max(1)));
        count / of + u64::from(index < count % of)
    }

    /// How many of `count` things the parts before this one have.
    #[must_use]
    pub fn first(self, count: u64) -> u64 {
        let (index, of) = (u64::from(self.index), u64::from(self.of.max(1)));
        count / of * index + index.min(count % of)
    }

    /// Part `index` of `of` parts of this part.
    #[must_use]
    pub fn part(self, index: u32, of: u32) -> Self {
        Self {
            index: self.index * of + index,
            of: self.of * of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_and_follow_each_other() {
        for (count, of) in [(0, 1), (7, 3), (20_000, 7), (3, 8)] {
            let mut next = 0;
            for index in 0..of {
                let share = Share { index, of };
                assert_eq!(share.first(count), next);
                next += share.count(count);
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn a_part_of_a_part() {
        let half = Share { index: 1, of: 2 };
        assert_eq!(half.part(2, 3), Share { index: 5, of: 6 });
    }
}
