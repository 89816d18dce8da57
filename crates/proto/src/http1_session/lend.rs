//! The fast path of HTTP/1: the connection's output, lent to the handler's quick step, so that a small
//! answer is encoded behind what waits there, in one copy.

use loadline_base::Buffer;

use super::encode::{self, After, Borrowed};
use crate::exchange::LentOutput;
use crate::{Body, Context, Exchange, Fields, Status};

impl Exchange {
    /// Answers with fields and content that the caller only lends. Then the outcome has to be
    /// `Ready`: with any other, the answer is dropped.
    ///
    /// HTTP/1 encodes both into the connection's output at once. Where that cannot be, or
    /// `answer_as_data` is set, they are copied into `response`. Meant for content of up to
    /// `Limits::inline_body_bytes_max`; larger content belongs into `Body::Shared`.
    #[inline]
    pub fn answer_borrowed(
        &mut self,
        status: Status,
        fields: &Fields,
        content: &[u8],
        cx: &mut Context<'_>,
    ) {
        let after = After::new(self.persist && !self.response.close, self.promised_s);
        match &mut self.lent {
            Some(lent) if !self.answer_as_data => {
                lent.output.truncate(lent.len);
                let answer = Borrowed {
                    status,
                    fields,
                    content,
                    connection_lines: encode::connection_lines(&self.security),
                };
                let output = &mut lent.output;
                let len = encode::borrowed(output, &self.request, after, answer, cx);
                self.response.status = status;
                self.response.body = Body::Encoded { len };
            }
            _ => self.response.copy(status, fields, content),
        }
    }

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
