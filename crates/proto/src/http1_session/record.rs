//! What a connection comes to, counted for a journal of connections where there is one.

use super::Http1Session;
use crate::{CloseReason, ConnectionRecord, Context};

impl Http1Session {
    /// Counts for a journal of connections from now on; `ended` gives the record back.
    pub fn keep_record(&mut self, record: Option<Box<ConnectionRecord>>) {
        self.record = record;
    }

    #[inline]
    pub(super) fn count_bytes_in(&mut self, bytes: usize, cx: &Context<'_>) {
        cx.counters.bytes_in.add(bytes as u64);
        if let Some(record) = &mut self.record {
            record.bytes_in += bytes as u64;
        }
    }

    /// An answer begins. A refused connection has one without a request.
    #[inline]
    pub(super) fn count_request(&mut self) {
        if let Some(record) = &mut self.record
            && !matches!(
                self.reason,
                Some(CloseReason::Refused | CloseReason::RefusedMemory)
            )
        {
            record.requests += 1;
        }
    }

    #[inline]
    pub(super) fn count_bytes_out(&mut self, bytes: u64, cx: &Context<'_>) {
        cx.counters.bytes_out.add(bytes);
        if let Some(record) = &mut self.record {
            record.bytes_out += bytes;
        }
    }
}
