//! The plain clients of one thread: an epoll loop with connections in slots, closed or open loop.

use std::io;

use crate::{Control, Message, Plan, Share};

/// Runs the plain clients of `share` on the calling thread, to the end of the plan or until
/// `control` stops it.
///
/// Tells `Ready` when its connections are open, waits for the start, tells an `Interval` a second,
/// and `Finished`. After the end it waits for what is still out, up to the timeout.
///
/// # Errors
/// The kernel refuses what every run needs (an epoll instance, say). What happens to a connection is
/// counted instead.
pub fn run(
    _plan: &Plan,
    _share: Share,
    _control: &Control,
    _out: &mut dyn FnMut(Message),
) -> io::Result<()> {
    Ok(())
}
