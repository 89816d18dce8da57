//! Clients of which a part of each request is sent slowly.
//!
//! The head: the attack known as Slowloris, and the odd microcontroller. Or the content: slow uploads,
//! and the attack known as R-U-Dead-Yet; its head announces all of the content by Content-Length.
//!
//! What lies before the part is sent at once, the part itself at a set rate: a tenth of a second's
//! worth (at least a byte) at a time; the rest at once again. Between the portions the client reads:
//! the answer of a server that gives up (408) is counted by its status; a server that
//! closes without an answer is `closed_early`, one that resets is `reset`. Then the client calls again
//! after a pause of 10 ms in the mean, doubling up to 1 s while its connections last less than a
//! second. A request that gets through is awaited like any other, and followed by the next one.

use std::ops::Range;
use std::sync::Arc;

use loadline_load::Prepared;
use loadline_proto::Method;

use crate::caller::{self, Behaviour, Caller};
use crate::exchange::RequestSpec;
use crate::pace::Pace;
use crate::{Event, Order, UserContext, UserGroup};

/// What is received at once.
const RECEIVE_BYTES: usize = 16 << 10;

/// Each user of this group sends `bytes_per_second` of its request's head.
#[must_use]
pub fn heads(bytes_per_second: u64, spec: RequestSpec) -> UserGroup {
    let head = 0..head_len(&spec.request.keep);
    user_group(bytes_per_second, spec, head)
}

/// Each user of this group sends `bytes_per_second` of its request's content. A request without
/// content (see [`post`]) is sent like any other.
#[must_use]
pub fn bodies(bytes_per_second: u64, spec: RequestSpec) -> UserGroup {
    let content = head_len(&spec.request.keep)..spec.request.keep.len();
    user_group(bytes_per_second, spec, content)
}

fn user_group(bytes_per_second: u64, spec: RequestSpec, slow: Range<usize>) -> UserGroup {
    caller::user_group(spec, move |_, _| SlowSender {
        bytes_per_second,
        slow: slow.clone(),
        given: 0,
        pace: Pace::new(bytes_per_second, 0),
    })
}

/// Where the content of a request begins.
fn head_len(request: &[u8]) -> usize {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(request.len(), |end| end + 4)
}

/// Whether a request has content.
#[must_use]
pub fn has_content(request: &Prepared) -> bool {
    head_len(&request.keep) < request.keep.len()
}

/// A request that has no content, as a POST with `content_bytes` bytes of it.
#[must_use]
pub fn post(request: &Prepared, content_bytes: usize) -> Prepared {
    Prepared {
        keep: posted(&request.keep, content_bytes),
        last: posted(&request.last, content_bytes),
        method: Method::Post,
        ..*request
    }
}

fn posted(request: &[u8], content_bytes: usize) -> Arc<[u8]> {
    let method_len = request.iter().position(|byte| *byte == b' ').unwrap_or(0);
    let lines = &request[method_len..];
    let lines = lines.strip_suffix(b"\r\n\r\n").unwrap_or(lines);
    // A POST without content says so.
    let lines = lines
        .strip_suffix(b"\r\nContent-Length: 0")
        .unwrap_or(lines);
    let length = format!("\r\nContent-Length: {content_bytes}\r\n\r\n");
    let mut posted = [&b"POST"[..], lines, length.as_bytes()].concat();
    posted.resize(posted.len() + content_bytes, b'x');
    Arc::from(posted)
}

struct SlowSender {
    bytes_per_second: u64,
    /// The part of the request that is sent slowly.
    slow: Range<usize>,
    /// Bytes of the request that were given to the executor.
    given: usize,
    pace: Pace,
}

impl SlowSender {
    /// Up to where the `whole` bytes of the request may be sent now.
    fn allowed(&mut self, whole: usize, now_ns: u64) -> usize {
        if self.given < self.slow.start {
            return self.slow.start;
        }
        if self.given == self.slow.start {
            self.pace = Pace::new(self.bytes_per_second, now_ns);
        }
        let allowed = usize::try_from(self.pace.allowed(now_ns)).unwrap_or(usize::MAX);
        match self.given.saturating_add(allowed) {
            to if to >= self.slow.end => whole,
            to => to,
        }
    }
}

impl Behaviour for SlowSender {
    fn next_order(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order {
        let whole = caller.request().len();
        if self.given == whole && caller.exchange.is_out() {
            return caller.receive(RECEIVE_BYTES, context);
        }
        if !caller.exchange.is_out() {
            self.given = 0;
            caller.sends(context);
        }
        let (from, to) = (self.given, self.allowed(whole, context.now_ns));
        if from == to {
            return Order::ReceiveUntil {
                bytes_max: RECEIVE_BYTES,
                ns: self.pace.next_ns(),
            };
        }
        if from >= self.slow.start {
            self.pace.used((to - from) as u64);
        }
        self.given = to;
        Order::Send(caller.request()[from..to].to_vec())
    }

    fn on_event(&mut self, caller: &mut Caller, event: Event<'_>, context: &mut UserContext<'_>) {
        if let Event::Received(bytes) = event {
            let is_whole = self.given == caller.request().len();
            let _ = caller.received(bytes, &mut (), is_whole, context);
        } else {
            caller.on_event(event, context);
        }
    }
}
