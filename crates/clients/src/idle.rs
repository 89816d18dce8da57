//! Connections that only stay: what browsers, pools and balancers leave open.
//!
//! Each virtual user connects, sends one request if one is given (most servers close a connection
//! without a request sooner than one with a request), and then waits. When the server closes the
//! connection, that is counted (`Tally::closes`, no error), and the user connects again after a
//! pause between half a second and one and a half, each after one of its own, so that ten thousand
//! of them do not come back in one moment. What was open at the end is `Tally::held`.
//!
//! A connection that does not come to be is an error of its kind. A user that waits costs no CPU
//! time, and some hundred bytes of memory.

use std::sync::Arc;

use loadline_load::seed;
use loadline_record::ErrorKind;

use crate::exchange::{Exchange, ExchangeProgress, RequestSpec};
use crate::{Event, Order, UserContext, UserGroup, VirtualUser};

/// Users of this group stay, after one request if one is given.
#[must_use]
pub fn user_group(first: Option<RequestSpec>) -> UserGroup {
    let first = first.map(Arc::new);
    UserGroup::new(Arc::new(move |number, seed| {
        Box::new(Idle {
            first: first.clone(),
            exchange: None,
            state: State::Away { until_ns: 0 },
            pause_ns: PAUSE_NS_MIN + seed::mixed(seed ^ number) % PAUSE_NS_SPREAD,
        })
    }))
}

/// What is received at once: nothing but answers to one request are expected.
const RECEIVE_BYTES: usize = 16 << 10;
const PAUSE_NS_MIN: u64 = 500_000_000;
const PAUSE_NS_SPREAD: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To connect at this moment.
    Away {
        until_ns: u64,
    },
    /// To send the request.
    Connected,
    /// The request is being sent, or its answer is awaited, until then.
    Waiting {
        until_ns: u64,
    },
    Staying,
    /// To close.
    Leaving,
    Over,
}

struct Idle {
    first: Option<Arc<RequestSpec>>,
    /// While there is a request.
    exchange: Option<Box<Exchange>>,
    state: State,
    pause_ns: u64,
}

/// Bytes that a user takes beside what the executor keeps of it.
#[cfg(test)]
pub(super) const USER_BYTES: usize = size_of::<Idle>();

impl Idle {
    fn go_away(&mut self, now_ns: u64) {
        let until_ns = now_ns.saturating_add(self.pause_ns);
        self.state = State::Away { until_ns };
        self.exchange = None;
    }

    /// The answer to the request is over, well or not.
    fn answered(&mut self, progress: ExchangeProgress, context: &mut UserContext<'_>) {
        self.state = match progress {
            ExchangeProgress::More => return self.wait(context.now_ns),
            ExchangeProgress::Complete(reply) if reply.keep_alive => State::Staying,
            ExchangeProgress::Complete(_) => {
                context.recorder.tally(context.phase).closes += 1; // it may not stay
                State::Leaving
            }
            ExchangeProgress::Failed => State::Leaving,
        };
        self.exchange = None;
    }

    fn wait(&mut self, now_ns: u64) {
        let timeout_ns = self.first.as_ref().map_or(0, |spec| spec.timeout_ns);
        let until_ns = now_ns.saturating_add(timeout_ns);
        self.state = State::Waiting { until_ns };
    }

    fn send(&mut self, spec: &RequestSpec, context: &mut UserContext<'_>) -> Order {
        let mut exchange = Box::<Exchange>::default();
        exchange.due(context.now_ns, context);
        exchange.sent(spec.request.method, context);
        self.exchange = Some(exchange);
        self.wait(context.now_ns);
        Order::Send(spec.request.keep.to_vec())
    }

    fn received(&mut self, bytes: &[u8], context: &mut UserContext<'_>) {
        // Bytes to one that stays: servers may say why they are about to close (408, say).
        if let (Some(exchange), Some(spec)) = (&mut self.exchange, &self.first) {
            let progress = exchange.received(bytes, &mut (), spec, context);
            self.answered(progress, context);
        }
    }

    fn closed(&mut self, is_cut: bool, context: &mut UserContext<'_>) {
        match (self.exchange.take(), self.first.clone()) {
            (Some(mut exchange), Some(spec)) => {
                let progress = exchange.closed(is_cut, &spec, context);
                let is_complete = matches!(progress, ExchangeProgress::Complete(_));
                context.recorder.tally(context.phase).closes += u64::from(is_complete);
            }
            _ => context.recorder.tally(context.phase).closes += 1,
        }
        self.go_away(context.now_ns);
    }

    fn failed(&mut self, kind: ErrorKind, context: &mut UserContext<'_>) {
        match (self.state, &mut self.exchange) {
            (_, Some(exchange)) => exchange.failed(kind, context),
            (State::Staying | State::Connected, _) => {
                context.recorder.tally(context.phase).closes += 1;
            }
            _ => context.recorder.tally(context.phase).error(kind),
        }
        self.go_away(context.now_ns);
    }
}

impl VirtualUser for Idle {
    fn next_order(&mut self, context: &mut UserContext<'_>) -> Order {
        let is_asking = matches!(self.state, State::Waiting { .. });
        if context.is_ending && !is_asking && self.state != State::Over {
            let stays = matches!(self.state, State::Staying | State::Connected);
            context.recorder.tally(context.phase).held += u64::from(stays);
            self.state = State::Over;
            return Order::Close { reset: false };
        }
        match self.state {
            State::Away { until_ns } if until_ns > context.now_ns => {
                Order::SleepUntil { ns: until_ns }
            }
            State::Away { .. } => Order::Connect,
            State::Connected => match self.first.clone() {
                Some(spec) => self.send(&spec, context),
                None => {
                    self.state = State::Staying;
                    self.next_order(context)
                }
            },
            State::Staying => Order::Receive {
                bytes_max: RECEIVE_BYTES,
            },
            State::Waiting { until_ns } => Order::ReceiveUntil {
                bytes_max: RECEIVE_BYTES,
                ns: until_ns,
            },
            State::Leaving => {
                self.go_away(context.now_ns);
                Order::Close { reset: false }
            }
            State::Over => Order::Done,
        }
    }

    fn on_event(&mut self, event: Event<'_>, context: &mut UserContext<'_>) {
        match event {
            Event::Connected => self.state = State::Connected,
            Event::Sent => self.wait(context.now_ns),
            Event::Received(bytes) => self.received(bytes, context),
            Event::Woken => {
                if let (State::Waiting { .. }, Some(exchange)) = (self.state, &mut self.exchange) {
                    exchange.failed(ErrorKind::Timeout, context);
                    self.state = State::Leaving;
                }
            }
            Event::Closed => self.closed(false, context),
            Event::Cut => self.closed(true, context),
            Event::Failed(kind) => self.failed(kind, context),
            Event::Abandoned => {
                if let Some(exchange) = &mut self.exchange {
                    exchange.given_up(context);
                }
            }
        }
    }

    fn requests_out(&self) -> u32 {
        let exchange = self.exchange.as_ref();
        u32::from(exchange.is_some_and(|exchange| exchange.is_out()))
    }
}
