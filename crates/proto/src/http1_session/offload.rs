//! What a session keeps unparsed until another thread has it.

use super::Http1Session;
use crate::session_state::State;
use crate::{ConnectionRecord, Context};

impl Http1Session {
    /// Whether it would parse what it receives now: the next request, or content that is gathered or thrown away.
    pub(crate) fn parses(&self) -> bool {
        matches!(
            self.state,
            State::Idle | State::Head | State::Collecting { .. } | State::Discarding
        )
    }

    /// Whether a request waits for one of its steps.
    pub(crate) fn has_step_due(&self) -> bool {
        matches!(self.state, State::RunDue | State::BlockDue)
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.sending
    }

    /// Whether `sent` would parse something.
    pub(crate) fn has_unparsed(&self) -> bool {
        self.has_unread()
    }

    /// Bytes came: kept for `parse`.
    pub(crate) fn keep(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        self.count_bytes_in(bytes.len(), cx);
        match self.state {
            _ if self.sending => {} // what moves now is counted for that
            State::Idle => self.begin_period(cx),
            State::Discarding => self.progress(cx).discarded_bytes += bytes.len() as u64,
            _ => {}
        }
        self.progress(cx).keep(bytes, cx);
    }

    /// Parses what was kept, of which so many bytes came since the last time. No output is on its way.
    pub(crate) fn parse(&mut self, came: usize, cx: &mut Context<'_>) {
        match self.state {
            State::Idle | State::Head => self.read_head(None, came, cx),
            State::Collecting { .. } | State::Discarding => self.read_body(cx),
            _ => {}
        }
    }

    /// What it has counted so far, for a journal of connections.
    pub(crate) fn record(&self) -> Option<&ConnectionRecord> {
        self.record.as_deref()
    }
}
