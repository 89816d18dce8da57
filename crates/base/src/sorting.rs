//! Sorting and sorted collections in little code, for what is short and sorted seldom.
//!
//! The standard library's `sort_by`, and `collect` into a `BTreeMap`, which sorts first, are some 5 KB of
//! code for each type and order. Here one sort of indices serves all of them; only the comparison and the
//! moving are of the type. It takes an index of memory for each item, and a call for each comparison.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts by an order. What is equal stays in its order.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let order = sorted_indices(items.len(), &mut |one, other| {
        compare(&items[one], &items[other])
    });
    for (place, from) in to_swaps(order).into_iter().enumerate() {
        items.swap(place, from);
    }
}

/// Sorts by what is computed of each item. What is equal stays in its order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Sorts. What is equal stays in its order.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// A map of pairs. Of pairs with the same key the last one counts.
pub fn to_map<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(pairs);
    map
}

/// A set of items.
pub fn to_set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

fn sorted_indices(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|one, other| compare(*one, *other));
    order
}

/// From where each place gets its item, in terms of swaps made one after the other.
fn to_swaps(mut order: Vec<usize>) -> Vec<usize> {
    for place in 0..order.len() {
        let mut from = order[place];
        while from < place {
            from = order[from]; // the item that was there was swapped away, to where it is now
        }
        order[place] = from;
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_and_one_are_sorted() {
        let mut none: [u8; 0] = [];
        sort(&mut none);
        let mut one = ["a".to_owned()];
        sort(&mut one);
        assert_eq!(one, ["a"]);
    }

    #[test]
    fn of_the_same_keys_the_last_one_counts() {
        let pairs = [(2, 'a'), (1, 'b'), (2, 'c')];
        assert_eq!(to_map(pairs), BTreeMap::from(pairs));
        assert_eq!(to_set([3, 1, 3]), BTreeSet::from([1, 3]));
    }

    proptest! {
        #[test]
        fn it_is_the_stable_order_of_the_standard_library(
            items in proptest::collection::vec((0_u8..20, any::<u16>()), 0..300),
        ) {
            let mut expected = items.clone();
            expected.sort_by_key(|item| std::cmp::Reverse(item.0));
            let mut found = items;
            sort_by_key(&mut found, |item| std::cmp::Reverse(item.0));
            prop_assert_eq!(found, expected);
        }
    }
}
