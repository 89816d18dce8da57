//! Clients that vanish in the middle: tabs that are closed, phones that enter tunnels, crashes.
//!
//! By turns, each member
//!
//! 1. sends half of a request,
//! 2. sends a whole one,
//! 3. sends a whole one and reads half of the content of its answer (of what is known of it; at
//!    most 64 KiB),
//!
//! and vanishes: by reset in one round of these three, by an ordinary close in the next. It comes
//! back after a pause between 50 and 150 ms. Members begin at different turns.
//!
//! Of what it leaves behind it will never know the answer: such a request counts as unfinished. An
//! answer that was complete before the client vanished counts as what it was.

use std::sync::Arc;

use loadline_load::seed;
use loadline_record::ErrorKind;

use crate::caller::Caller;
use crate::exchange::RequestSpec;
use crate::{Order, UserContext, UserGroup, VirtualUser};

/// Members of this user group vanish in the middle. For `server` and `group` see [`UserGroup`].
#[must_use]
pub fn user_group(group: u16, server: u16, count: u64, spec: RequestSpec) -> UserGroup {
    let spec = Arc::new(spec);
    let make = Arc::new(move |number, seed| {
        let caller = Caller::new(Arc::clone(&spec), false);
        Box::new(Vanishing::new(caller, number, seed)) as Box<dyn VirtualUser>
    });
    UserGroup::new(group, server, count, make)
}

const PAUSE_NS_MIN: u64 = 50_000_000;
const PAUSE_NS_SPREAD: u64 = 100_000_000;
/// What is received at once until it is known how much half of the content is: small, so that most
/// answers are not complete by then.
const RECEIVE_BYTES: usize = 512;
/// Who reads more than this is a reader.
const HALF_BYTES_MAX: u64 = 64 << 10;

/// When it vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    HalfARequest,
    ARequest,
    HalfAnAnswer,
}

struct Vanishing {
    caller: Caller,
    turn: u64,
    pause_ns: u64,
    /// Whether the request, or the half of it, was given to the executor.
    is_given: bool,
    /// Bytes of content that will be left unread, once they are known.
    unread_bytes: Option<u64>,
}

impl Vanishing {
    fn new(caller: Caller, number: u64, seed: u64) -> Self {
        Self {
            caller,
            turn: number,
            pause_ns: PAUSE_NS_MIN + seed::mixed(seed ^ number) % PAUSE_NS_SPREAD,
            is_given: false,
            unread_bytes: None,
        }
    }

    fn manner(&self) -> Manner {
        match self.turn % 3 {
            0 => Manner::HalfARequest,
            1 => Manner::ARequest,
            _ => Manner::HalfAnAnswer,
        }
    }

    fn vanish(&mut self, context: &mut UserContext<'_>) {
        let reset = (self.turn / 3).is_multiple_of(2);
        self.turn += 1;
        let until_ns = context.now_ns.saturating_add(self.pause_ns);
        self.caller.vanish(reset, until_ns, context);
    }
}

impl VirtualUser for Vanishing {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        self.caller.due_before_connecting(context);
        if let Some(order) = self.caller.order(context) {
            return order;
        }
        if self.is_given {
            let left = self.caller.exchange().content_left().unwrap_or(0);
            let wanted = left.saturating_sub(self.unread_bytes.unwrap_or(left));
            let most = RECEIVE_BYTES.max(usize::try_from(wanted).unwrap_or(RECEIVE_BYTES));
            return self.caller.receive(most, context);
        }
        self.is_given = true;
        self.caller.sends(context);
        let request = &self.caller.spec().request.keep;
        let len = match self.manner() {
            Manner::HalfARequest => request.len() / 2,
            _ => request.len(),
        };
        Order::Send(request[..len].to_vec())
    }

    fn connected(&mut self, context: &mut UserContext<'_>) {
        self.caller.connected(context);
        self.is_given = false;
        self.unread_bytes = None;
    }

    fn sent(&mut self, context: &mut UserContext<'_>) {
        if self.manner() != Manner::HalfAnAnswer {
            self.vanish(context);
        }
    }

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        let _ = self.caller.received(bytes, &mut (), true, context);
        if !self.caller.exchange().has_request() {
            return self.vanish(context); // it came whole
        }
        let Some(left) = self.caller.exchange().content_left() else {
            return;
        };
        let unread_bytes = *self
            .unread_bytes
            .get_or_insert_with(|| left - (left / 2).min(HALF_BYTES_MAX));
        if left <= unread_bytes {
            self.vanish(context);
        }
    }

    fn woken(&mut self, context: &mut UserContext<'_>) {
        self.caller.woken(context);
    }

    fn closed(&mut self, context: &mut UserContext<'_>) {
        let _ = self.caller.closed(context);
        self.turn += 1;
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
