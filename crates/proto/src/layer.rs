//! What changes the bytes of a connection on their way: TLS.

use core::fmt::Debug;
use std::io::IoSlice;
use std::sync::Arc;

use loadline_base::Buffer;

use crate::{Computation, Fault, Security};

/// Changes bytes on their way between a session and its socket. The same for a server and for a
/// client.
pub trait Layer: Debug + Send {
    /// Bytes came from the socket. What they hold for the session is appended to `plain`, what the
    /// layer itself answers to `out`.
    ///
    /// # Errors
    /// The peer breaks the layer's rules. `out` is still sent, then the connection ends.
    fn received(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), Fault>;

    /// Appends plain bytes to `out` in the form that the socket is to have.
    fn send(&mut self, plain: &[u8], out: &mut Buffer);

    /// The same of pieces that follow each other, which may share what frames them.
    fn send_pieces(&mut self, pieces: &[IoSlice<'_>], out: &mut Buffer) {
        for piece in pieces {
            self.send(piece, out);
        }
    }

    /// The session's output ends here (TLS: `close_notify`).
    fn finish(&mut self, out: &mut Buffer);

    /// Whether the session's bytes can be sent: the handshake is over.
    fn is_open(&self) -> bool;

    /// Whether something of the peer's was understood: the handshake has begun.
    fn has_begun(&self) -> bool {
        true
    }

    /// How many bytes have come of something that is understood once the rest has: of a record, of a
    /// first message.
    fn partial_bytes(&self) -> usize {
        0
    }

    /// Whether the peer has said that its output ends.
    fn has_ended(&self) -> bool;

    /// Work on what was received that takes too long for a loop; nothing else of it is done before
    /// `computed`.
    fn take_computation(&mut self) -> Option<Box<dyn Computation>> {
        None
    }

    /// The work was done, or there was no room for it. As `received`, without new bytes.
    ///
    /// # Errors
    /// As `received`; or there was no room.
    fn computed(
        &mut self,
        _computation: Box<dyn Computation>,
        _plain: &mut Buffer,
        _out: &mut Buffer,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// The peer's bytes have ended, and it has not said so: somebody may have cut them.
    fn truncated(&mut self) {}

    /// The time for its handshake was up before that was done.
    fn timed_out(&mut self) {}

    /// The peer has left before its handshake was done, or after that had failed. An end of its bytes and a reset
    /// may both say so.
    fn abandoned(&mut self) {}

    /// What is known of the connection, once it is open.
    fn security(&self) -> Option<&Arc<Security>> {
        None
    }

    /// Memory that it holds beside itself, about.
    fn held_bytes(&self) -> usize {
        0
    }
}
