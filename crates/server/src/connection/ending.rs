//! How a connection ends.

use loadline_proto::{CloseReason, ConnectionRecord, Context};

use super::Connection;
use crate::transport::Transport;

impl<T> Connection<T> {
    /// To be answered with 503 and closed, for this reason.
    pub(crate) fn refuse(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.session.refuse(reason, cx);
    }

    /// To be closed without an answer.
    pub(crate) fn abort(&mut self, reason: CloseReason) {
        self.session.abort(reason);
    }

    /// Gives memory back and closes the socket, which comes last: who sees the end finds it counted.
    /// Returns the record, if one was kept.
    pub(crate) fn end<D>(
        mut self,
        driver: &mut D,
        cx: &mut Context<'_>,
    ) -> Option<Box<ConnectionRecord>>
    where
        T: Transport<D>,
    {
        let record = self.end_session(cx);
        self.transport.close(driver, cx);
        record
    }

    /// Gives memory back, and leaves it to `end` to close the socket: for a thread that the connection does not
    /// belong to.
    pub(crate) fn end_session(&mut self, cx: &mut Context<'_>) -> Option<Box<ConnectionRecord>> {
        match std::mem::replace(&mut self.has_ended, true) {
            true => None,
            false => self.session.ended(cx),
        }
    }
}
