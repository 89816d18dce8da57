//! The offered rate as a function of time, and the phases in which results are told apart.

/// How arrivals are spread around the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Independent of each other, as many users are: gaps are exponential.
    Poisson,
    /// Evenly spaced.
    Constant,
}

/// A stretch of time in which the rate is constant or moves in a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// How long it lasts.
    pub len_ns: u64,
    /// Requests per second at its begin.
    pub rate_begin: f64,
    /// Requests per second at its end.
    pub rate_end: f64,
}

/// The offered rate over time, from the start on; after the last segment nothing is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// One after the other.
    pub segments: Vec<Segment>,
}

/// A stretch of time whose results are told apart: the warm-up, a step of `--steps`, or all.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// As it stands in results: "warm-up", "500/s".
    pub label: String,
    /// When it begins, from the start.
    pub begin_ns: u64,
    /// When it ends, from the start; the next one begins there.
    pub end_ns: u64,
    /// The rate that is offered in it, on average; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Whether it counts: the warm-up does not.
    pub counted: bool,
}
