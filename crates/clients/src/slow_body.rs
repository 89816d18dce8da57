//! Clients whose request content drips: slow uploads, and the attack known as R-U-Dead-Yet.
//!
//! The head is sent at once and announces all of the content by its Content-Length; then the
//! content drips. How it goes on, and what is counted, stands in `slow_sender.rs`.

use std::sync::Arc;

use loadline_load::Prepared;
use loadline_load::requests::template::{Ask, Template};
use loadline_proto::Method;

use crate::exchange::RequestSpec;
use crate::{UserGroup, slow_sender};

/// Each member of this user group sends `bytes_per_second` of its request's content. A request without
/// content (see [`post`]) is sent like any other. For `server` and `group` see [`UserGroup`].
#[must_use]
pub fn user_group(
    group: u16,
    server: u16,
    count: u64,
    bytes_per_second: u64,
    spec: RequestSpec,
) -> UserGroup {
    let content = slow_sender::head_len(&spec.request.keep)..spec.request.keep.len();
    slow_sender::user_group(group, server, count, bytes_per_second, spec, content)
}

/// A POST of `content_bytes` bytes to a target, for requests that have no content of their own. The
/// expectation and the server are for the caller to set.
#[must_use]
pub fn post(
    template: &Template,
    target: &[u8],
    authority: &str,
    user: Option<&str>,
    content_bytes: usize,
) -> Prepared {
    let body = vec![b'x'; content_bytes];
    let (keep, last) = template.prepare(&Ask {
        method: Method::Post,
        target,
        authority,
        user,
        body: &body,
    });
    Prepared {
        keep: Arc::from(keep),
        last: Arc::from(last),
        method: Method::Post,
        expectation: 0,
        server: 0,
    }
}
