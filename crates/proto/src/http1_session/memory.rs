//! What a connection holds in memory, for the budget of the process.

use super::Http1Session;
use crate::progress::{BodyReader, Progress, SMALL_CONTENT_BYTES, no_memory_for_content};
use crate::session_state::State;
use crate::stream::Awaited;
use crate::{ClientKey, Context, Exchange, Fault, Fields, RequestBody};

impl Http1Session {
    /// Memory that the connection holds beside itself, in bytes.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.progress {
            Some(progress) => progress.memory_bytes(),
            None => 0,
        }
    }

    /// All of it goes back to the pool. The connection is about to be closed: nothing but `ended` may follow.
    pub fn release(&mut self, cx: &mut Context<'_>) {
        if let Some(mut progress) = self.progress.take() {
            progress.log_pending(if self.sending { progress.out_sent } else { 0 }, cx);
            progress.recycle(cx);
            cx.pool.http1.give(progress);
        }
    }

    /// Behind a trusted proxy: for whose request it holds that, nobody's between two requests.
    #[must_use]
    pub fn proxied_client(&self) -> Option<ClientKey> {
        if !self.peer_is_trusted() {
            return None;
        }
        let is_between = !self.sending && matches!(self.state, State::Idle | State::Head);
        Some(match &self.progress {
            Some(progress) if !is_between => progress.client,
            _ => ClientKey::NOBODY,
        })
    }

    /// Nothing is ordered that `cached` or `computed` would answer.
    #[must_use]
    pub fn has_work_out(&self) -> bool {
        false
    }

    /// Whether an app's task waits for content.
    pub(super) fn awaits_content(&self) -> bool {
        let Some(progress) = &self.progress else {
            return false;
        };
        let limits = &self.config.limits;
        let awaited = progress.stream.awaited(progress.line_since, limits);
        matches!(awaited, Awaited::Client(_))
    }

    /// Refuses content that is to be gathered while memory is short, unless there is little of it.
    pub(super) fn check_memory(&self, cx: &Context<'_>) -> Result<(), Fault> {
        if !cx.pool.is_short() || !matches!(self.state, State::Collecting { .. }) {
            return Ok(());
        }
        let content_bytes = self.progress.as_ref().map_or(0, |it| it.gathering_bytes());
        match content_bytes > SMALL_CONTENT_BYTES {
            true => {
                cx.counters.content_refused_memory.add(1);
                Err(no_memory_for_content())
            }
            false => Ok(()),
        }
    }
}

impl Progress {
    /// What it comes to with all that it owns.
    fn memory_bytes(&self) -> usize {
        let stream = &self.stream;
        let buffers = [&self.unread, &self.output, &stream.offer];
        let buffers: usize = buffers.iter().map(|buffer| buffer.capacity()).sum();
        let segments: usize = self.segments.iter().map(|it| it.memory_bytes()).sum();
        let exchanges = [
            &self.exchange,
            &self.unlogged,
            &stream.request_copy,
            &stream.answered,
        ];
        let exchanges = exchanges.into_iter().flatten();
        let exchanges: usize = exchanges.map(|exchange| exchange.memory_bytes()).sum();
        let with_app = stream.offered_bytes.saturating_sub(stream.offer.len());
        size_of::<Self>()
            + buffers
            + segments
            + exchanges
            + with_app
            + stream.trailer_bytes
            + self.body.held_bytes()
            + self.collected.capacity()
            + self.sending_bytes
            + self.exchange_bytes
    }

    /// Content of a request that has come, and that is known to come.
    fn gathering_bytes(&self) -> u64 {
        let come = self.collected.len() + self.stream.offered_bytes;
        let left = match &self.body {
            BodyReader::Length { left } => *left,
            BodyReader::Done | BodyReader::Chunked(_) => 0,
        };
        left.saturating_add(come as u64)
    }
}

impl Exchange {
    /// What it comes to with all that it owns, but for cached content.
    pub(crate) fn memory_bytes(&self) -> usize {
        let content = match &self.request.body {
            RequestBody::Whole(content) => content.capacity(),
            RequestBody::Empty | RequestBody::Pending { .. } => 0,
        };
        let trailers = self.request.trailers.as_deref();
        let trailers = trailers.map_or(0, |it| size_of::<Fields>() + it.memory_bytes());
        size_of::<Self>() + content + trailers + self.held_bytes()
    }
}
