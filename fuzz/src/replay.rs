//! As the `replay` module of the load generator: what reads logs, without all that sends requests, which
//! would take longer to build than the rest of this workspace.

#[path = "../../crates/load/src/replay/json.rs"]
mod json;
#[path = "../../crates/load/src/replay/line.rs"]
pub mod line;
#[path = "../../crates/load/src/replay/log.rs"]
pub mod log;
#[path = "../../crates/load/src/replay/logged.rs"]
pub mod logged;
#[path = "../../crates/load/src/replay/time.rs"]
mod time;

pub use log::{Log, Wanted};
