//! The fast path: a response whose fields and content are kept somewhere, encoded straight into the output
//! that the connection has lent, in one copy.

use crate::http1_session::encode::{self, After, Borrowed};
use crate::http2::response;
use crate::{Body, Context, Exchange, Fields, Method, Status};

impl Exchange {
    /// Answers with fields and content that the caller only lends. Then the outcome has to be
    /// `Ready`: with any other, the answer is dropped.
    ///
    /// Both are encoded into the connection's output at once. Where that cannot be, or
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
        let is_as_data = self.answer_as_data || fields.has_transport_security();
        let Some(lent) = self.borrowed_output.as_mut().filter(|_| !is_as_data) else {
            return self.response.copy(status, fields, content);
        };
        lent.output.truncate(lent.len);
        let len = match &self.borrowed_stream {
            None => {
                let after = After::new(self.persist && !self.response.close, self.promised_s);
                let answer = Borrowed {
                    status,
                    fields,
                    content,
                    connection_lines: encode::connection_lines(&self.security),
                };
                encode::borrowed(&mut lent.output, &self.request, after, answer, cx)
            }
            Some(stream) => {
                let has_content = self.request.method != Method::Head && !status.has_no_content();
                let answer = response::Borrowed {
                    stream: self.stream,
                    status,
                    common: &stream.common,
                    fields,
                    stated_len: (!status.has_no_content()).then_some(content.len()),
                    content: if has_content { content } else { &[] },
                    batch_bytes: stream.batch_bytes,
                };
                if !answer.fits(stream.content_bytes_max) {
                    return self.response.copy(status, fields, content);
                }
                answer.write(&mut lent.output, &mut cx.pool.buffers)
            }
        };
        self.response.status = status;
        self.response.body = Body::Encoded { len };
    }
}
