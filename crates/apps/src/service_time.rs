//! The business processing time of the papers: each request takes this much longer.
//!
//! The time is spent in the blocking step, so on a worker where there is one, else in place: that
//! is the difference between the architectures which the papers measure. A service time of zero
//! still sends every request through the workers.

use std::time::Duration;

pub use loadline_base::choices::ServiceKind;
use loadline_proto::{Context, Exchange, Handler, Outcome, Port, Task};
use rustix::time::{ClockId, clock_gettime};

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

    fn mounts(&self) -> Vec<String> {
        self.inner.mounts()
    }

    fn local(&self) -> Self::Local {
        self.inner.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Outcome {
        exchange.answer_as_data = true;
        match self.inner.handle(local, exchange, cx) {
            Outcome::Ready => {
                exchange.inner_ready = true;
                Outcome::Blocking
            }
            other => {
                exchange.stands_if_refused = false; // it would not have taken its time
                other
            }
        }
    }

    fn is_exempt(&self, exchange: &Exchange) -> bool {
        self.inner.is_exempt(exchange)
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

    fn release_unused(&self, cx: &Context<'_>) -> bool {
        self.inner.release_unused(cx)
    }
}

/// Spends `time` on this thread: never less. A sleep ends later by the timer slack of the thread
/// and the time it takes to wake up, a spin by as long as it takes to read the thread's CPU clock.
pub fn spend(time: Duration, kind: ServiceKind) {
    match kind {
        _ if time.is_zero() => {}
        ServiceKind::Sleep => std::thread::sleep(time),
        ServiceKind::Spin => {
            let until = thread_cpu() + time;
            while thread_cpu() < until {
                std::hint::spin_loop();
            }
        }
    }
}

/// CPU time that this thread has used.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    /// Puts this thread on the first CPU that it may use.
    fn to_the_first_cpu() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        let mut one = CpuSet::new();
        one.set(first.unwrap());
        sched_setaffinity(None, &one).unwrap();
    }

    #[test]
    fn mounts_are_those_of_what_it_wraps() {
        struct Mounted;
        impl Handler for Mounted {
            type Local = ();

            fn mounts(&self) -> Vec<String> {
                vec!["/".into(), "/app".into()]
            }

            fn local(&self) {}

            fn handle(&self, (): &mut (), _: &mut Exchange, _: &mut Context<'_>) -> Outcome {
                Outcome::Ready
            }

            fn handle_blocking(&self, _: &mut Exchange) {}
        }
        let slow = ServiceTime::new(Mounted, Duration::ZERO, ServiceKind::Sleep);
        assert_eq!(slow.mounts(), ["/", "/app"]);
    }

    /// It used to be time that passed: of two threads on one CPU, each then computed half of it.
    #[test]
    fn a_spin_is_cpu_time_also_where_others_have_the_cpu() {
        const TIME: Duration = Duration::from_millis(60);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                to_the_first_cpu();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let spinner = scope.spawn(|| {
                to_the_first_cpu();
                let before = thread_cpu();
                spend(TIME, ServiceKind::Spin);
                thread_cpu() - before
            });
            let used = spinner.join().unwrap();
            is_over.store(true, Ordering::Relaxed);
            assert!(used >= TIME, "{used:?}");
        });
    }

    #[test]
    fn a_sleep_is_time_that_passes() {
        let (begun, before) = (Instant::now(), thread_cpu());
        spend(Duration::from_millis(20), ServiceKind::Sleep);
        let used = thread_cpu() - before;
        assert!(begun.elapsed() >= Duration::from_millis(20) && used < Duration::from_millis(20));
    }
}
