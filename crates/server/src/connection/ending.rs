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

    /// The same on a thread that the connection does not belong to: gives memory back, and leaves all else to `end`.
    pub(crate) fn abort_and_release(&mut self, reason: CloseReason, cx: &mut Context<'_>) {
        self.session.abort(reason);
        self.session.release(cx);
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
        let record = self.session.ended(cx);
        self.transport.close(driver, cx);
        record
    }
}
