//! Clients that vanish in the middle: tabs that are closed, phones that enter tunnels, crashes.
//!
//! By turns, each virtual user
//!
//! 1. sends half of a request,
//! 2. sends a whole one,
//! 3. sends a whole one and reads half of the content of its answer (of what is known of it; at
//!    most 64 KiB),
//!
//! and vanishes: by reset in one round of these three, by an ordinary close in the next. It comes
//! back after a pause between 50 and 150 ms. Users begin at different turns.
//!
//! Of what it leaves behind it will never know the answer: such a request counts as unfinished. An
//! answer that was complete before the client vanished counts as what it was.

use loadline_load::seed;

use crate::caller::{self, Behaviour, Caller};
use crate::exchange::RequestSpec;
use crate::{Event, Order, UserContext, UserGroup};

/// Users of this group vanish in the middle.
#[must_use]
pub fn user_group(spec: RequestSpec) -> UserGroup {
    caller::user_group(spec, |number, seed| Vanishing {
        turn: number,
        pause_ns: PAUSE_NS_MIN + seed::mixed(seed ^ number) % PAUSE_NS_SPREAD,
        unread_bytes: None,
    })
}

const PAUSE_NS_MIN: u64 = 50_000_000;
const PAUSE_NS_SPREAD: u64 = 100_000_000;
/// What is received at once until it is known how much half of the content is: small, so that most
/// answers are not complete by then.
const RECEIVE_BYTES: usize = 512;
/// A client that reads more than this is a reader.
const HALF_BYTES_MAX: u64 = 64 << 10;

/// When it vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    HalfARequest,
    ARequest,
    HalfAnAnswer,
}

struct Vanishing {
    turn: u64,
    pause_ns: u64,
    /// Bytes of content that will be left unread, once they are known.
    unread_bytes: Option<u64>,
}

impl Vanishing {
    fn manner(&self) -> Manner {
        match self.turn % 3 {
            0 => Manner::HalfARequest,
            1 => Manner::ARequest,
            _ => Manner::HalfAnAnswer,
        }
    }

    fn vanish(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) {
        let reset = (self.turn / 3).is_multiple_of(2);
        self.turn += 1;
        let until_ns = context.now_ns.saturating_add(self.pause_ns);
        caller.vanish(reset, until_ns, context);
    }

    /// Whether it has read as much of the answer as it wants.
    fn has_enough(&mut self, caller: &Caller) -> bool {
        if !caller.exchange.has_request() {
            return true; // it came whole
        }
        let Some(left) = caller.exchange.content_left() else {
            return false;
        };
        let unread_bytes = *self
            .unread_bytes
            .get_or_insert_with(|| left - (left / 2).min(HALF_BYTES_MAX));
        left <= unread_bytes
    }
}

impl Behaviour for Vanishing {
    fn next_order(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order {
        if caller.exchange.is_out() {
            let left = caller.exchange.content_left().unwrap_or(0);
            let wanted = left.saturating_sub(self.unread_bytes.unwrap_or(left));
            let most = RECEIVE_BYTES.max(usize::try_from(wanted).unwrap_or(RECEIVE_BYTES));
            return caller.receive(most, context);
        }
        caller.sends(context);
        let request = caller.request();
        let len = match self.manner() {
            Manner::HalfARequest => request.len() / 2,
            _ => request.len(),
        };
        Order::Send(request[..len].to_vec())
    }

    fn on_event(&mut self, caller: &mut Caller, event: Event<'_>, context: &mut UserContext<'_>) {
        caller.on_event(event, context);
        match event {
            Event::Connected => self.unread_bytes = None,
            Event::Sent if self.manner() != Manner::HalfAnAnswer => self.vanish(caller, context),
            Event::Received(_) if self.has_enough(caller) => self.vanish(caller, context),
            Event::Closed | Event::Cut => self.turn += 1,
            _ => {}
        }
    }
}
