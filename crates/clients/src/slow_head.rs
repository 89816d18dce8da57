//! Clients whose request heads drip: the attack known as Slowloris, and the odd microcontroller.
//!
//! The head drips to its end, content behind it is sent at once. How it goes on, and what is
//! counted, is told in `slow_sender.rs`: between the drops the client listens, so that a server that
//! answers 408 is counted by that status.

use crate::exchange::Asked;
use crate::{Crowd, slow_sender};

/// Each member of this crowd sends `bytes_per_second` of its request's head. For `server` and
/// `group` see [`Crowd`].
#[must_use]
pub fn crowd(group: u16, server: u16, count: u64, bytes_per_second: u64, asked: Asked) -> Crowd {
    let head = 0..slow_sender::head_len(&asked.request.keep);
    slow_sender::crowd(group, server, count, bytes_per_second, asked, head)
}
