//! Which event loop a new connection goes to, and which connections move to another one, from what
//! loops and connections cost as they run. Pure: it takes in what was measured in an interval, and
//! answers with loops and moves.
//!
//! ```text
//!   loop 0  ██████████████████  0.93        a connection that costs about half of the
//!   loop 1  ███████████         0.55   ◄──  difference moves from the busiest loop to
//!   loop 2  ████████            0.41   ◄──  the least busy one; then the same again
//! ```
//!
//! A loop's load is the share of its time that it needs: busy time by the wall clock, and the work
//! that waits. A loop whose CPU is shared with others needs more time for the same work, so a
//! connection costs more there; CPU time over busy time says how much.
//!
//! Nothing moves back and forth:
//!
//! - Loads are means over about half a second, and a move counts in them at once.
//! - The difference has to exceed 5 % and what it varies by.
//! - A move has to make the larger of both loads smaller by a part of the connection's cost.
//! - A connection that has moved stays for a second, then for two, four and so on, and does not
//!   come back to the loop that it left for ten.

mod costs;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use costs::Costs;

/// The interval that the constants here are made for; others work.
pub const INTERVAL_MS: u64 = 100;
/// Connections of a loop whose cost is measured, the most expensive ones.
pub const TOP: usize = 32;
/// Moves in one interval, over all loops.
pub const MOVES_MAX: usize = 8;

/// How much of a mean the newest interval is; a longer one is as much of it as several.
const NEWEST: f64 = 0.2;
/// Loads that differ by less are alike.
const ALIKE: f64 = 0.05;
/// What loads vary by from interval to interval counts so many times.
const DEVIATIONS: f64 = 2.0;
/// The work that waits is to be done within so many intervals, beside what comes.
const CATCH_UP: f64 = 5.0;
/// It counts for so much at most: connections cost what they cost, however long their queue.
const WAITING_MAX: f64 = 0.2;
/// A move makes the larger load smaller by this part of what moves, or is not worth it.
const GAIN_MIN: f64 = 0.2;
/// Nothing is slower than this: a loop that had no CPU for an interval is not known.
const SPEED_MIN: f64 = 0.1;

/// What one loop did in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopMeasured {
    /// Time in which it did not wait for events, by the wall clock.
    pub busy_us: u64,
    /// Its CPU time.
    pub cpu_us: u64,
    /// Events that it handled.
    pub handled: u64,
    /// Events that were ready and not handled at the end.
    pub ready: u64,
    /// Connections at the end.
    pub connections: usize,
    /// The connections that cost most, [`TOP`] at most.
    pub top: Vec<ConnectionCost>,
}

/// What one connection cost in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCost {
    /// Its name, which it keeps when it moves, and no other connection gets for a while.
    pub connection: u64,
    /// CPU time.
    pub cpu_us: u64,
}

/// A connection that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Its name.
    pub connection: u64,
    /// The index of its loop.
    pub from: usize,
    /// The index of the loop that it goes to.
    pub to: usize,
    /// The share of the first loop's time that it costs there.
    pub load: f64,
}

/// A decision, and what it was made from: a line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Time measured so far.
    pub at_us: u64,
    /// The load of each loop before the moves: the share of its time that it needs.
    pub loads: Vec<f64>,
    /// CPU time over busy time of each loop; 1 if nobody shares its CPU.
    pub speeds: Vec<f64>,
    /// By how much loads have to differ for a move.
    pub threshold: f64,
    /// What moves.
    pub moves: Vec<Move>,
}

/// Balances some loops.
#[derive(Clone, Debug)]
pub struct Balancer {
    loops: Vec<Loop>,
    costs: Costs,
    at_us: u64,
    /// Where the search for the next loop begins: of equals, each in turn.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Loop {
    load: f64,
    /// Mean square of what an interval differs from the mean.
    variance: f64,
    speed: f64,
    connections: usize,
    is_known: bool,
}

impl Balancer {
    /// For so many loops, 1 or more.
    #[must_use]
    pub fn new(loops: usize) -> Self {
        let fresh = Loop {
            load: 0.0,
            variance: 0.0,
            speed: 1.0,
            connections: 0,
            is_known: false,
        };
        Self {
            loops: vec![fresh; loops.max(1)],
            costs: Costs::default(),
            at_us: 0,
            turn: 0,
        }
    }

    /// Takes in what all loops did since the last call, and decides what moves.
    pub fn decide(&mut self, interval_us: u64, measured: &[LoopMeasured]) -> Decision {
        let interval_us = interval_us.max(1);
        self.at_us += interval_us;
        let newest = newest(interval_us);
        for (own, new) in self.loops.iter_mut().zip(measured) {
            own.add(interval_us as f64, newest, new);
        }
        self.costs.add(self.at_us, interval_us, newest, measured);
        let loads = self.loops.iter().map(|one| one.load).collect();
        let threshold = self.threshold();
        let mut moves = Vec::new();
        while moves.len() < MOVES_MAX
            && let Some(next) = self.next_move(threshold)
        {
            self.carry_out(&next);
            moves.push(next);
        }
        Decision {
            at_us: self.at_us,
            loads,
            speeds: self.loops.iter().map(|one| one.speed).collect(),
            threshold,
            moves,
        }
    }

    /// The index of the loop that the next new connection goes to; it counts there from now on.
    pub fn place(&mut self) -> usize {
        let count = self.loops.len();
        self.turn = (self.turn + 1) % count;
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let best = in_turn.min_by(|a, b| {
            let (a, b) = (&self.loops[*a], &self.loops[*b]);
            let loads = a.load.total_cmp(&b.load);
            loads.then(a.connections.cmp(&b.connections))
        });
        let index = best.unwrap_or(0);
        // Until it is measured, it costs what connections cost on average.
        let usual = self.usual_cost();
        let chosen = &mut self.loops[index];
        chosen.load += usual / chosen.speed;
        chosen.connections += 1;
        index
    }

    /// The same for a new connection that loop `own` has accepted: `None`, it stays there, unless that
    /// loop has noticeably more to do.
    pub fn place_elsewhere(&mut self, own: usize) -> Option<usize> {
        let least = self
            .loops
            .iter()
            .map(|one| one.load)
            .fold(f64::INFINITY, f64::min);
        let own = self.loops.get(own)?;
        (own.load - least > self.threshold()).then(|| self.place())
    }

    /// CPUs that a connection takes on average.
    fn usual_cost(&self) -> f64 {
        let cpus: f64 = self.loops.iter().map(|one| one.load * one.speed).sum();
        let connections: usize = self.loops.iter().map(|one| one.connections).sum();
        cpus / connections.max(1) as f64
    }

    fn threshold(&self) -> f64 {
        let variance: f64 = self.loops.iter().map(|one| one.variance).sum();
        let of_one = variance / self.loops.len() as f64;
        // Of a mean over about 2 / NEWEST intervals, and of a difference of two.
        let deviation = (of_one * NEWEST / (2.0 - NEWEST) * 2.0).sqrt();
        ALIKE + DEVIATIONS * deviation
    }

    fn next_move(&self, threshold: f64) -> Option<Move> {
        let by_load = |a: &&(usize, &Loop), b: &&(usize, &Loop)| a.1.load.total_cmp(&b.1.load);
        let known: Vec<_> = self
            .loops
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_known)
            .collect();
        let (from, busiest) = known.iter().max_by(by_load)?;
        let (to, idlest) = known.iter().min_by(by_load)?;
        let gap = busiest.load - idlest.load;
        if gap <= threshold {
            return None;
        }
        let slower = busiest.speed / idlest.speed;
        let candidates = self.costs.movable(*from, *to, self.at_us);
        let gains = candidates.filter_map(|(connection, cpus)| {
            let load = cpus / busiest.speed;
            let after = (busiest.load - load).max(idlest.load + load * slower);
            let gain = busiest.load - after;
            (gain > GAIN_MIN * load && load > 0.0).then_some((gain, connection, load))
        });
        let (_, connection, load) = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
        Some(Move {
            connection,
            from: *from,
            to: *to,
            load,
        })
    }

    /// Counts a move as made.
    fn carry_out(&mut self, next: &Move) {
        let cpus = next.load * self.loops[next.from].speed;
        let (from, to) = (next.from, next.to);
        self.loops[from].load -= next.load;
        self.loops[from].connections = self.loops[from].connections.saturating_sub(1);
        self.loops[to].load += cpus / self.loops[to].speed;
        self.loops[to].connections += 1;
        self.costs.moved(next.connection, to, self.at_us);
    }
}

/// How much of a mean an interval is: loops that slept for long are as idle as they seem.
fn newest(interval_us: u64) -> f64 {
    let intervals = interval_us as f64 / (INTERVAL_MS * 1000) as f64;
    match intervals > 1.0 {
        true => 1.0 - (1.0 - NEWEST).powf(intervals),
        false => NEWEST,
    }
}

impl Loop {
    fn add(&mut self, interval_us: f64, newest: f64, new: &LoopMeasured) {
        let busy = new.busy_us as f64 / interval_us;
        let waiting = new.ready as f64 * busy / new.handled.max(1) as f64;
        let load = busy + (waiting / CATCH_UP).min(WAITING_MAX);
        let speed = (new.cpu_us as f64 / new.busy_us.max(1) as f64).clamp(SPEED_MIN, 1.0);
        if !self.is_known {
            (self.load, self.is_known) = (load, true);
        }
        let off = load - self.load;
        self.load += newest * off;
        // Not more after a pause: that it has ended is no variation.
        self.variance += NEWEST * (off * off - self.variance);
        // The less it was busy, the less its speed is known.
        self.speed += newest * busy.min(1.0) * (speed - self.speed);
        self.connections = new.connections;
    }
}
