//! As `src/fairness.rs` of the server: the order of jobs.

#[path = "../../crates/server/src/fairness/lanes.rs"]
pub(crate) mod lanes;

pub(crate) use loadline_proto::ClientKey;
