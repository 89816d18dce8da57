//! Rates in equal steps.

use super::values::{Rate, Shown};
use crate::ValueError;

/// The highest rate: one request each nanosecond, the resolution of due times.
pub const RATE_MAX: f64 = 1e9;
/// The most steps: each has histograms of its own in every result.
pub const STEPS_MAX: usize = 1000;

/// Rates in equal steps, both ends included: `100..2500/100`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Requests per second of the first step.
    pub from: f64,
    /// Requests per second that no step goes beyond; below `from`: downwards.
    pub to: f64,
    /// Requests per second from one step to the next, above 0.
    pub by: f64,
}

impl Steps {
    /// The rates, in their order.
    ///
    /// # Errors
    /// A bound or a step is not a rate, or there are more than [`STEPS_MAX`].
    pub fn rates(self) -> Result<Vec<f64>, ValueError> {
        checked_rate("first rate", self.from)?;
        checked_rate("last rate", self.to)?;
        checked_rate("step", self.by)?;
        // A step more or less by rounding would be a rate more or less: 0.1..0.3/0.1 has three.
        let count = ((self.to - self.from).abs() / self.by + 1e-9).floor() as usize + 1;
        if count > STEPS_MAX {
            return Err(format!("{count} steps are too many: at most {STEPS_MAX}").into());
        }
        let by = self.by.copysign(self.to - self.from);
        Ok((0..count).map(|k| self.from + k as f64 * by).collect())
    }
}

// Rates one after the other: `100..2500/100`, or downwards.
as_text!(
    Steps,
    |text| {
        const RIGHT: &str = "FROM..TO/STEP in requests a second, 100..2500/100 say";
        let parts = text
            .rsplit_once('/')
            .and_then(|(span, step)| Some((span.split_once("..")?, step)));
        let Some(((from, to), step)) = parts else {
            return Err(ValueError::new("not steps", RIGHT));
        };
        let rate = |text: &str| text.parse::<Rate>().map(|rate| *rate);
        let steps = Self {
            from: rate(from)?,
            to: rate(to)?,
            by: rate(step)?,
        };
        steps.rates().map_err(|error| error.or(RIGHT))?;
        Ok(steps)
    },
    |it, f| {
        let Self { from, to, by } = *it;
        write!(f, "{}..{}/{}", Shown(from), Shown(to), Shown(by))
    }
);

/// Refuses what is no rate.
///
/// # Errors
/// Says which rate, and what it is.
pub fn checked_rate(name: &str, rate: f64) -> Result<(), ValueError> {
    if rate > 0.0 && rate <= RATE_MAX {
        return Ok(());
    }
    Err(format!("the {name} is {rate}: requests per second above 0, at most {RATE_MAX:e}").into())
}
