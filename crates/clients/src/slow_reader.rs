//! Clients that read slowly: on a bad mobile link, or on purpose.
//!
//! Each virtual user sends its request, and reads the answer at a set rate: a portion of a tenth of a
//! second's worth (at least a byte) at a time, and nothing between. Its receive buffer is bounded
//! to a second's worth, at least 4 KiB, before it connects, so the server cannot hand the answer to
//! the kernel of the reader at once; Linux doubles that bound. After the answer it asks again, on
//! the same connection if that may stay. An answer that has not gone on for the timeout, though the
//! reader wanted to read, is a timeout; a connection that the server cuts is an error of its kind.

use crate::caller::{self, Behaviour, Caller};
use crate::exchange::RequestSpec;
use crate::pace::Pace;
use crate::{Event, Order, UserContext, UserGroup};

/// Each user of this group reads `bytes_per_second`.
#[must_use]
pub fn user_group(bytes_per_second: u64, spec: RequestSpec) -> UserGroup {
    let buffer_bytes = usize::try_from(bytes_per_second).unwrap_or(usize::MAX);
    UserGroup {
        receive_buffer_bytes: Some(buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)),
        ..caller::user_group(spec, move |_, _| SlowReader {
            bytes_per_second,
            pace: Pace::new(bytes_per_second, 0),
        })
    }
}

/// Below this TCP advertises windows so small that silly-window avoidance decides the pace.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Beyond this the buffer is no bound worth having.
const BUFFER_BYTES_MAX: usize = 1 << 20;

struct SlowReader {
    bytes_per_second: u64,
    pace: Pace,
}

impl Behaviour for SlowReader {
    fn next_order(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order {
        if !caller.exchange.is_out() {
            caller.sends(context);
            return Order::Send(caller.request().to_vec());
        }
        match self.pace.allowed(context.now_ns) {
            0 => Order::SleepUntil {
                ns: self.pace.next_ns(),
            },
            allowed => {
                let bytes_max = usize::try_from(allowed).unwrap_or(usize::MAX);
                caller.receive(bytes_max, context)
            }
        }
    }

    fn on_event(&mut self, caller: &mut Caller, event: Event<'_>, context: &mut UserContext<'_>) {
        match event {
            Event::Sent => self.pace = Pace::new(self.bytes_per_second, context.now_ns),
            Event::Received(bytes) => self.pace.used(bytes.len() as u64),
            _ => {}
        }
        caller.on_event(event, context);
    }
}
