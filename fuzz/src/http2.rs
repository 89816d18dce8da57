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
/// The longest content of a response. That of all streams is less than a session keeps waiting before it begins
/// no further request (`Limits::waiting_bytes_max`).
const CONTENT_BYTES_MAX: usize = 70_000;

/// Each response has the beginning of it.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let bytes = (0..CONTENT_BYTES_MAX).map(|at| (at % 251) as u8);
    bytes.collect()
});

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

/// The content of a response to a request with this path, which says how long it is.
fn content_of(path: &[u8]) -> &'static [u8] {
    let digits = path
        .strip_prefix(b"/")
        .and_then(|digits| str::from_utf8(digits).ok());
    let len: usize = digits.and_then(|it| it.parse().ok()).unwrap_or(0);
    &CONTENT[..len.min(CONTENT_BYTES_MAX)]
}
