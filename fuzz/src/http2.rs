//! HTTP/2 for our session and for the server of the `h2` crate at once: what a client does, and what it
//! receives.

mod operations;
mod ours;
mod seen;
mod theirs;

pub use operations::{Operation, Operations, What};
pub use ours::Ours;
pub use seen::{Fate, Seen};
pub use theirs::Theirs;

use std::sync::{Arc, LazyLock};

use loadline_proto::{Limits, SessionConfig};

/// Streams that both serve at one time.
const STREAMS_MAX: u32 = 8;

static CONFIG: LazyLock<Arc<SessionConfig>> = LazyLock::new(|| {
    let limits = Limits {
        streams_max: STREAMS_MAX,
        ..Limits::default()
    };
    Arc::new(SessionConfig {
        limits,
        ..SessionConfig::default()
    })
});
