//! When requests are due: a pure function of the schedule, the share and the seed.
//!
//! Arrivals are placed by *position*: how many requests are due before, the integral of the rate. A
//! rate that changes is so one that does not, and a position becomes a moment by the inverse of the
//! integral, in closed form. Nothing is stored and nothing adds up: request 10^12 is as exact as the
//! first.
//!
//! ```text
//!   rate         ▁▁▂▃▄▅▆▇█▁▁▁▁            position = ∫ rate dt
//!   positions    |||||||||||||||||||||||  evenly, or at random
//!   due times    |   |  | | |||||||  |    time at which the integral reaches the position
//! ```
//!
//! `Constant`: request `n` of the whole load stands at position `n + 1/2`.
//!
//! `Poisson`: a Poisson process conditioned on its count. Given how many arrivals a stretch has, those
//! of a Poisson process are independent and uniform over it (S. Ross, *Stochastic Processes*, 2.3).
//! Drawn in order: with `k` to come in a remaining length `r`, the first is `r (1 - U^(1/k))` away,
//! which for any `k` beyond a few is an exponential gap of mean `r/k`. So the rate of each stretch is
//! exact and its gaps are still those of independent users. A stretch is a segment of a second or
//! more, or a row of shorter ones with the pauses between them: the number of arrivals in one burst
//! is left to chance.

use rand_pcg::Pcg64Mcg;

use crate::schedule::sound;
use crate::seed::{self, Purpose};
use crate::{Arrivals, Schedule, Segment, Share};

/// The due times of one thread, in nanoseconds from the start, never decreasing.
///
/// The arrivals of all shares together are those of the whole schedule: `Constant` arrivals are
/// dealt out in turn, so that the shares interleave; `Poisson` arrivals of each share are as many as
/// the schedule asks for, spread independently, whose union is Poisson again.
#[derive(Clone, Debug)]
pub struct Pacer {
    course: Course,
    positions: Positions,
    /// The due time before.
    before_ns: u64,
}

/// Segments shorter than this are left to chance together.
const STRETCH_NS_MIN: u64 = 1_000_000_000;

impl Pacer {
    /// The arrivals of one share.
    #[must_use]
    pub fn new(schedule: &Schedule, arrivals: Arrivals, share: Share, seed: u64) -> Self {
        let course = Course::new(&schedule.segments);
        let positions = match arrivals {
            Arrivals::Constant => Positions::Even {
                next: u64::from(share.index),
                step: u64::from(share.of.max(1)),
                count: arrivals_before(course.total()),
            },
            Arrivals::Poisson => Positions::Random(Box::new(Random {
                generator: seed::generator(seed, Purpose::Arrivals, share),
                blocks: blocks(&schedule.segments, share),
                at: 0,
                position: 0.0,
                left: 0,
            })),
        };
        Self {
            course,
            positions,
            before_ns: 0,
        }
    }
}

impl Iterator for Pacer {
    type Item = u64;

    /// When the next request is due; `None`: no more.
    #[inline]
    fn next(&mut self) -> Option<u64> {
        let position = self.positions.next()?;
        // Rounding must not make time run backwards by a nanosecond.
        self.before_ns = self.course.time_ns(position).max(self.before_ns);
        Some(self.before_ns)
    }
}

/// How many arrivals stand before a position: those at 1/2, 3/2, 5/2 and so on.
fn arrivals_before(position: f64) -> u64 {
    (position - 0.5).ceil().max(0.0) as u64
}

/// Where the arrivals of one share stand, in their order.
#[derive(Clone, Debug)]
enum Positions {
    Even { next: u64, step: u64, count: u64 },
    Random(Box<Random>),
}

#[derive(Clone, Debug)]
struct Random {
    generator: Pcg64Mcg,
    /// In order; each begins where the one before it ends.
    blocks: Vec<Block>,
    /// The block at hand.
    at: usize,
    /// Of the last arrival.
    position: f64,
    /// Arrivals to come in the block at hand.
    left: u64,
}

/// Positions that have a fixed number of arrivals, at random places.
#[derive(Clone, Copy, Debug)]
struct Block {
    begin: f64,
    end: f64,
    arrivals: u64,
}

impl Positions {
    #[inline]
    fn next(&mut self) -> Option<f64> {
        match self {
            Self::Even { next, step, count } => {
                if *next >= *count {
                    return None;
                }
                let position = *next as f64 + 0.5;
                *next = next.saturating_add(*step);
                Some(position)
            }
            Self::Random(random) => random.next(),
        }
    }
}

impl Random {
    #[inline]
    fn next(&mut self) -> Option<f64> {
        while self.left == 0 {
            let block = self.blocks.get(self.at)?;
            self.left = block.arrivals;
            self.position = block.begin;
            self.at += 1;
        }
        let end = self.blocks[self.at - 1].end;
        // 1 - U^(1/k) = 1 - exp(-x), where x is an exponential variable of mean 1/k.
        let x = -seed::unit_above_zero(&mut self.generator).ln() / self.left as f64;
        let part = if x < 1e-3 {
            x * (1.0 - x * (1.0 / 2.0 - x * (1.0 / 6.0 - x / 24.0))) // exact to 14 places, and quick
        } else {
            -(-x).exp_m1()
        };
        self.position = (self.position + (end - self.position) * part).min(end);
        self.left -= 1;
        Some(self.position)
    }
}

/// The stretches whose number of arrivals is fixed, with the numbers of this share: those of the
/// arrivals `n` of the whole with `n mod of = index`, so that the shares add up in each block.
fn blocks(segments: &[Segment], share: Share) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut end, mut follows_short) = (0.0, false);
    for segment in segments {
        let begin = end;
        end += segment.total();
        // A pause has no arrival whose number could be fixed: it ends no row, however long it is.
        let is_pause = segment.total() == 0.0;
        let is_short = segment.len_ns < STRETCH_NS_MIN || is_pause && follows_short;
        match blocks.last_mut() {
            Some(block) if is_short && follows_short => block.end = end,
            _ => blocks.push(Block {
                begin,
                end,
                arrivals: 0,
            }),
        }
        follows_short = is_short;
    }
    for block in &mut blocks {
        let own_before = |position| share.count(arrivals_before(position));
        block.arrivals = own_before(block.end) - own_before(block.begin);
        block.end = block.end.next_down(); // the end itself belongs to the next one
    }
    blocks
}

/// From positions to moments.
#[derive(Clone, Debug)]
struct Course {
    /// Those with arrivals, in order.
    stretches: Vec<Stretch>,
    /// That of the last position.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin_ns: u64,
    len_ns: u64,
    /// Requests per second at the begin.
    rate: f64,
    /// Requests per second, each second.
    slope: f64,
    /// Positions at its two ends.
    begin: f64,
    end: f64,
}

impl Course {
    fn new(segments: &[Segment]) -> Self {
        let mut stretches = Vec::with_capacity(segments.len());
        let (mut begin_ns, mut begin) = (0_u64, 0.0);
        for segment in segments {
            let end = begin + segment.total();
            if end > begin {
                let rate = sound(segment.rate_begin);
                let slope = (sound(segment.rate_end) - rate) / (segment.len_ns as f64 / 1e9);
                stretches.push(Stretch {
                    begin_ns,
                    len_ns: segment.len_ns,
                    rate,
                    slope,
                    begin,
                    end,
                });
            }
            begin = end;
            begin_ns = begin_ns.saturating_add(segment.len_ns);
        }
        Self { stretches, at: 0 }
    }

    fn total(&self) -> f64 {
        self.stretches.last().map_or(0.0, |stretch| stretch.end)
    }

    /// When the integral of the rate reaches `position`. Positions must not decrease.
    #[inline]
    fn time_ns(&mut self, position: f64) -> u64 {
        while self.at + 1 < self.stretches.len() && position >= self.stretches[self.at].end {
            self.at += 1;
        }
        let Some(stretch) = self.stretches.get(self.at) else {
            return 0;
        };
        stretch
            .begin_ns
            .saturating_add(stretch.time_ns(position - stretch.begin))
    }
}

impl Stretch {
    /// When, from its begin, the integral of the rate reaches `position`: the root `t` of
    /// `rate t + slope t^2 / 2 = position`, in the form that does not subtract what is nearly equal.
    /// Always before its end, so that an arrival belongs to its own phase.
    #[inline]
    fn time_ns(&self, position: f64) -> u64 {
        let ns = if self.slope == 0.0 {
            position * 1e9 / self.rate
        } else {
            let root = (self.rate * self.rate + 2.0 * self.slope * position).max(0.0);
            let divisor = self.rate + root.sqrt();
            if divisor == 0.0 {
                0.0
            } else {
                2e9 * position / divisor
            }
        };
        // A cast of a number below 0 is 0.
        (ns as u64).min(self.len_ns - 1)
    }
}

#[cfg(test)]
mod tests;
