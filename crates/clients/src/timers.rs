//! Moments that are waited for: one for each virtual user, exact to the nanosecond.
//!
//! A timer is moved or forgotten at once: a client that gets its answers long before their timeout
//! leaves nothing behind.

use std::collections::BTreeSet;

/// "No moment."
const NONE: u64 = u64::MAX;

/// At most one moment for each index.
#[derive(Debug)]
pub(super) struct Timers {
    /// Moments and their indexes.
    moments: BTreeSet<(u64, u32)>,
    /// The moment of each index.
    of: Box<[u64]>,
}

impl Timers {
    /// For `count` indexes.
    pub(super) fn new(count: usize) -> Self {
        Self {
            moments: BTreeSet::new(),
            of: vec![NONE; count].into_boxed_slice(),
        }
    }

    /// Wakes `index` at `ns`, and no more at the moment set before.
    pub(super) fn set(&mut self, index: u32, ns: u64) {
        self.clear(index);
        self.of[index as usize] = ns;
        self.moments.insert((ns, index));
    }

    /// Forgets the moment of `index`, if there is one.
    pub(super) fn clear(&mut self, index: u32) {
        let ns = std::mem::replace(&mut self.of[index as usize], NONE);
        if ns != NONE {
            self.moments.remove(&(ns, index));
        }
    }

    /// The earliest moment.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.moments.first().map(|first| first.0)
    }

    /// Takes out one that has come, the earliest first.
    pub(super) fn expired(&mut self, now_ns: u64) -> Option<u32> {
        let (ns, index) = *self.moments.first()?;
        (ns <= now_ns).then(|| self.clear(index))?;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain list: the same ones come, in the same order of moments.
        #[test]
        fn behaves_like_a_list(operations in prop::collection::vec((0_u32..12, 0_u64..50, 0_u8..4), 0..200)) {
            let mut timers = Timers::new(12);
            let mut model = [None::<u64>; 12];
            for (index, ns, what) in operations {
                match what {
                    0 | 1 => {
                        timers.set(index, ns);
                        model[index as usize] = Some(ns);
                    }
                    2 => {
                        timers.clear(index);
                        model[index as usize] = None;
                    }
                    _ => {
                        let mut last_ns = 0;
                        while let Some(expired) = timers.expired(ns) {
                            let at_ns = model[expired as usize].take();
                            prop_assert!(at_ns.is_some_and(|at_ns| at_ns >= last_ns && at_ns <= ns));
                            last_ns = at_ns.unwrap_or(0);
                        }
                        prop_assert!(model.iter().flatten().all(|left| *left > ns));
                    }
                }
                prop_assert_eq!(timers.next_ns(), model.iter().flatten().min().copied());
            }
        }
    }
}
