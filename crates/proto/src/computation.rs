//! Work of a session that takes a processor for longer than a loop may be held up.

use core::any::Any;
use core::fmt::Debug;

/// Work that takes a processor for a while and waits for nothing: the asymmetric cryptography of a
/// handshake. It goes wherever there is time for it, and comes back to the session that has ordered it.
/// Or requests that a worker parses and carries out (`Offload`).
pub trait Computation: Any + Debug + Send {
    /// Does it. Not called if there was no room for it; what comes back then is what was ordered.
    fn carry_out(&mut self);

    /// Whether nobody needs what comes of it any more: its connection is closed.
    fn is_abandoned(&self) -> bool {
        false
    }
}
