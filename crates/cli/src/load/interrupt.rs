//! Signals: the first asks for the end, the second is the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use loadline_load::run::RunEvent;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Exit;

/// Catches them, on a thread of its own, until the process ends.
pub(super) fn catch(tell: Sender<RunEvent>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let obey = move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 || tell.send(RunEvent::Interrupted).is_err() {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(obey)?;
    Ok(())
}

/// Ignores them in a child: from a terminal they reach the whole group of processes, and the parent
/// decides.
pub(super) fn leave_to_parent() -> io::Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }
    Ok(())
}
