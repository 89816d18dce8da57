//! How a connection that begins as HTTP/1 goes on as HTTP/2.

use std::sync::Arc;

use loadline_base::{Buffer, Millis};

use super::{Http1Session, Over};
use crate::http1::{HeadScanner, is_http2};
use crate::peer::Peer;
use crate::session_state::State;
use crate::{ConnectionRecord, Context, Http2, Security, SessionConfig};

/// What HTTP/2 goes on with.
pub(crate) struct Handover {
    pub(crate) config: Arc<SessionConfig>,
    pub(crate) peer: Peer,
    pub(crate) record: Option<Box<ConnectionRecord>>,
    /// What has come, and was counted.
    pub(crate) unread: Buffer,
    pub(crate) since: Millis,
    pub(crate) is_draining: bool,
}

impl Http1Session {
    /// Its first bytes may be those of HTTP/2, if that is served.
    pub(crate) fn expect_http2(&mut self) {
        if self.config.http2 == Http2::On {
            self.over = Over::PlainMaybeHttp2;
        }
    }

    /// The layer below is open. Whatever it has agreed on, this is HTTP/1.
    pub fn layer_opened(&mut self, _security: &Arc<Security>, _cx: &mut Context<'_>) {
        self.over = Over::Layer;
    }

    /// No handshake is its own.
    pub fn delayed(&mut self, _us: u64) {}

    /// One request after the other: there is none to be held.
    pub fn hold_requests(&mut self, _are_held: bool) -> bool {
        false
    }

    /// No handshake is its own.
    #[must_use]
    pub fn handshake_us(&self, _now: Millis) -> u64 {
        0
    }

    /// Whether HTTP/1 is not served.
    pub(crate) fn is_http2_only(&self) -> bool {
        self.config.http2 == Http2::Only
    }

    #[inline]
    pub(crate) fn may_be_http2(&self) -> bool {
        self.over == Over::PlainMaybeHttp2
    }

    /// Whether these bytes, behind those that came earlier, are the first of HTTP/2.
    #[cold]
    pub(crate) fn begins_http2(&mut self, bytes: &[u8]) -> bool {
        let is_first = matches!(self.state, State::Idle | State::Head) && !self.sending;
        let unread = self.progress.as_ref().map_or(&[][..], |it| &it.unread);
        let mut all = unread.iter().chain(bytes);
        let is_http2 = match is_first {
            true => is_http2(&mut all),
            false => Some(false),
        };
        if is_http2.is_some() {
            self.over = Over::Plain;
        }
        is_http2 == Some(true)
    }

    /// Gives the connection over to HTTP/2. To be dropped then.
    pub(crate) fn hand_over(&mut self, cx: &mut Context<'_>) -> Handover {
        let mut unread = Buffer::default();
        if let Some(mut progress) = self.progress.take() {
            unread = std::mem::take(&mut progress.unread); // all of it: nothing was used up
            progress.scanner = HeadScanner::default();
            cx.pool.http1.give(progress);
        }
        self.state = State::Closed;
        Handover {
            config: Arc::clone(&self.config),
            peer: self.peer,
            record: self.record.take(),
            unread,
            since: self.since,
            is_draining: self.draining,
        }
    }
}
