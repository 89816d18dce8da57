//! Clients whose request heads drip: the attack known as Slowloris, and the odd microcontroller.
//!
//! The head drips to its end, content behind it is sent at once. How it goes on, and what is
//! counted, stands in `slow_sender.rs`: between the drops the client listens, so that a server that
//! answers 408 is counted by that status.

use crate::exchange::RequestSpec;
use crate::{UserGroup, slow_sender};

/// Each member of this user group sends `bytes_per_second` of its request's head. For `server` and
/// `group` see [`UserGroup`].
#[must_use]
pub fn user_group(
    group: u16,
    server: u16,
    count: u64,
    bytes_per_second: u64,
    spec: RequestSpec,
) -> UserGroup {
    let head = 0..slow_sender::head_len(&spec.request.keep);
    slow_sender::user_group(group, server, count, bytes_per_second, spec, head)
}
