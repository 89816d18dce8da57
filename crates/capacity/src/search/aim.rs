//! What the search goes by near the capacity: the line through the shares of slow requests where there
//! is one, otherwise whether trials held.

use super::belief::Belief;
use super::line::{Crossing, Point, Shape};
use super::{CREDIBLE, Length, Search, Stage, Tried, WIDTH_WANTED};

/// The level that a line is asked for, above that of the interval:
/// counts are skewed, and stopping as soon as it is narrow favours what is narrow by luck.
const LINE_LEVEL: f64 = 0.985;

/// Narrowing goes on until the interval is this wide, where a line through the shares of slow requests tells it.
const LINE_WIDTH_WANTED: f64 = 0.05;

/// A line through the shares of slow requests counts if it crosses where trials begin to fail, or this
/// factor away: something else makes them fail otherwise.
const LINE_AGREES: f64 = 1.03;

/// Trials belong to the line where so many of them hold ...
const LINE_HOLDS: (f64, f64) = (0.07, 0.97);
/// ... and are run where these hold, turn by turn,
const LINE_AT: (f64, f64) = (0.15, 0.85);
/// but as far from the middle as this at least, or twice as far,
const LINE_REACH_MIN: f64 = 0.025;
/// or where the line has the share so many times larger and smaller than allowed,
const LINE_TIMES: f64 = 4.0;
/// so often at least: fewer trials may agree by luck,
const LINE_TRIALS_MIN: usize = 25;
/// from when the capacity is known so far, as a part of it.
const LINE_BEGINS: f64 = 0.25;

impl Search {
    /// How the shares of slow requests depend on the rate, near the capacity: of the condition that
    /// is broken first.
    pub(super) fn shape(&self) -> Shape {
        let Some(belief) = &self.belief else {
            return Shape::Unknown;
        };
        let longs = (self.tried.iter())
            .filter(|one| one.trial.length == Length::Long && one.holds().is_some());
        let longs: Vec<&Tried> = longs.collect();
        let conditions = longs.iter().map(|one| one.shares.len()).min().unwrap_or(0);
        if conditions == 0 {
            return Shape::Step;
        }
        let (low, high) = belief.around(LINE_HOLDS, 2.0 * LINE_REACH_MIN);
        let near: Vec<&Tried> = (longs.into_iter())
            .filter(|one| low <= one.trial.rate_per_s && one.trial.rate_per_s <= high)
            .collect();
        let shapes = (0..conditions).map(|condition| {
            let point = |one: &&Tried| Point {
                rate_per_s: one.trial.rate_per_s,
                seconds: one.trial.seconds,
                share: one.shares[condition],
            };
            let points: Vec<Point> = near.iter().map(point).collect();
            Shape::of(&points, self.limits.warm_up_s, LINE_LEVEL)
        });
        let lowest = shapes.reduce(|one, other| match (one, other) {
            (Shape::Line(line), Shape::Line(next)) if next.capacity_per_s < line.capacity_per_s => {
                other
            }
            (Shape::Line(_), _) => one,
            (_, Shape::Line(_)) => other,
            _ => one,
        });
        let (low, high) = belief.interval(CREDIBLE);
        let agrees = |line: &Crossing| {
            low / LINE_AGREES <= line.capacity_per_s && line.capacity_per_s <= high * LINE_AGREES
        };
        match lowest {
            Some(Shape::Line(line)) if !agrees(&line) => Shape::Step,
            Some(shape) => shape,
            None => Shape::Unknown,
        }
    }

    /// Where the capacity lies, by the best that is known.
    pub(super) fn interval(&self, belief: &Belief) -> (f64, f64) {
        match &self.shape {
            Shape::Line(crossing) => crossing.interval(),
            _ => belief.interval(CREDIBLE),
        }
    }

    pub(super) fn most_telling(&self, belief: &Belief) -> f64 {
        let (low, high) = belief.interval(CREDIBLE);
        let is_near = high / low - 1.0 <= LINE_BEGINS;
        if matches!(self.shape, Shape::Step) || !is_near {
            // Of a grid, whose nearest point may be above the highest rate.
            let top_per_s = self.top_per_s();
            return belief.most_telling(top_per_s).min(top_per_s);
        }
        let narrowed = self
            .tried
            .iter()
            .filter(|one| one.trial.stage == Stage::Narrow);
        let (low, high) = match self.shape {
            Shape::Line(line) => (line.rate_at(1.0 / LINE_TIMES), line.rate_at(LINE_TIMES)),
            _ => belief.around(LINE_AT, LINE_REACH_MIN),
        };
        let rate_per_s = match narrowed.count() % 2 == 0 {
            true => high,
            false => low,
        };
        rate_per_s.min(self.top_per_s())
    }

    /// How narrow an interval has to be for the search to end; 0: it has to go on.
    pub(super) fn width_wanted(&self) -> f64 {
        match self.shape {
            Shape::Line(line) if line.trials >= LINE_TRIALS_MIN => LINE_WIDTH_WANTED,
            Shape::Step => WIDTH_WANTED,
            Shape::Line(_) | Shape::Unknown => 0.0,
        }
    }
}
