//! What signals do to a running server.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadline_server::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::diagnostics;
use crate::failure::Exit;

/// How long threads may take to notice that they are cut. A handler that is at work cannot notice;
/// then the process ends without it. A little longer than the server itself waits for threads, so
/// that it can still say what was cut.
const NOTICE: Duration = Duration::from_millis(800);

/// How long going down may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Before the drain, for load balancers to notice.
    pub(crate) delay: Duration,
    /// For the drain.
    pub(crate) grace: Duration,
}

/// Whether all connections have ended, so that no thread is stuck with one.
static HAS_SERVED: AtomicBool = AtomicBool::new(false);

/// Held while a step is taken and said, neither of which waits for anything.
static STEP: Mutex<()> = Mutex::new(());

/// All connections have ended, and nothing that is left to do takes long. What ended them has been
/// said when this returns.
pub(crate) fn served() {
    HAS_SERVED.store(true, Ordering::Relaxed);
    drop(STEP.lock());
}

/// Signals from the moment they are caught; before that they have their usual effect.
pub(crate) struct Caught(Signals);

/// Catches them. To be called before the server starts, so that none is missed.
pub(crate) fn catch() -> io::Result<Caught> {
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map(Caught)
}

impl Caught {
    /// Obeys them on a thread of its own, until the process ends. `hang_up` is what SIGHUP asks for.
    pub(crate) fn obey(
        mut self,
        control: Control,
        times: Times,
        hang_up: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let obey = move || follow(self.0.forever(), &control, times, hang_up);
        let thread = std::thread::Builder::new().name("signals".into());
        thread.spawn(obey).map(drop)
    }
}

/// Obeys one signal after the other. A panic ends the server: one that no signal ends would have to be
/// killed.
fn follow(
    signals: impl IntoIterator<Item = i32>,
    control: &Control,
    times: Times,
    hang_up: impl Fn(),
) {
    let obey = || {
        for signal in signals {
            match signal {
                SIGHUP => hang_up(),
                _ => go_down(control, times),
            }
        }
    };
    if catch_unwind(AssertUnwindSafe(obey)).is_err() {
        control.stop_now();
        end_after(NOTICE);
        diagnostics::print("loadline: the signals' thread has panicked; ending now\n");
    }
}

/// The next step of going down: the delay, if there is one, then the drain, then the end. Each is
/// taken before anything is said about it.
fn go_down(control: &Control, times: Times) {
    let _step = STEP.lock();
    let Times { delay, grace } = times;
    let next = match delay.is_zero() {
        true => "a second signal",
        false => "another signal",
    };
    if control.is_ready() && !delay.is_zero() {
        control.drain_after(delay);
        end_after(delay + grace + NOTICE);
        tracing::info!("not ready any more; draining in {delay:?}, or at a second signal");
    } else if !control.is_draining() {
        control.drain();
        end_after(grace + NOTICE);
        tracing::info!("draining, for {grace:?} at most; {next} cuts it");
    } else {
        control.stop_now();
        end_after(NOTICE);
        tracing::warn!("{next}: ending now");
    }
}

/// Ends the process if the server has not done so by itself.
fn end_after(timeout: Duration) {
    let end = move || {
        std::thread::sleep(timeout);
        if HAS_SERVED.load(Ordering::Relaxed) {
            return;
        }
        tracing::error!("threads are stuck; ending without them");
        diagnostics::finish();
        std::process::exit(Exit::Cut as i32);
    };
    let thread = std::thread::Builder::new().name("watchdog".into());
    if let Err(error) = thread.spawn(end) {
        tracing::error!("no watchdog: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::start;

    #[test]
    fn a_panic_where_signals_are_obeyed_ends_the_server() {
        let server = start();
        let times = Times {
            delay: Duration::ZERO,
            grace: Duration::from_secs(60),
        };
        served(); // so that this process outlives it
        follow([SIGHUP], &server.control(), times, || panic!("on purpose"));
        assert!(server.control().is_draining());
        server.wait().unwrap();
    }
}
