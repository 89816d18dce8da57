//! The connection's output, lent to the handler's quick step: `Exchange::answer_borrowed` encodes a small
//! response behind what waits there, in one copy.

use loadline_base::Buffer;

use crate::exchange::LentOutput;
use crate::{Body, Exchange};

impl Exchange {
    /// Lends it the output, until `take_output`.
    pub(crate) fn lend_output(&mut self, output: Buffer) {
        let len = output.len();
        self.lent = Some(LentOutput { output, len });
    }

    /// Takes the lent output back. An answer that was encoded behind it stays if it `stands` and the
    /// handler has not started over since (an error after a panic, say).
    pub(crate) fn take_output(&mut self, stands: bool) -> Buffer {
        let Some(mut lent) = self.lent.take() else {
            return Buffer::default();
        };
        let is_encoded = matches!(self.response.body, Body::Encoded { .. });
        if !(is_encoded && stands) {
            lent.output.truncate(lent.len);
            if is_encoded {
                self.response.clear();
            }
        }
        lent.output
    }
}
