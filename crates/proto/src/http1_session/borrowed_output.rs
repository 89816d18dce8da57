//! The connection's output, lent to the handler's quick step: `Exchange::answer_borrowed` encodes a small
//! response behind what waits there, in one copy.

use loadline_base::Buffer;

use crate::exchange::BorrowedOutput;
use crate::{Body, Exchange};

impl Exchange {
    /// Lends it the output, until `take_output`.
    pub(crate) fn lend_output(&mut self, output: Buffer) {
        let len = output.len();
        self.borrowed_output = Some(BorrowedOutput { output, len });
    }

    /// Takes the borrowed output back. An answer that was encoded behind it stays if it `stands` and the
    /// handler has not started over since (an error after a panic, say).
    pub(crate) fn take_output(&mut self, stands: bool) -> Buffer {
        let Some(mut borrowed) = self.borrowed_output.take() else {
            return Buffer::default();
        };
        let is_encoded = matches!(self.response.body, Body::Encoded { .. });
        if !(is_encoded && stands) {
            borrowed.output.truncate(borrowed.len);
            if is_encoded {
                self.response.clear();
            }
        }
        borrowed.output
    }
}
