//! Signals: the first asks for the end, the second is the end.

use std::io;
use std::sync::mpsc::Sender;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::team::Told;
use crate::failure::Exit;

/// Catches them, on a thread of its own, until the process ends.
pub(super) fn catch(tell: Sender<Told>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let obey = move || {
        for (count, _) in signals.forever().enumerate() {
            if count > 0 || tell.send(Told::Signal).is_err() {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(obey)?;
    Ok(())
}
