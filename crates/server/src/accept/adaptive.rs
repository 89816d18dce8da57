//! `--balance adaptive`: where loops report what they and their connections cost, and where it is decided
//! which connections move. The decision itself is pure (`loadline_capacity::balance`).
//!
//! Time is divided into intervals, the same for all loops. A loop reports with its first turn in an
//! interval what came since its last report, and whoever ends a turn in the second half of the interval
//! first decides for all. A loop that sleeps reports nothing: it has nothing to do.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use loadline_capacity::balance::{Balancer, INTERVAL_MS, LoopMeasured, Move, TOP};

use super::balance::Load;

pub(crate) const INTERVAL_US: u64 = INTERVAL_MS * 1000;

/// Costs of connections that one loop has reported and that wait for the next decision, at most.
const COSTS_MAX: usize = 4 * TOP;

/// Where all loops report.
#[derive(Debug)]
pub(crate) struct Adaptive {
    /// When the next decision is due.
    due_us: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    balancer: Balancer,
    /// What each loop has reported since the last decision.
    measured: Vec<LoopMeasured>,
    decided_us: u64,
}

/// The first moment of the next interval.
pub(crate) fn next_interval(now_us: u64) -> u64 {
    (now_us / INTERVAL_US + 1) * INTERVAL_US
}

impl Adaptive {
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            due_us: AtomicU64::new(INTERVAL_US / 2),
            state: Mutex::new(State {
                balancer: Balancer::new(loops),
                measured: vec![LoopMeasured::default(); loops],
                decided_us: 0,
            }),
        }
    }

    /// Adds what a loop did since its last report.
    pub(crate) fn report(&self, index: usize, new: &LoopMeasured) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = &mut state.measured[index];
        sum.busy_us += new.busy_us;
        sum.cpu_us += new.cpu_us;
        sum.handled += new.handled;
        sum.ready = new.ready;
        let room = COSTS_MAX.saturating_sub(sum.top.len());
        sum.top.extend(new.top.iter().take(room));
    }

    /// Decides what moves, if it is time to, and nobody does so now.
    #[inline]
    pub(crate) fn decide<'l>(
        &self,
        now_us: u64,
        loads: impl Iterator<Item = &'l Load>,
    ) -> Vec<Move> {
        match now_us < self.due_us.load(Relaxed) {
            true => Vec::new(),
            false => self.decide_now(now_us, loads),
        }
    }

    #[cold]
    fn decide_now<'l>(&self, now_us: u64, loads: impl Iterator<Item = &'l Load>) -> Vec<Move> {
        let Ok(mut state) = self.state.try_lock() else {
            return Vec::new();
        };
        if now_us < self.due_us.load(Relaxed) {
            return Vec::new(); // another loop has just decided
        }
        let due_us = next_interval(now_us) + INTERVAL_US / 2;
        self.due_us.store(due_us, Relaxed);
        let State {
            balancer,
            measured,
            decided_us,
        } = &mut *state;
        let interval_us = now_us.saturating_sub(std::mem::replace(decided_us, now_us));
        for (one, load) in measured.iter_mut().zip(loads) {
            one.connections = load.connections.load(Relaxed);
            complete(one, load.turn_us(now_us), interval_us);
        }
        let decision = balancer.decide(interval_us, measured);
        for one in measured {
            *one = LoopMeasured {
                top: std::mem::take(&mut one.top),
                ..LoopMeasured::default()
            };
            one.top.clear();
        }
        decision.moves
    }

    /// The loop that a new connection goes to.
    pub(crate) fn place(&self) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.balancer.place()
    }

    /// The loop that a new connection goes to which loop `own` has accepted, if that has noticeably more
    /// to do than another one.
    pub(crate) fn place_elsewhere(&self, own: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.balancer.place_elsewhere(own)
    }
}

/// A turn that has not ended is in no report; a long one is reported in one interval, though it has
/// filled several.
fn complete(measured: &mut LoopMeasured, turn_us: u64, interval_us: u64) {
    if measured.handled == 0 && turn_us > 0 {
        measured.busy_us += turn_us;
        measured.cpu_us += turn_us;
    }
    if measured.busy_us > interval_us {
        let share = interval_us as f64 / measured.busy_us as f64;
        measured.cpu_us = (measured.cpu_us as f64 * share) as u64;
        measured.busy_us = interval_us;
    }
}

#[cfg(test)]
mod tests {
    use loadline_capacity::balance::ConnectionCost;

    use super::*;

    fn busy(busy_us: u64, costs: &[(u64, u64)]) -> LoopMeasured {
        let cost = |(connection, cpu_us): &(u64, u64)| ConnectionCost {
            connection: *connection,
            cpu_us: *cpu_us,
        };
        LoopMeasured {
            busy_us,
            cpu_us: busy_us,
            handled: 100,
            top: costs.iter().map(cost).collect(),
            ..LoopMeasured::default()
        }
    }

    /// Two loops, the first with two expensive connections: what is decided in so many intervals, and
    /// carried out.
    fn moves(intervals: u64) -> Vec<Move> {
        let adaptive = Adaptive::new(2);
        let loads = [Load::default(), Load::default()];
        let mut connections = [(7, 40_000, 0), (8, 38_000, 0), (9, 2_000, 1)];
        let mut moves = Vec::new();
        for interval in 1..=intervals {
            let now_us = interval * INTERVAL_US;
            for index in 0..2 {
                let here = connections.iter().filter(|it| it.2 == index);
                let costs: Vec<_> = here.map(|it| (it.0, it.1)).collect();
                adaptive.report(index, &busy(costs.iter().map(|it| it.1).sum(), &costs));
            }
            let decided_us = now_us + INTERVAL_US / 2;
            assert_eq!(adaptive.decide(now_us + 10, loads.iter()), []);
            let decided = adaptive.decide(decided_us, loads.iter());
            assert_eq!(adaptive.decide(decided_us + 1, loads.iter()), []);
            for one in &decided {
                let named = connections.iter_mut().find(|it| it.0 == one.connection);
                named.unwrap().2 = one.to;
            }
            moves.extend(decided);
        }
        moves
    }

    #[test]
    fn one_of_two_expensive_connections_moves_once() {
        let moves = moves(20);
        let named: Vec<_> = moves
            .iter()
            .map(|it| (it.connection, it.from, it.to))
            .collect();
        assert!(matches!(named[..], [(7 | 8, 0, 1)]), "{named:?}");
    }

    #[test]
    fn a_long_turn_counts_while_it_lasts_and_fills_no_more_than_an_interval() {
        let mut none = LoopMeasured::default();
        complete(&mut none, 70_000, 100_000);
        assert_eq!((none.busy_us, none.cpu_us), (70_000, 70_000));
        let mut long = busy(400_000, &[]);
        long.cpu_us = 200_000;
        complete(&mut long, 0, 100_000);
        assert_eq!((long.busy_us, long.cpu_us), (100_000, 50_000));
    }

    #[test]
    fn a_loop_that_is_busy_passes_new_connections_on() {
        let adaptive = Adaptive::new(2);
        let loads = [Load::default(), Load::default()];
        loads[0].connections.store(10, Relaxed);
        assert_eq!(adaptive.place_elsewhere(0), None);
        for interval in 1..20 {
            adaptive.report(0, &busy(70_000, &[]));
            adaptive.decide(interval * INTERVAL_US + INTERVAL_US / 2, loads.iter());
        }
        assert_eq!(adaptive.place_elsewhere(0), Some(1));
        assert_eq!(adaptive.place_elsewhere(1), None);
        assert_eq!(adaptive.place(), 1);
    }
}
