//! Deadlines of connections, one each, O(1): a wheel of lists that is lazily re-armed.
//!
//! The wheel fires no earlier than asked and at most one tick late. It is not notified when a deadline
//! moves later, which is what most deadlines do with every request: when it fires, its owner asks
//! the connection for its real deadline and arms again. Only a deadline that moves earlier than the
//! armed tick changes a list at once.
//!
//! ```text
//!   cursor
//!     ▼
//!   [ ][ ][•][ ] ... [•]        2048 lists, one for each tick of 16 ms: a turn takes 32 s
//!          │          │         later deadlines wait in the last list and are armed again
//!        9 ⇄ 4       2          lists of connection indexes, linked through `nodes`
//! ```

use crate::{Millis, Token};

/// Milliseconds of a tick, as a power of two: 16 ms. Deadlines of connections are seconds.
const TICK_SHIFT: u32 = 4;
/// Lists of the wheel.
const LISTS: usize = 2048;
/// The longest way ahead that has a list of its own; the list under the cursor is being emptied.
const TICKS_AHEAD_MAX: u64 = LISTS as u64 - 1;
/// "No connection": the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    previous: u32,
    next: u32,
    generation: u32,
    /// The list it is in; `NONE` if in none.
    list: u32,
}

const UNARMED: Node = Node {
    previous: NONE,
    next: NONE,
    generation: 0,
    list: NONE,
};

/// Deadlines by token, at most one for each slot index.
#[derive(Debug)]
pub struct TimerWheel {
    nodes: Vec<Node>,
    heads: Box<[u32; LISTS]>,
    /// A bit for each list that is not empty.
    occupied: [u64; LISTS / 64],
    /// The tick whose list is next to be emptied; every earlier list is empty.
    cursor: u64,
    armed: usize,
}

impl TimerWheel {
    /// Bytes that the wheel keeps for each slot.
    pub const NODE_BYTES: usize = size_of::<Node>();

    /// An empty wheel that begins at `now`.
    #[must_use]
    pub fn new(now: Millis) -> Self {
        Self {
            nodes: Vec::new(),
            heads: Box::new([NONE; LISTS]),
            occupied: [0; LISTS / 64],
            cursor: now.0 >> TICK_SHIFT,
            armed: 0,
        }
    }

    /// Sees to it that the token fires at the first tick after `deadline`, or earlier if it is
    /// armed for earlier. A token of a later generation replaces the earlier one.
    #[inline]
    pub fn arm(&mut self, token: Token, deadline: Millis) {
        let index = token.index as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, UNARMED);
        }
        // Rounded up: not before the deadline.
        let tick = deadline.0.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT;
        let ahead = tick.saturating_sub(self.cursor).min(TICKS_AHEAD_MAX);
        let node = self.nodes[index];
        if node.list != NONE {
            if node.generation == token.generation && self.ticks_ahead(node.list) <= ahead {
                return;
            }
            self.unlink(index);
        }
        self.link(index, token.generation, self.cursor + ahead);
    }

    /// Forgets the deadline of this token.
    pub fn disarm(&mut self, token: Token) {
        let index = token.index as usize;
        if let Some(node) = self.nodes.get(index)
            && node.list != NONE
            && node.generation == token.generation
        {
            self.unlink(index);
        }
    }

    /// Takes out one token whose tick has come; to be called until `None`. Each may be armed again
    /// at once: with a deadline that is not over it is not taken out again in this round.
    pub fn expired(&mut self, now: Millis) -> Option<Token> {
        let tick_now = now.0 >> TICK_SHIFT;
        while self.cursor <= tick_now {
            if self.armed == 0 {
                self.cursor = tick_now + 1;
                return None;
            }
            let head = self.heads[(self.cursor % LISTS as u64) as usize];
            if head != NONE {
                let generation = self.nodes[head as usize].generation;
                self.unlink(head as usize);
                return Some(Token {
                    index: head,
                    generation,
                });
            }
            self.cursor = (self.cursor + self.ticks_to_next_list(1)).min(tick_now + 1);
        }
        None
    }

    /// Milliseconds until the next tick at which something may fire; `None` if nothing is armed.
    #[must_use]
    pub fn wait_ms(&self, now: Millis) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        let tick = self.cursor + self.ticks_to_next_list(0);
        Some((tick << TICK_SHIFT).saturating_sub(now.0))
    }

    /// Tokens that are armed.
    #[must_use]
    pub fn armed_count(&self) -> usize {
        self.armed
    }

    fn link(&mut self, index: usize, generation: u32, tick: u64) {
        let list = (tick % LISTS as u64) as usize;
        let next = self.heads[list];
        if next != NONE {
            self.nodes[next as usize].previous = index as u32;
        }
        self.nodes[index] = Node {
            previous: NONE,
            next,
            generation,
            list: list as u32,
        };
        self.heads[list] = index as u32;
        self.occupied[list / 64] |= 1 << (list % 64);
        self.armed += 1;
    }

    fn unlink(&mut self, index: usize) {
        let node = std::mem::replace(&mut self.nodes[index], UNARMED);
        let list = node.list as usize;
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if node.previous != NONE {
            self.nodes[node.previous as usize].next = node.next;
        } else {
            self.heads[list] = node.next;
            if node.next == NONE {
                self.occupied[list / 64] &= !(1 << (list % 64));
            }
        }
        self.armed -= 1;
    }

    /// Ticks from the cursor to a list.
    fn ticks_ahead(&self, list: u32) -> u64 {
        (u64::from(list) + LISTS as u64 - self.cursor % LISTS as u64) % LISTS as u64
    }

    /// Ticks from the cursor to the first list, `from` or more ticks ahead, that is not empty: a
    /// few dozen words at most are looked at. A whole turn if there is none.
    fn ticks_to_next_list(&self, from: u64) -> u64 {
        let start = ((self.cursor + from) % LISTS as u64) as usize;
        let words = self.occupied.len();
        for step in 0..=words {
            let at = (start / 64 + step) % words;
            let mut word = self.occupied[at];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            if word != 0 {
                return from
                    + ((at * 64 + LISTS + word.trailing_zeros() as usize - start) % LISTS) as u64;
            }
        }
        LISTS as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn token(index: u32) -> Token {
        Token {
            index,
            generation: 0,
        }
    }

    fn fired(wheel: &mut TimerWheel, now: u64) -> Vec<u32> {
        let mut indexes: Vec<u32> =
            std::iter::from_fn(|| wheel.expired(Millis(now)).map(|t| t.index)).collect();
        indexes.sort_unstable();
        indexes
    }

    #[test]
    fn fires_at_the_first_tick_after_the_deadline() {
        let mut wheel = TimerWheel::new(Millis(1000));
        assert_eq!(wheel.wait_ms(Millis(1000)), None);
        wheel.arm(token(3), Millis(6000));
        assert_eq!(wheel.wait_ms(Millis(1000)), Some(5000));
        assert!(fired(&mut wheel, 5999).is_empty());
        assert_eq!(wheel.wait_ms(Millis(5999)), Some(1));
        assert_eq!(fired(&mut wheel, 6000), [3]);
        assert_eq!(wheel.wait_ms(Millis(6000)), None);
        wheel.arm(token(3), Millis(6001));
        assert_eq!(wheel.wait_ms(Millis(6000)), Some(16));
    }

    #[test]
    fn earlier_moves_at_once_later_does_not() {
        let mut wheel = TimerWheel::new(Millis(0));
        wheel.arm(token(0), Millis(15_008));
        wheel.arm(token(0), Millis(5008));
        assert_eq!(wheel.wait_ms(Millis(0)), Some(5008));
        wheel.arm(token(0), Millis(20_000));
        assert_eq!(
            (wheel.wait_ms(Millis(0)), wheel.armed_count()),
            (Some(5008), 1)
        );
    }

    #[test]
    fn a_deadline_beyond_the_turn_fires_early_to_be_armed_again() {
        let mut wheel = TimerWheel::new(Millis(0));
        wheel.arm(token(1), Millis(u64::MAX));
        let first = wheel.wait_ms(Millis(0)).unwrap();
        assert_eq!(first, 2047 * 16);
        assert_eq!(fired(&mut wheel, first), [1]);
        wheel.arm(token(1), Millis(u64::MAX));
        assert_eq!(wheel.wait_ms(Millis(first)), Some(2047 * 16 + 16));
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_call() {
        let mut wheel = TimerWheel::new(Millis(0));
        assert!(fired(&mut wheel, 10_000).is_empty());
        wheel.arm(token(1), Millis(50));
        assert_eq!(fired(&mut wheel, 10_016), [1]);
    }

    #[test]
    fn armed_again_while_firing_does_not_loop() {
        let mut wheel = TimerWheel::new(Millis(0));
        wheel.arm(token(1), Millis(16));
        let mut rounds = 0;
        while let Some(again) = wheel.expired(Millis(5000)) {
            wheel.arm(again, Millis(5001));
            rounds += 1;
            assert!(rounds < 10);
        }
        assert_eq!(fired(&mut wheel, 5016), [1]);
    }

    #[test]
    fn disarming_heeds_the_generation() {
        let mut wheel = TimerWheel::new(Millis(0));
        let later = Token {
            index: 1,
            generation: 5,
        };
        wheel.arm(token(1), Millis(100));
        wheel.arm(later, Millis(200));
        wheel.disarm(token(1));
        assert_eq!(
            (wheel.armed_count(), wheel.wait_ms(Millis(0))),
            (1, Some(208))
        );
        wheel.disarm(later);
        assert_eq!(wheel.armed_count(), 0);
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Arm(u32, u64),
        Disarm(u32),
        Pass(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0u32..20, 0u64..80_000).prop_map(|(index, ms)| Operation::Arm(index, ms)),
            1 => (0u32..20).prop_map(Operation::Disarm),
            3 => prop_oneof![0u64..100, 0u64..50_000].prop_map(Operation::Pass),
        ]
    }

    proptest! {
        /// The real deadlines in a map, the wheel re-armed as a loop does it: everything expires in
        /// the round after its deadline, nothing before, and no sleep is longer than it may be.
        #[test]
        fn behaves_like_a_map_of_deadlines(operations in prop::collection::vec(operation(), 1..200)) {
            let mut now = 777;
            let mut wheel = TimerWheel::new(Millis(now));
            let mut real: BTreeMap<u32, u64> = BTreeMap::new();
            for operation in operations {
                match operation {
                    Operation::Arm(index, ms) => {
                        real.insert(index, now + ms);
                        wheel.arm(token(index), Millis(now + ms));
                    }
                    Operation::Disarm(index) => {
                        real.remove(&index);
                        wheel.disarm(token(index));
                    }
                    Operation::Pass(ms) => now += ms,
                }
                if let Some(earliest) = real.values().min() {
                    let wait = wheel.wait_ms(Millis(now));
                    prop_assert!(wait.is_some_and(|ms| now + ms <= earliest.max(&now) + 16));
                }
                let mut due = Vec::new();
                while let Some(fired) = wheel.expired(Millis(now)) {
                    let deadline = real[&fired.index];
                    if deadline <= now {
                        real.remove(&fired.index);
                        due.push(fired.index);
                    } else {
                        wheel.arm(fired, Millis(deadline));
                    }
                }
                // One tick late at most: deadlines that passed before that have fired.
                prop_assert!(real.values().all(|deadline| deadline + 16 > now), "{real:?} at {now}");
                prop_assert_eq!(wheel.armed_count(), real.len());
            }
        }
    }
}
