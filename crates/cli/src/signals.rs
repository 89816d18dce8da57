//! What signals do to a running server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use loadline_server::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::access_log::AccessLogWriter;
use crate::failure::Exit;

/// How long threads may take to notice that they are cut. A handler that is at work cannot notice;
/// then the process ends without it. A little longer than the server itself waits for threads, so
/// that it can still say what was cut.
const NOTICE: Duration = Duration::from_millis(800);

/// Signals from the moment they are caught; before that they have their usual effect.
pub(crate) struct Caught(Signals);

/// Catches them. To be called before the server starts, so that none is missed.
pub(crate) fn catch() -> io::Result<Caught> {
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map(Caught)
}

impl Caught {
    /// Obeys them on a thread of its own, until the process ends.
    pub(crate) fn obey(
        mut self,
        control: Control,
        grace: Duration,
        access_log: Option<Arc<AccessLogWriter>>,
    ) -> io::Result<()> {
        let obey = move || {
            let mut is_draining = false;
            for signal in self.0.forever() {
                match (signal, is_draining) {
                    (SIGHUP, _) => {
                        if let Some(log) = &access_log {
                            log.reopen();
                        }
                    }
                    (_, false) => {
                        is_draining = true;
                        tracing::info!("draining, for {grace:?} at most; a second signal cuts it");
                        control.drain();
                        end_after(grace + NOTICE);
                    }
                    (_, true) => {
                        tracing::warn!("a second signal: ending now");
                        control.stop_now();
                        end_after(NOTICE);
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(obey)?;
        Ok(())
    }
}

/// Ends the process if the server has not done so by itself.
fn end_after(patience: Duration) {
    let end = move || {
        std::thread::sleep(patience);
        tracing::error!("threads are stuck; ending without them");
        std::process::exit(Exit::Cut as i32);
    };
    if let Err(error) = std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(end)
    {
        tracing::error!("no watchdog: {error}");
    }
}
