//! Clients of whose requests a part drips: what slow heads and slow bodies have in common.
//!
//! What lies before the part is sent at once, the part itself at a set rate: a tenth of a second's
//! worth (at least a byte) at a time; the rest at once again. Between the drops the client listens:
//! the answer of a server that gives up (408) is read, and counted by its status; one that
//! closes without a word is `closed_early`, one that resets is `reset`. Then the client calls again
//! after a pause of 10 ms, doubling up to 1 s while its connections last less than a second. A
//! request that gets through is awaited like any other, and followed by the next one.

use std::ops::Range;
use std::sync::Arc;

use loadline_record::ErrorKind;

use crate::caller::Caller;
use crate::exchange::RequestSpec;
use crate::pace::Pace;
use crate::{Order, UserContext, UserGroup, VirtualUser};

/// What is received at once.
const RECEIVE_BYTES: usize = 16 << 10;

/// A user group of which each member lets the bytes `dripping` of its request drip.
pub(super) fn user_group(
    group: u16,
    server: u16,
    count: u64,
    bytes_per_second: u64,
    spec: RequestSpec,
    dripping: Range<usize>,
) -> UserGroup {
    let spec = Arc::new(spec);
    let make = Arc::new(move |_, _| {
        let caller = Caller::new(Arc::clone(&spec), false);
        Box::new(SlowSender::new(caller, bytes_per_second, dripping.clone()))
            as Box<dyn VirtualUser>
    });
    UserGroup::new(group, server, count, make)
}

/// Where the content of a request begins.
pub(super) fn head_len(request: &[u8]) -> usize {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(request.len(), |end| end + 4)
}

struct SlowSender {
    caller: Caller,
    bytes_per_second: u64,
    dripping: Range<usize>,
    /// Bytes of the request that were given to the executor.
    given: usize,
    pace: Pace,
}

impl SlowSender {
    fn new(caller: Caller, bytes_per_second: u64, dripping: Range<usize>) -> Self {
        let len = caller.spec().request.keep.len();
        Self {
            caller,
            bytes_per_second,
            dripping: dripping.start.min(len)..dripping.end.min(len),
            given: 0,
            pace: Pace::new(bytes_per_second, 0),
        }
    }

    /// Up to where bytes may be sent now.
    fn allowed(&mut self, now_ns: u64) -> usize {
        let whole = self.caller.spec().request.keep.len();
        if self.given < self.dripping.start {
            return self.dripping.start;
        }
        if self.given == self.dripping.start {
            self.pace = Pace::new(self.bytes_per_second, now_ns);
        }
        let allowed = usize::try_from(self.pace.allowed(now_ns)).unwrap_or(usize::MAX);
        match self.given.saturating_add(allowed) {
            to if to >= self.dripping.end => whole,
            to => to,
        }
    }

    fn is_whole(&self) -> bool {
        self.given == self.caller.spec().request.keep.len()
    }
}

impl VirtualUser for SlowSender {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        self.caller.due_before_connecting(context);
        if let Some(order) = self.caller.order(context) {
            return order;
        }
        if self.is_whole() && self.caller.exchange().is_out() {
            return self.caller.receive(RECEIVE_BYTES, context);
        }
        if !self.caller.exchange().is_out() {
            self.given = 0;
            self.caller.sends(context);
        }
        let (from, to) = (self.given, self.allowed(context.now_ns));
        if from == to {
            return Order::ReceiveUntil {
                bytes_max: RECEIVE_BYTES,
                ns: self.pace.next_ns(),
            };
        }
        if from >= self.dripping.start {
            self.pace.used((to - from) as u64);
        }
        self.given = to;
        Order::Send(self.caller.spec().request.keep[from..to].to_vec())
    }

    fn connected(&mut self, context: &mut UserContext<'_>) {
        self.caller.connected(context);
        self.given = 0;
    }

    fn sent(&mut self, _context: &mut UserContext<'_>) {}

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        let is_whole = self.is_whole();
        let _ = self.caller.received(bytes, &mut (), is_whole, context);
    }

    fn woken(&mut self, context: &mut UserContext<'_>) {
        self.caller.woken(context);
    }

    fn closed(&mut self, context: &mut UserContext<'_>) {
        let _ = self.caller.closed(context);
    }

    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.caller.failed(kind, context);
    }

    fn abandoned(&mut self, context: &mut UserContext<'_>) {
        self.caller.abandoned(context);
    }

    fn requests_out(&self) -> u32 {
        self.caller.requests_out()
    }
}
