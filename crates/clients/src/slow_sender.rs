//! Clients of whose requests a part drips: what slow heads and slow bodies have in common.
//!
//! What lies before the part is sent at once, the part itself at a set rate: a tenth of a second's
//! worth (at least a byte) at a time; the rest at once again. Between the drops the client listens:
//! a server that has had enough and says so (408) is heard, and counted by its status; one that
//! closes without a word is `closed_early`, one that resets is `reset`. Then the client calls again
//! after a pause of 10 ms, doubling up to 1 s while its connections last less than a second. A
//! request that gets through is awaited like any other, and followed by the next one.

use std::ops::Range;
use std::sync::Arc;

use loadline_record::ErrorKind;

use crate::caller::Caller;
use crate::exchange::Asked;
use crate::pace::Pace;
use crate::{Actor, Crowd, Order, Scene};

/// What is received at once.
const RECEIVE_BYTES: usize = 16 << 10;

/// A crowd of which each member lets the bytes `dripping` of its request drip.
pub(super) fn crowd(
    group: u16,
    server: u16,
    count: u64,
    bytes_per_second: u64,
    asked: Asked,
    dripping: Range<usize>,
) -> Crowd {
    let asked = Arc::new(asked);
    let cast = Arc::new(move |_, _| {
        let caller = Caller::new(Arc::clone(&asked), false);
        Box::new(SlowSender::new(caller, bytes_per_second, dripping.clone())) as Box<dyn Actor>
    });
    Crowd::new(group, server, count, cast)
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
    /// Bytes of the request that were given to the stage.
    given: usize,
    pace: Pace,
}

impl SlowSender {
    fn new(caller: Caller, bytes_per_second: u64, dripping: Range<usize>) -> Self {
        let len = caller.asked().request.keep.len();
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
        let whole = self.caller.asked().request.keep.len();
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
        self.given == self.caller.asked().request.keep.len()
    }
}

impl Actor for SlowSender {
    fn next_order(&mut self, scene: &mut Scene<'_>) -> Order {
        self.caller.due_before_connecting(scene);
        if let Some(order) = self.caller.order(scene) {
            return order;
        }
        if self.is_whole() && self.caller.exchange().is_out() {
            return self.caller.receive(RECEIVE_BYTES, scene);
        }
        if !self.caller.exchange().is_out() {
            self.given = 0;
            self.caller.sends(scene);
        }
        let (from, to) = (self.given, self.allowed(scene.now_ns));
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
        Order::Send(self.caller.asked().request.keep[from..to].to_vec())
    }

    fn connected(&mut self, scene: &mut Scene<'_>) {
        self.caller.connected(scene);
        self.given = 0;
    }

    fn sent(&mut self, _scene: &mut Scene<'_>) {}

    fn received(&mut self, bytes: &[u8], scene: &mut Scene<'_>) {
        let is_whole = self.is_whole();
        let _ = self.caller.received(bytes, &mut (), is_whole, scene);
    }

    fn woken(&mut self, scene: &mut Scene<'_>) {
        self.caller.woken(scene);
    }

    fn closed(&mut self, scene: &mut Scene<'_>) {
        let _ = self.caller.closed(scene);
    }

    fn failed(&mut self, kind: ErrorKind, scene: &mut Scene<'_>) {
        self.caller.failed(kind, scene);
    }

    fn abandoned(&mut self, scene: &mut Scene<'_>) {
        self.caller.abandoned(scene);
    }

    fn requests_out(&self) -> u32 {
        self.caller.requests_out()
    }
}
