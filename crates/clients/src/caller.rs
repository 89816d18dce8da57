//! What virtual users have in common: a connection that comes and goes, with a request at a time on it.
//!
//! ```text
//!           ┌───────────── after a pause ──────────────┐
//!           ▼                                          │
//!   away ─ connect ─► here ─ what the virtual user does ─► leaving
//! ```
//!
//! After an answer that lets the connection stay, the next request is due at once. Where it does not
//! stay, the next connection is opened at once; after a failure, only after a pause: 10 ms at first,
//! doubling up to 1 s while connections last less than a second, so that a server that is gone is
//! not called without end. Those are means: each pause is between half of it and one and a half, by
//! the seed and the user's number, so that users who fail at one moment come back at different ones.

use std::sync::Arc;

use loadline_load::seed;
use loadline_proto::Reply;
use loadline_record::ErrorKind;

use crate::exchange::{Exchange, ExchangeProgress, RequestSpec, Watch};
use crate::{Event, Order, UserContext, UserGroup, VirtualUser};

/// The first pause after a failure, in the mean.
const PAUSE_NS_MIN: u64 = 10_000_000;
/// The longest, in the mean, and how long a connection has to last for the pauses to begin anew.
const PAUSE_NS_MAX: u64 = 1_000_000_000;

/// What one kind of virtual user does with its connection and its request.
pub(crate) trait Behaviour: Send + 'static {
    /// Whether it waits for the answer to what is out when the run ends; else it is given up then.
    const WAITS_AT_END: bool = false;

    /// What comes before anything else, a connection too.
    fn first(&mut self, _: &mut Caller, _: &mut UserContext<'_>) -> Option<Order> {
        None
    }
    /// What to do on the open connection.
    fn next_order(&mut self, caller: &mut Caller, context: &mut UserContext<'_>) -> Order;
    /// Something has happened: the caller gets every event, too.
    fn on_event(&mut self, caller: &mut Caller, event: Event<'_>, context: &mut UserContext<'_>) {
        caller.on_event(event, context);
    }
}

/// Virtual users with a behaviour, each made from its number and the plan's seed.
pub(crate) fn user_group<B: Behaviour>(
    spec: RequestSpec,
    make: impl Fn(u64, u64) -> B + Send + Sync + 'static,
) -> UserGroup {
    let spec = Arc::new(spec);
    UserGroup::new(Arc::new(move |number, seed| {
        Box::new(Calling {
            caller: Caller::new(Arc::clone(&spec), seed ^ number),
            behaviour: make(number, seed),
        })
    }))
}

/// A virtual user with a behaviour.
pub(crate) struct Calling<B> {
    pub(crate) caller: Caller,
    pub(crate) behaviour: B,
}

impl<B: Behaviour> VirtualUser for Calling<B> {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        let Self { caller, behaviour } = self;
        if let Some(order) = behaviour.first(caller, context) {
            return order;
        }
        caller.due_before_connecting(context);
        match caller.order(B::WAITS_AT_END, context) {
            Some(order) => order,
            None => behaviour.next_order(caller, context),
        }
    }

    fn on_event(&mut self, event: Event<'_>, context: &mut UserContext<'_>) {
        self.behaviour.on_event(&mut self.caller, event, context);
    }

    fn requests_out(&self) -> u32 {
        u32::from(self.caller.exchange.is_out())
    }
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerState {
    /// It has no connection, and wants none before this moment; after it, one is in the making.
    Away { until_ns: u64 },
    /// It has a connection.
    Here,
    /// It is about to close it, and to stay away until then.
    Leaving { reset: bool, until_ns: u64 },
    /// It does nothing any more.
    Over,
}

/// A client's connection and request.
#[derive(Debug)]
pub(crate) struct Caller {
    spec: Arc<RequestSpec>,
    /// The request and its answer.
    pub(crate) exchange: Exchange,
    state: CallerState,
    /// The mean of the last pause.
    pause_ns: u64,
    /// What the pauses are spread by: another number after each.
    spread: u64,
    opened_ns: u64,
    /// When the answer has to have gone on, while it is awaited.
    silent_until_ns: Option<u64>,
    /// Whether it has had a connection, or failed to.
    has_begun: bool,
}

impl Caller {
    /// Users of different `spread` have different pauses.
    pub(crate) fn new(spec: Arc<RequestSpec>, spread: u64) -> Self {
        Self {
            spec,
            exchange: Exchange::default(),
            state: CallerState::Away { until_ns: 0 },
            pause_ns: 0,
            spread,
            opened_ns: 0,
            silent_until_ns: None,
            has_begun: false,
        }
    }

    /// The next order, as far as it is about the connection; `None`: there is one, and what is done
    /// with it is the virtual user's business.
    fn order(&mut self, waits_at_end: bool, context: &mut UserContext<'_>) -> Option<Order> {
        let is_waiting = waits_at_end && self.exchange.is_out();
        if context.is_ending && self.state != CallerState::Over && !is_waiting {
            self.exchange.given_up(context);
            self.state = CallerState::Over;
            return Some(Order::Close { reset: false });
        }
        match self.state {
            CallerState::Here => None,
            CallerState::Over => Some(Order::Done),
            CallerState::Leaving { reset, until_ns } => {
                self.state = CallerState::Away { until_ns };
                Some(Order::Close { reset })
            }
            CallerState::Away { until_ns } if until_ns > context.now_ns => {
                Some(Order::SleepUntil { ns: until_ns })
            }
            CallerState::Away { .. } => Some(Order::Connect),
        }
    }

    /// What follows from an event.
    pub(crate) fn on_event(&mut self, event: Event<'_>, context: &mut UserContext<'_>) {
        match event {
            Event::Connected => self.connected(context),
            Event::Sent => {}
            Event::Received(bytes) => {
                let _ = self.received(bytes, &mut (), true, context);
            }
            Event::Woken => self.woken(context),
            Event::Closed => self.closed(false, context),
            Event::Cut => self.closed(true, context),
            Event::Failed(kind) => self.failed(kind, context),
            Event::Abandoned => {
                self.exchange.given_up(context);
                self.state = CallerState::Over;
            }
        }
    }

    fn connected(&mut self, context: &UserContext<'_>) {
        self.state = CallerState::Here;
        self.has_begun = true;
        self.opened_ns = context.now_ns;
        self.silent_until_ns = None;
        self.exchange.connected();
    }

    /// Before a connection is opened for a request: that it is due. Not for the first one, which
    /// is opened before the start.
    fn due_before_connecting(&mut self, context: &mut UserContext<'_>) {
        if self.has_begun
            && !context.is_ending
            && matches!(self.state, CallerState::Away { until_ns } if until_ns <= context.now_ns)
        {
            self.exchange.due(context.now_ns, context);
        }
    }

    /// The first byte of the request is about to be sent.
    pub(crate) fn sends(&mut self, context: &mut UserContext<'_>) {
        self.exchange.due(context.now_ns, context);
        self.silent_until_ns = None;
        self.exchange.sent(self.spec.request.method, context);
    }

    /// More of the answer is awaited from now on; the moment at which it has to have come.
    pub(crate) fn silent_until_ns(&mut self, context: &UserContext<'_>) -> u64 {
        let late_ns = context.now_ns.saturating_add(self.spec.timeout_ns);
        *self.silent_until_ns.get_or_insert(late_ns)
    }

    /// Receives more of the answer, which is awaited no longer than for the timeout.
    pub(crate) fn receive(&mut self, bytes_max: usize, context: &UserContext<'_>) -> Order {
        Order::ReceiveUntil {
            bytes_max,
            ns: self.silent_until_ns(context),
        }
    }

    /// A moment has come that was waited for: the request fails if the answer was to have gone on.
    fn woken(&mut self, context: &mut UserContext<'_>) {
        let is_silent = self.silent_until_ns.is_some_and(|ns| ns <= context.now_ns);
        if is_silent && self.state == CallerState::Here {
            self.silent_until_ns = None;
            self.fail(ErrorKind::Timeout, context);
        }
    }

    /// Bytes of the answer came; says what became of it. After that the next request is due at
    /// once, or the connection is about to be closed.
    pub(crate) fn received(
        &mut self,
        bytes: &[u8],
        watch: &mut impl Watch,
        is_whole: bool,
        context: &mut UserContext<'_>,
    ) -> ExchangeProgress {
        self.silent_until_ns = None;
        let spec = &self.spec;
        let progress = self.exchange.received(bytes, watch, spec, context);
        match progress {
            ExchangeProgress::More => {}
            ExchangeProgress::Complete(reply) => self.answered(&reply, is_whole, context),
            ExchangeProgress::Failed => self.leave_after_failure(false, context),
        }
        progress
    }

    /// `is_whole`: all of the request was sent.
    fn answered(&mut self, reply: &Reply, is_whole: bool, context: &UserContext<'_>) {
        if !is_whole {
            return self.leave_after_failure(false, context);
        }
        self.pause_ns = 0;
        if !reply.keep_alive {
            self.leave(false, context.now_ns);
        }
    }

    /// The connection has ended: that may be the end of the answer, unless it was cut.
    fn closed(&mut self, is_cut: bool, context: &mut UserContext<'_>) {
        let progress = match self.exchange.has_request() {
            true => self.exchange.closed(is_cut, &self.spec, context),
            false => ExchangeProgress::More,
        };
        let until_ns = match progress {
            ExchangeProgress::Failed => self.pause_until(context.now_ns),
            _ => context.now_ns,
        };
        self.state = CallerState::Away { until_ns };
    }

    /// The connection did not come to be, or broke.
    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        if !self.has_begun {
            self.exchange.due(context.now_ns, context); // its first request would have been
        }
        self.has_begun = true;
        self.exchange.failed(kind, context);
        let until_ns = self.pause_until(context.now_ns);
        self.state = CallerState::Away { until_ns };
    }

    /// The request has failed by the client's own judgement.
    pub(crate) fn fail(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        self.exchange.failed(kind, context);
        self.leave_after_failure(true, context);
    }

    fn leave_after_failure(&mut self, reset: bool, context: &UserContext<'_>) {
        let until_ns = self.pause_until(context.now_ns);
        self.leave(reset, until_ns);
    }

    /// Closes the connection, gives up what is out, and comes back at `until_ns`.
    pub(crate) fn vanish(&mut self, reset: bool, until_ns: u64, context: &mut UserContext<'_>) {
        self.exchange.given_up(context);
        self.leave(reset, until_ns);
    }

    fn leave(&mut self, reset: bool, until_ns: u64) {
        self.state = CallerState::Leaving { reset, until_ns };
    }

    fn pause_until(&mut self, now_ns: u64) -> u64 {
        let lasted_ns = now_ns.saturating_sub(self.opened_ns);
        self.pause_ns = match self.pause_ns {
            0 => PAUSE_NS_MIN,
            _ if self.state == CallerState::Here && lasted_ns >= PAUSE_NS_MAX => PAUSE_NS_MIN,
            pause_ns => (2 * pause_ns).min(PAUSE_NS_MAX),
        };
        self.spread = seed::mixed(self.spread);
        let spread_ns = self.pause_ns / 2 + self.spread % self.pause_ns;
        now_ns.saturating_add(spread_ns)
    }

    /// Whether nothing is under way: it has a connection, or stays away.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, CallerState::Here | CallerState::Away { .. })
            && !self.exchange.has_request()
    }

    /// The bytes of the request.
    pub(crate) fn request(&self) -> &[u8] {
        &self.spec.request.keep
    }
}
