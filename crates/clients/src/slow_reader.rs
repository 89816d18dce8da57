//! Clients that read slowly: on a bad mobile link, or on purpose.
//!
//! Each member sends its request, and reads the answer at a set rate: a portion of a tenth of a
//! second's worth (at least a byte) at a time, and nothing between. Its receive buffer is bounded
//! to a second's worth, at least 4 KiB, before it connects, so the server cannot hand the answer to
//! the kernel of the reader at once; Linux doubles that bound. After the answer it asks again, on
//! the same connection if that may stay. An answer that has not gone on for the timeout, though the
//! reader wanted to read, is a timeout; a connection that the server cuts is an error of its kind.

use std::sync::Arc;

use loadline_record::ErrorKind;

use crate::caller::Caller;
use crate::exchange::RequestSpec;
use crate::pace::Pace;
use crate::{Order, UserContext, UserGroup, VirtualUser};

/// Each member of this user group reads `bytes_per_second`. For `server` and `group` see [`UserGroup`].
#[must_use]
pub fn user_group(
    group: u16,
    server: u16,
    count: u64,
    bytes_per_second: u64,
    spec: RequestSpec,
) -> UserGroup {
    let spec = Arc::new(spec);
    let make = Arc::new(move |_, _| {
        Box::new(SlowReader::new(Arc::clone(&spec), bytes_per_second)) as Box<dyn VirtualUser>
    });
    let buffer_bytes = usize::try_from(bytes_per_second).unwrap_or(usize::MAX);
    UserGroup {
        receive_buffer_bytes: Some(buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)),
        ..UserGroup::new(group, server, count, make)
    }
}

/// Below this TCP advertises windows so small that silly-window avoidance decides the pace.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Beyond this the buffer is no bound worth having.
const BUFFER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To send the next request.
    Free,
    Sending,
    Reading,
}

struct SlowReader {
    caller: Caller,
    bytes_per_second: u64,
    pace: Pace,
    state: State,
}

impl SlowReader {
    fn new(spec: Arc<RequestSpec>, bytes_per_second: u64) -> Self {
        Self {
            caller: Caller::new(spec, false),
            bytes_per_second,
            pace: Pace::new(bytes_per_second, 0),
            state: State::Free,
        }
    }

    fn read(&mut self, context: &UserContext<'_>) -> Order {
        match self.pace.allowed(context.now_ns) {
            0 => Order::SleepUntil {
                ns: self.pace.next_ns(),
            },
            allowed => {
                let bytes_max = usize::try_from(allowed).unwrap_or(usize::MAX);
                self.caller.receive(bytes_max, context)
            }
        }
    }
}

impl VirtualUser for SlowReader {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        self.caller.due_before_connecting(context);
        if let Some(order) = self.caller.order(context) {
            return order;
        }
        match self.state {
            State::Free => {
                self.caller.sends(context);
                self.state = State::Sending;
                Order::Send(self.caller.spec().request.keep.to_vec())
            }
            State::Sending | State::Reading => self.read(context),
        }
    }

    fn connected(&mut self, context: &mut UserContext<'_>) {
        self.caller.connected(context);
        self.state = State::Free;
    }

    fn sent(&mut self, context: &mut UserContext<'_>) {
        self.state = State::Reading;
        self.pace = Pace::new(self.bytes_per_second, context.now_ns);
    }

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        self.pace.used(bytes.len() as u64);
        let _ = self.caller.received(bytes, &mut (), true, context);
        if !self.caller.exchange().has_request() {
            self.state = State::Free;
        }
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
