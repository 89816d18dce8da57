//! Signals to a command that measures: the first asks it to end, the second ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Exit, Failure};

/// Whether the command of the lab is to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Whether [`end`] was called.
pub(crate) fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

/// Asks a command of the lab to end; guards end what it started.
pub(crate) fn end() -> bool {
    IS_OVER.store(true, Ordering::Relaxed);
    true
}

/// Catches signals, on a thread of its own, until the process ends. `first` handles the first one, and
/// says whether the command will end by itself.
pub(crate) fn catch(first: impl FnOnce() -> bool + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::signals)?;
    let obey = move || {
        let mut first = Some(first);
        for _ in signals.forever() {
            if !first.take().is_some_and(|first| first()) {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(obey).map_err(Failure::signals)?;
    Ok(())
}

/// Ignores signals in a child: from a terminal they reach the whole group of processes, and the parent
/// decides.
pub(crate) fn leave_to_parent() -> Result<(), Failure> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ignored)).map_err(Failure::signals)?;
    }
    Ok(())
}
