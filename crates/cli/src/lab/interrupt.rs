//! Signals: the first asks for the end, the second is the end; guards end what was started.

use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Exit, Failure};

/// Whether somebody wants the command to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether somebody wants the command to end.
pub(super) fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

/// Catches them, on a thread of its own, until the process ends.
pub(super) fn catch() -> Result<(), Failure> {
    let named = |error| Failure::failed(format!("signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(named)?;
    let obey = move || {
        for _ in signals.forever() {
            if IS_OVER.swap(true, Ordering::Relaxed) {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(obey).map_err(named)?;
    Ok(())
}
