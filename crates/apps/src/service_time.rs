//! The business processing time of the papers: each request takes so much longer.
//!
//! The time is spent in the blocking step, so on a worker where there is one, else in place: that
//! is the difference between the architectures which the papers measure. A service time of zero
//! still sends every request through the workers.

use std::time::{Duration, Instant};

use loadline_proto::{Exchange, Handler, Outcome, Port, Task, Turn};

/// How the time is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceKind {
    /// The thread sleeps, as if it waited for a disk or a database (P1).
    #[default]
    Sleep,
    /// The thread computes.
    Spin,
}

/// Wraps a handler so that each of its answers takes `time` longer.
#[derive(Debug)]
pub struct ServiceTime<H> {
    inner: H,
    time: Duration,
    kind: ServiceKind,
}

impl<H: Handler> ServiceTime<H> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: H, time: Duration, kind: ServiceKind) -> Self {
        Self { inner, time, kind }
    }
}

impl<H: Handler> Handler for ServiceTime<H> {
    type Local = H::Local;

    fn local(&self) -> Self::Local {
        self.inner.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        match self.inner.handle(local, exchange, turn) {
            Outcome::Ready => {
                exchange.inner_ready = true;
                Outcome::Blocking
            }
            other => other,
        }
    }

    fn handle_blocking(&self, exchange: &mut Exchange) {
        spend(self.time, self.kind);
        if !exchange.inner_ready {
            self.inner.handle_blocking(exchange);
        }
    }

    /// An app's own time is enough: nothing is added to it.
    fn start(&self, exchange: Box<Exchange>, port: Port) -> Task {
        self.inner.start(exchange, port)
    }
}

/// Spends `time` on this thread: never less. A sleep ends later by the timer slack of the thread
/// and the time it takes to wake up.
pub fn spend(time: Duration, kind: ServiceKind) {
    match kind {
        _ if time.is_zero() => {}
        ServiceKind::Sleep => std::thread::sleep(time),
        ServiceKind::Spin => {
            let begun = Instant::now();
            while begun.elapsed() < time {
                std::hint::spin_loop();
            }
        }
    }
}
