//! How busy each loop is, by its own reports, and which of them a new connection should go to.
//!
//! A loop writes, whoever hands connections over reads. Nothing here is exact to the microsecond,
//! and need not be: a choice is made for a connection that will live much longer.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use loadline_base::Millis;

use crate::options::Balance;

/// The span that counts for "busy": the last 100 ms.
const WINDOW_US: u64 = 100_000;
/// The window is kept in pieces of 12.5 ms.
const PIECE_US: u64 = WINDOW_US / 8;
/// Pieces kept: those of the window, and the one that is being filled.
const PIECES: usize = 9;

/// What a request that is queued or running weighs beside busy time: as much as 1 ms of it. A loop
/// that is busy all the time weighs as much as one with a hundred requests under way.
const REQUEST_WEIGHT_US: u64 = 1000;

/// How much one loop has to do.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Load {
    /// Connections it has, those on their way to it included.
    pub(crate) connections: AtomicUsize,
    /// Requests at workers, and new connections on their way: each will want something soon.
    pub(crate) under_way: AtomicUsize,
    /// Events of this turn that have not been handled yet.
    pub(crate) ready: AtomicUsize,
    /// Since when its oldest idle connection is idle, in milliseconds; `NOBODY_IDLE` if none is.
    oldest_idle_ms: AtomicU64,
    /// When the present turn began, in microseconds plus one; 0 while it waits.
    turn_began: AtomicU64,
    /// Busy time by piece: number of the piece (upper half) and microseconds in it.
    pieces: [AtomicU64; PIECES],
}

const NOBODY_IDLE: u64 = 0; // so that a fresh `Load` is right; times are kept plus one

impl Load {
    /// The loop begins a turn after waiting.
    pub(crate) fn turn_begins(&self, now_us: u64) {
        self.turn_began.store(now_us + 1, Relaxed);
    }

    /// The loop is about to wait again.
    pub(crate) fn turn_ends(&self, began_us: u64, now_us: u64) {
        self.turn_began.store(0, Relaxed);
        // What is older than the window would be overwritten at once.
        let mut from = began_us.max(now_us.saturating_sub(WINDOW_US));
        while from < now_us {
            let number = from / PIECE_US;
            let until = now_us.min((number + 1) * PIECE_US);
            let piece = &self.pieces[number as usize % PIECES];
            let (of, busy_us) = unpack(piece.load(Relaxed));
            let before = if of == number { busy_us } else { 0 };
            piece.store(pack(number, before + (until - from)), Relaxed);
            from = until;
        }
    }

    /// Microseconds of the last 100 ms that the loop was not waiting.
    pub(crate) fn busy_us(&self, now_us: u64) -> u64 {
        let newest = now_us / PIECE_US;
        let finished: u64 = self
            .pieces
            .iter()
            .map(|piece| unpack(piece.load(Relaxed)))
            .filter(|(number, _)| *number <= newest && number + PIECES as u64 > newest)
            .map(|(_, busy_us)| busy_us)
            .sum();
        (finished + self.turn_us(now_us)).min(WINDOW_US)
    }

    /// How long the present turn has lasted; 0 while the loop waits.
    pub(crate) fn turn_us(&self, now_us: u64) -> u64 {
        match self.turn_began.load(Relaxed) {
            0 => 0,
            began => now_us.saturating_sub(began - 1),
        }
    }

    /// Says since when the oldest idle connection is idle.
    pub(crate) fn set_oldest_idle(&self, since: Option<Millis>) {
        let ms = since.map_or(NOBODY_IDLE, |since| since.0 + 1);
        if self.oldest_idle_ms.load(Relaxed) != ms {
            self.oldest_idle_ms.store(ms, Relaxed);
        }
    }

    fn oldest_idle(&self) -> Option<u64> {
        match self.oldest_idle_ms.load(Relaxed) {
            NOBODY_IDLE => None,
            since => Some(since),
        }
    }

    fn weight(&self, now_us: u64) -> u64 {
        let requests = self.under_way.load(Relaxed) + self.ready.load(Relaxed);
        self.busy_us(now_us) + requests as u64 * REQUEST_WEIGHT_US
    }
}

fn pack(number: u64, busy_us: u64) -> u64 {
    number << 16 | busy_us.min(0xffff)
}

fn unpack(piece: u64) -> (u64, u64) {
    (piece >> 16, piece & 0xffff)
}

/// Chooses the loop for a new connection; remembers where it left off.
#[derive(Debug)]
pub(crate) struct Balancer {
    balance: Balance,
    next: usize,
}

impl Balancer {
    pub(crate) fn new(balance: Balance) -> Self {
        Self { balance, next: 0 }
    }

    /// The index of the loop that the next new connection goes to. Of equals, each in turn.
    pub(crate) fn choose<'l>(
        &mut self,
        loads: impl ExactSizeIterator<Item = &'l Load>,
        now_us: impl Fn() -> u64,
    ) -> usize {
        let count = loads.len();
        let turn = self.next;
        self.next = (turn + 1) % count;
        let now_us = match self.balance {
            Balance::RoundRobin => return turn % count,
            // With several loops `adaptive.rs` chooses.
            Balance::LeastConnections | Balance::Adaptive => 0,
            Balance::LeastBusy => now_us(),
        };
        let key = |load: &Load| {
            let connections = load.connections.load(Relaxed);
            match self.balance {
                Balance::LeastBusy => (load.weight(now_us), connections),
                Balance::LeastConnections | Balance::Adaptive | Balance::RoundRobin => {
                    (connections as u64, 0)
                }
            }
        };
        let order = |(index, load): (usize, &'l Load)| {
            (key(load), (index + count - turn % count) % count, index)
        };
        let best = loads.enumerate().map(order).min();
        best.map_or(0, |(_, _, index)| index)
    }
}

/// The index of the loop whose oldest idle connection is idle the longest; `None` if nobody has one.
pub(crate) fn oldest_idle<'l>(loads: impl Iterator<Item = &'l Load>) -> Option<usize> {
    let idle = loads
        .enumerate()
        .filter_map(|(index, load)| Some((load.oldest_idle()?, index)));
    idle.min().map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(count: usize) -> Vec<Load> {
        (0..count).map(|_| Load::default()).collect()
    }

    fn choices(balance: Balance, loads: &[Load], times: usize) -> Vec<usize> {
        let mut balancer = Balancer::new(balance);
        (0..times)
            .map(|_| balancer.choose(loads.iter(), || 1_000_000))
            .collect()
    }

    #[test]
    fn busy_time_is_that_of_the_last_100_ms() {
        let load = Load::default();
        assert_eq!(load.busy_us(0), 0);
        load.turn_begins(1_000_000);
        assert_eq!(
            load.busy_us(1_030_000),
            30_000,
            "a turn that has not ended counts"
        );
        load.turn_ends(1_000_000, 1_040_000);
        assert_eq!(load.busy_us(1_040_000), 40_000);
        assert_eq!(load.busy_us(1_100_000), 40_000);
        let later = load.busy_us(1_120_000);
        assert!((10_000..=40_000).contains(&later), "{later}");
        assert_eq!(load.busy_us(1_160_000), 0);
        assert_eq!(load.busy_us(9_000_000), 0);
    }

    #[test]
    fn no_turn_weighs_more_than_the_window() {
        let load = Load::default();
        load.turn_begins(0);
        assert_eq!(load.busy_us(5_000_000), WINDOW_US);
        load.turn_ends(0, 5_000_000);
        assert_eq!(load.busy_us(5_000_000), WINDOW_US);
    }

    #[test]
    fn many_short_turns_add_up() {
        let load = Load::default();
        for turn in 0..2000 {
            load.turn_ends(turn * 100, turn * 100 + 25);
        }
        let busy_us = load.busy_us(200_000);
        assert!(
            (20_000..=30_000).contains(&busy_us),
            "a quarter of the time: {busy_us}"
        );
    }

    #[test]
    fn round_robin_takes_each_in_turn() {
        assert_eq!(choices(Balance::RoundRobin, &loads(3), 5), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn least_connections_counts() {
        let loads = loads(3);
        for (load, connections) in loads.iter().zip([5, 2, 9]) {
            load.connections.store(connections, Relaxed);
        }
        assert_eq!(choices(Balance::LeastConnections, &loads, 3), [1, 1, 1]);
    }

    #[test]
    fn of_equals_each_in_turn() {
        for balance in [Balance::LeastConnections, Balance::LeastBusy] {
            assert_eq!(choices(balance, &loads(3), 4), [0, 1, 2, 0]);
        }
    }

    #[test]
    fn ten_busy_connections_weigh_more_than_two_hundred_idle_ones() {
        let loads = loads(2);
        loads[0].connections.store(10, Relaxed);
        loads[0].turn_begins(900_000);
        loads[1].connections.store(200, Relaxed);
        assert_eq!(choices(Balance::LeastBusy, &loads, 20), [1; 20]);
        assert_eq!(choices(Balance::LeastConnections, &loads, 20), [0; 20]);
    }

    #[test]
    fn requests_at_workers_weigh_as_well() {
        let loads = loads(2);
        loads[0].under_way.store(3, Relaxed);
        loads[1].ready.store(1, Relaxed);
        assert_eq!(choices(Balance::LeastBusy, &loads, 4), [1; 4]);
    }

    #[test]
    fn the_longest_idle_is_found_over_all_loops() {
        let loads = loads(3);
        assert_eq!(oldest_idle(loads.iter()), None);
        loads[1].set_oldest_idle(Some(Millis(70)));
        loads[2].set_oldest_idle(Some(Millis(0)));
        assert_eq!(oldest_idle(loads.iter()), Some(2));
        loads[2].set_oldest_idle(None);
        assert_eq!(oldest_idle(loads.iter()), Some(1));
    }
}
