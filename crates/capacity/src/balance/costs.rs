//! What connections cost, as far as it is known: those that cost most.

use std::collections::HashMap;

use super::LoopMeasured;

/// A connection that has moved stays for so long,
const STAY_US: u64 = 1_000_000;
/// and each time twice as long, so many times.
const DOUBLINGS_MAX: u32 = 6;
/// It does not come back to the loop that it left for so long.
const AWAY_US: u64 = 10_000_000;
/// Below this share of a CPU a connection is forgotten.
const FORGOTTEN: f64 = 1e-5;
/// Intervals in which a connection has to be seen before it moves,
const SEEN_MIN: u32 = 2;
/// and since it was seen, at most: one that was closed cannot move.
const UNSEEN_MAX: u64 = 2;

/// Means of single connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    known: HashMap<u64, Cost>,
    /// The length of the last interval.
    interval_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    at: usize,
    /// CPUs that it takes: the sum of weighted intervals, and of their weights.
    sum: f64,
    weight: f64,
    seen: u32,
    /// When it was seen last.
    seen_us: u64,
    moves: u32,
    stays_until_us: u64,
    /// The loop that it left last, and when it may come back.
    left: Option<(usize, u64)>,
}

impl Costs {
    /// `newest`: how much of a mean this interval is.
    pub(super) fn add(
        &mut self,
        now_us: u64,
        interval_us: u64,
        newest: f64,
        measured: &[LoopMeasured],
    ) {
        self.interval_us = interval_us;
        for cost in self.known.values_mut() {
            cost.sum *= 1.0 - newest;
            cost.weight = cost.weight * (1.0 - newest) + newest;
        }
        for (at, one) in measured.iter().enumerate() {
            for top in &one.top {
                let cost = self.known.entry(top.connection).or_insert(Cost {
                    at,
                    sum: 0.0,
                    weight: newest,
                    seen: 0,
                    seen_us: now_us,
                    moves: 0,
                    stays_until_us: 0,
                    left: None,
                });
                if cost.stays_until_us <= now_us {
                    cost.at = at; // later than a move, what its old loop had begun is over
                }
                cost.sum += newest * top.cpu_us as f64 / interval_us as f64;
                cost.seen += 1;
                cost.seen_us = now_us;
            }
        }
        self.known
            .retain(|_, cost| cost.cpus() > FORGOTTEN || cost.is_bound(now_us));
    }

    /// The connections that may move from a loop to another, and the CPUs that they take.
    pub(super) fn movable(
        &self,
        from: usize,
        to: usize,
        now_us: u64,
    ) -> impl Iterator<Item = (u64, f64)> {
        let seen_from_us = now_us.saturating_sub(UNSEEN_MAX * self.interval_us);
        let may = move |cost: &Cost| {
            let is_seen = cost.seen >= SEEN_MIN && cost.seen_us >= seen_from_us;
            let stays = cost.stays_until_us > now_us;
            let comes_back = cost
                .left
                .is_some_and(|(left, until)| left == to && until > now_us);
            cost.at == from && is_seen && !stays && !comes_back
        };
        self.known
            .iter()
            .filter(move |(_, cost)| may(cost))
            .map(|(connection, cost)| (*connection, cost.cpus()))
    }

    pub(super) fn moved(&mut self, connection: u64, to: usize, now_us: u64) {
        if let Some(cost) = self.known.get_mut(&connection) {
            cost.left = Some((cost.at, now_us + AWAY_US));
            cost.at = to;
            cost.stays_until_us = now_us + (STAY_US << cost.moves.min(DOUBLINGS_MAX));
            cost.moves += 1;
        }
    }
}

impl Cost {
    /// Whether a move of before says something of the next.
    fn is_bound(&self, now_us: u64) -> bool {
        self.stays_until_us > now_us || self.left.is_some_and(|(_, until)| until > now_us)
    }

    fn cpus(&self) -> f64 {
        self.sum / self.weight
    }
}
