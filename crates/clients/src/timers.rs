//! Moments that are waited for: one for each member, exact to the nanosecond.
//!
//! A binary heap that knows where each member stands in it, so that a timer is moved or forgotten
//! at once: a client that gets its answers long before their timeout leaves nothing behind.

/// "Not in the heap."
const NONE: u32 = u32::MAX;

/// At most one moment for each index.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Moments and whose they are; the earliest first, each no later than its two successors.
    heap: Vec<(u64, u32)>,
    /// Where an index stands in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// For `count` indexes.
    pub(super) fn new(count: usize) -> Self {
        Self {
            heap: Vec::new(),
            places: vec![NONE; count],
        }
    }

    /// Wakes `index` at `ns`, and no more at the moment set before.
    pub(super) fn set(&mut self, index: u32, ns: u64) {
        let place = self.places[index as usize];
        if place == NONE {
            self.heap.push((ns, index));
            self.rise(self.heap.len() - 1);
            return;
        }
        let place = place as usize;
        let before = std::mem::replace(&mut self.heap[place].0, ns);
        match ns < before {
            true => self.rise(place),
            false => self.sink(place),
        }
    }

    /// Forgets the moment of `index`, if there is one.
    pub(super) fn clear(&mut self, index: u32) {
        let place = std::mem::replace(&mut self.places[index as usize], NONE);
        if place == NONE {
            return;
        }
        let place = place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // What came from the end may belong on either side.
            self.rise(place);
            self.sink(place);
        }
    }

    /// The earliest moment.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|first| first.0)
    }

    /// Takes out one that has come, the earliest first.
    pub(super) fn expired(&mut self, now_ns: u64) -> Option<u32> {
        let (ns, index) = *self.heap.first()?;
        (ns <= now_ns).then(|| self.clear(index))?;
        Some(index)
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above].0 <= self.heap[place].0 {
                break;
            }
            self.swap(place, above);
            place = above;
        }
        self.note(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = 2 * place + 1;
            let Some(left) = self.heap.get(below) else {
                break;
            };
            let right = self.heap.get(below + 1);
            let smaller = below + usize::from(right.is_some_and(|right| right.0 < left.0));
            if self.heap[place].0 <= self.heap[smaller].0 {
                break;
            }
            self.swap(place, smaller);
            place = smaller;
        }
        self.note(place);
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.note(one);
        self.note(other);
    }

    fn note(&mut self, place: usize) {
        let index = self.heap[place].1;
        self.places[index as usize] = place as u32;
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
