//! Slots for connections: reused, found by token, blind to tokens of earlier connections.
//!
//! Every operation is O(1). Memory grows by doubling and is never given back: a server that once
//! held many connections will hold many again.

use crate::Token;

/// "No slot": the end of the list of vacant ones.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Entry<T> {
    Vacant { next: u32 },
    Occupied(T),
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Entry<T>,
}

/// Values in slots, each known by the token that its insertion gave.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// Bytes that one slot takes, its bookkeeping included.
    pub const SLOT_BYTES: usize = size_of::<Slot<T>>();

    /// An empty slab.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            vacant: NONE,
            len: 0,
        }
    }

    /// Puts `value` into the slot that was left last, or into a new one.
    ///
    /// # Panics
    /// If 2^32 - 1 slots are taken.
    pub fn insert(&mut self, value: T) -> Token {
        self.len += 1;
        let index = self.vacant;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            let Entry::Vacant { next } = slot.entry else {
                unreachable!("a taken slot in the list of vacant ones");
            };
            self.vacant = next;
            slot.entry = Entry::Occupied(value);
            return Token {
                index,
                generation: slot.generation,
            };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
        assert_ne!(index, NONE, "no more than 2^32 - 1 slots");
        let generation = 0;
        self.slots.push(Slot {
            generation,
            entry: Entry::Occupied(value),
        });
        Token { index, generation }
    }

    /// Takes the value out; from then on its token misses.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation || matches!(slot.entry, Entry::Vacant { .. }) {
            return None;
        }
        let vacant = Entry::Vacant { next: self.vacant };
        let Entry::Occupied(value) = std::mem::replace(&mut slot.entry, vacant) else {
            unreachable!("checked above");
        };
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant = token.index;
        self.len -= 1;
        Some(value)
    }

    /// The value of this token, if its slot has no later value.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        match &mut slot.entry {
            Entry::Occupied(value) if slot.generation == token.generation => Some(value),
            _ => None,
        }
    }

    /// The value of this token, if its slot has no later value.
    #[must_use]
    #[inline]
    pub fn get(&self, token: Token) -> Option<&T> {
        let slot = self.slots.get(token.index as usize)?;
        match &slot.entry {
            Entry::Occupied(value) if slot.generation == token.generation => Some(value),
            _ => None,
        }
    }

    /// The token of whoever is in the slot `index` now.
    #[must_use]
    pub fn token_at(&self, index: usize) -> Option<Token> {
        let slot = self.slots.get(index)?;
        let generation = slot.generation;
        let index = index as u32;
        matches!(slot.entry, Entry::Occupied(_)).then_some(Token { index, generation })
    }

    /// Slots, taken or not; indexes below this are worth asking `token_at` for.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Values in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slot_is_reused_and_the_earlier_token_misses() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index, first.index);
        assert_ne!(second, first);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!((slab.len(), slab.slot_count()), (1, 1));
        assert_eq!(slab.token_at(0), Some(second));
    }

    #[test]
    fn a_token_survives_its_bits() {
        let mut slab = Slab::new();
        let token = slab.insert(1);
        slab.remove(token);
        let token = slab.insert(2);
        assert_eq!(slab.get(Token::from_bits(token.to_bits())), Some(&2));
    }

    #[test]
    fn tokens_that_never_were_miss() {
        let mut slab: Slab<u8> = Slab::new();
        let token = Token {
            index: 7,
            generation: 0,
        };
        assert_eq!(slab.get(token), None);
        assert_eq!(slab.remove(token), None);
        assert_eq!(slab.token_at(usize::MAX), None);
    }

    proptest! {
        /// Against a map: what was put in is found, what was taken out is not, ever again.
        #[test]
        fn behaves_like_a_map(operations in prop::collection::vec((any::<bool>(), any::<u16>()), 0..400)) {
            let mut slab = Slab::new();
            let mut model: HashMap<u64, u16> = HashMap::new();
            let mut known: Vec<Token> = Vec::new();
            for (insert, number) in operations {
                if insert || known.is_empty() {
                    let token = slab.insert(number);
                    prop_assert!(model.insert(token.to_bits(), number).is_none(), "token given twice");
                    known.push(token);
                } else {
                    let token = known[usize::from(number) % known.len()];
                    prop_assert_eq!(slab.remove(token), model.remove(&token.to_bits()));
                }
                prop_assert_eq!(slab.len(), model.len());
                for token in &known {
                    prop_assert_eq!(slab.get(*token), model.get(&token.to_bits()));
                }
            }
            let present = (0..slab.slot_count()).filter_map(|index| slab.token_at(index)).count();
            prop_assert_eq!(present, model.len());
        }
    }
}
