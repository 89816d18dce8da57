//! Results as files: the whole record as JSON, the time series as CSV, every latency as an
//! HdrHistogram log.

mod csv;
mod hdr;
mod json;

pub use csv::write_csv;
pub use hdr::write_hdr;
pub use json::{ReadError, read_json, write_json};
