//! What the trials of a run come to: journal lines in, cells with estimates out.
//!
//! The unit of all statistics is the trial, never the request: a cell's estimate is the geometric mean of its
//! trials, with an interval for the true one. Discarded trials are kept apart and shown; they are part
//! of no estimate. A/A trials repeat a cell under another name: what they differ by is the noise.

mod cells;
mod metric;
mod read;
mod trial;

pub(crate) use cells::compare;
pub use cells::{Cell, Estimate, Noise, cells, noise};
pub use metric::{Metric, Times, Unit};
pub use read::Run;
pub(crate) use trial::spectrum;
pub use trial::{Measured, SPECTRUM_PERCENTS, Second};
