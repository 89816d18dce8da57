//! What can be said of a few runs: medians, ratios, trends and optima, each with an interval.
//!
//! The unit is the run. Requests of one run share its server, its hour and its luck, so no interval
//! here is over requests. Nothing is drawn at random: the same runs give the same figures.
//!
//! | question | here |
//! |---|---|
//! | what is usual? | [`median`], [`center`], [`mean_interval`], of how many runs [`runs_wanted`] |
//! | how does A compare with B, run beside run? | [`compare`], [`t_test`] |
//! | which of many is best, and which are as good? | [`rank`], [`holm`] |
//! | does it rise or fall? | [`kendall`], [`Steps::trend`] |
//! | where is the best level, the steepest step? | [`Steps::optimum`], [`Steps::steepest_fall`] |
//! | how far is the best above others, whichever it is? | [`Steps::best_over`], under several conditions [`PooledBest`] |

mod mean;
mod median;
mod pairs;
mod pooled;
mod ranking;
mod steps;
mod trend;

use serde::{Deserialize, Serialize};

pub use mean::{center, mean, mean_interval, runs_wanted, t_test};
pub use median::{median, quantile};
pub use pairs::{
    Comparison, Difference, Range, compare, compare_ranges, compare_ranges_at, geometric_mean,
};
pub use pooled::{Alternatives, BestOfCondition, PooledBest};
pub use ranking::{RankedAlternative, holm, rank};
pub use steps::{BestRatio, Optimum, Steps, StepsTrend};
pub use trend::{Direction, Trend, kendall};

/// The level of intervals where nothing else is said.
pub const LEVEL: f64 = 0.95;

/// Two bounds, and how often such bounds hold the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The share of such intervals that hold the truth, if runs scatter like a normal distribution.
    pub level: f64,
}

impl Interval {
    /// Whether it holds a value; the bounds belong to it.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}
