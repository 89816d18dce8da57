//! An order of slots: a doubly linked list of indexes, O(1) at every end and in the middle.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
}

/// Marks an index that is not in the list: it points to itself, which no member does.
const fn outside(index: u32) -> Links {
    Links {
        previous: index,
        next: index,
    }
}

/// Indexes in the order they were put in, each at most once. Used for "idle the longest first".
#[derive(Debug)]
pub struct IndexList {
    links: Vec<Links>,
    first: u32,
    last: u32,
}

impl Default for IndexList {
    fn default() -> Self {
        Self::new()
    }
}

impl IndexList {
    /// Bytes that the list keeps for each slot.
    pub const NODE_BYTES: usize = size_of::<Links>();

    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            links: Vec::new(),
            first: NONE,
            last: NONE,
        }
    }

    /// Puts `index` at the end, from wherever it was.
    #[inline]
    pub fn push_last(&mut self, index: u32) {
        if self.last == index {
            return;
        }
        if index as usize >= self.links.len() {
            let known = self.links.len() as u32;
            self.links.extend((known..=index).map(outside));
        }
        self.remove(index);
        self.links[index as usize] = Links {
            previous: self.last,
            next: NONE,
        };
        match self.last {
            NONE => self.first = index,
            last => self.links[last as usize].next = index,
        }
        self.last = index;
    }

    /// Takes `index` out, if it is in.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        let Some(links) = self.links.get_mut(index as usize) else {
            return;
        };
        if links.next == index {
            return;
        }
        let Links { previous, next } = std::mem::replace(links, outside(index));
        match previous {
            NONE => self.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.links[next as usize].previous = previous,
        }
    }

    /// Whether `index` is in.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        let links = self.links.get(index as usize);
        links.is_some_and(|links| links.next != index)
    }

    /// The index that was put in first of those that are in.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_in_comes_first() {
        let mut list = IndexList::new();
        for index in [4, 0, 2, 4] {
            list.push_last(index);
        }
        assert_eq!(list.first(), Some(0));
        list.remove(0);
        list.remove(0);
        list.remove(9);
        assert_eq!(list.first(), Some(2));
        list.remove(2);
        assert_eq!(list.first(), Some(4));
        list.remove(4);
        assert_eq!(list.first(), None);
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(operations in prop::collection::vec((any::<bool>(), 0u32..12), 0..300)) {
            let mut list = IndexList::new();
            let mut model: Vec<u32> = Vec::new();
            for (push, index) in operations {
                model.retain(|other| *other != index);
                if push {
                    model.push(index);
                    list.push_last(index);
                } else {
                    list.remove(index);
                }
                prop_assert_eq!(list.first(), model.first().copied());
                prop_assert_eq!(list.last, model.last().copied().unwrap_or(NONE));
            }
        }
    }
}
