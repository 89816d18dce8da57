//! Lines for the operator: at a bounded rate where a client can cause them, and harmless to the
//! thread that says them, whatever the listener does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use loadline_base::{LogLimit, Suppressed};

/// Lines of one kind in ten seconds: enough to see what goes on, too few to fill a disk.
pub(crate) const LINES_MAX: u32 = 20;

/// Says a line. A listener that panics costs the line, and nothing else.
#[cold]
pub(crate) fn say(line: impl FnOnce()) {
    harmless(line);
}

/// Hands something to a listener, who may panic.
#[inline]
pub(crate) fn harmless(hand: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(hand)) {
        drop_panic(panic);
    }
}

/// Drops what somebody has panicked with. Its own drop may panic as well: that one is the last.
pub(crate) fn drop_panic(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
}

/// The same for a line that a client can cause. It is to end with what was suppressed.
#[cold]
pub(crate) fn say_within(limit: &LogLimit, line: impl FnOnce(Suppressed)) {
    if let Some(suppressed) = limit.admit(Instant::now()) {
        say(|| line(suppressed));
    }
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Somebody else's code has panicked.
#[cold]
pub(crate) fn log_panic(who: &str, panic: &(dyn Any + Send)) {
    static LIMIT: LogLimit = LogLimit::new(LINES_MAX);
    let text = panic_text(panic);
    say_within(&LIMIT, |more| {
        tracing::error!("{who} panicked: {text}{more}")
    });
}
