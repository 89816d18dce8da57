//! What costs the server more than the client, and what follows if there is too much of it: resets, faults that
//! make the server reset, frames without use, requests that were given up while a worker has them.
//!
//! On a client's own connection the connection ends. Behind a trusted proxy one client's doings must not end
//! the requests of others: what belongs to one client counts for that client, whose further requests are answered
//! with 429.

use std::collections::BTreeMap;

use super::ending::{Failure, Parsed};
use super::{Http2Session, Reading};
use crate::http2::frame::ErrorCode;
use crate::http2::stream::{Phase, Stream};
use crate::{ClientKey, Context, Exchange, Fault, Http2Count, Status, StreamId};

/// Of a proxy's streams, one client may hold a quarter by requests that it has reset while workers have their
/// steps: so it needs several clients to leave no place for others.
const CLIENT_SHARES: usize = 4;
/// Streams of a connection in all, those that take no place included, in multiples of what it may have.
const STREAMS_TIMES_MAX: usize = 4;

/// Streams of a proxy's clients that were reset while workers have their steps.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    by_client: BTreeMap<ClientKey, usize>,
    /// Those that take no place.
    uncounted: usize,
}

impl Abandoned {
    pub(super) fn held_bytes(&self) -> usize {
        // Half of a map's nodes may be empty.
        2 * self.by_client.len() * size_of::<(ClientKey, usize)>()
    }
}

impl Http2Session {
    /// Something that costs the server more than the client.
    pub(super) fn spend(&mut self, cx: &Context<'_>) -> Parsed {
        if self.budget.spend(cx.now) {
            return Ok(());
        }
        self.count_end(Http2Count::Floods, cx);
        Err(Failure(
            ErrorCode::EnhanceYourCalm,
            "too many resets, settings, priorities or empty frames",
        ))
    }

    /// The same for a stream. Behind a trusted proxy it counts for the client whose request that is: no more of
    /// its requests are begun then, and those of others go on. Of a stream that has ended that client is not
    /// known: it counts for all of them together.
    pub(super) fn spend_for(&mut self, id: StreamId, cx: &Context<'_>) -> Parsed {
        if !self.peer_is_trusted() {
            return self.spend(cx);
        }
        let stream = self.streams.get(id);
        let client = stream.map_or(ClientKey::NOBODY, |stream| stream.client);
        self.client_budgets.spend(client, cx.now);
        Ok(())
    }

    /// The client wants no more of a stream. Behind a complete response that wastes no work.
    pub(super) fn reset_by_client(&mut self, id: StreamId, cx: &mut Context<'_>) -> Parsed {
        let phase = self.streams.get(id).map(|stream| stream.phase);
        if phase != Some(Phase::Discarding) {
            self.spend_for(id, cx)?;
        }
        self.leave(id, cx);
        Ok(())
    }

    /// More bytes that bring nobody anything than are allowed.
    #[cold]
    pub(super) fn fail_of_flood(&mut self, cx: &mut Context<'_>) {
        self.count_end(Http2Count::Floods, cx);
        let text = "too many frames that are hardly more than their heads";
        self.fail(ErrorCode::EnhanceYourCalm, text, cx);
    }

    /// The connection ends for what its client has done. It counts once: nothing is read behind that.
    pub(super) fn count_end(&self, what: Http2Count, cx: &Context<'_>) {
        if self.reading != Reading::Nothing {
            cx.counters.http2(what);
        }
    }

    /// A stream error of the client's.
    pub(super) fn refuse_stream(
        &mut self,
        id: StreamId,
        code: ErrorCode,
        cx: &mut Context<'_>,
    ) -> Parsed {
        self.spend_for(id, cx)?;
        self.reset(id, code, cx);
        Ok(())
    }

    /// Answers a request that is not begun. A head that is too large was decoded all the same; a proxy has
    /// such heads of all its clients, and which one it was is not known.
    pub(super) fn refuse_request(
        &mut self,
        exchange: Box<Exchange>,
        fault: Fault,
        cx: &mut Context<'_>,
    ) -> Parsed {
        let is_large = fault.status == Some(Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
        if is_large {
            cx.counters.http2(Http2Count::LargeHeads);
        }
        self.answer_fault(exchange, fault, cx);
        match is_large && !self.peer_is_trusted() {
            true => self.spend(cx),
            false => Ok(()),
        }
    }

    /// Why a request of a proxy's client is refused, if it is.
    pub(super) fn flood_of(&mut self, client: ClientKey, cx: &Context<'_>) -> Option<Fault> {
        let text = match () {
            () if !self.client_budgets.allows(client, cx.now) => {
                "too many resets by a proxy's client, or by all of them together"
            }
            () if self.abandoned_by(client) >= self.abandoned_max() => {
                "a proxy's client has reset many requests that workers still have"
            }
            () => return None,
        };
        cx.counters.http2(Http2Count::Floods);
        Some(Fault::limit(Status::TOO_MANY_REQUESTS, text))
    }

    /// Whether one more stream may be begun, whose fields have been decoded.
    pub(super) fn has_room(&self, cx: &Context<'_>) -> bool {
        let most = self.config.limits.streams_max as usize;
        let len = self.streams.len();
        len - self.abandoned.uncounted < most
            && len < most.saturating_mul(STREAMS_TIMES_MAX)
            && self.has_room_for_head(cx)
    }

    /// The same as far as the heads of all streams are concerned. A proxy's are those of many clients.
    fn has_room_for_head(&self, cx: &Context<'_>) -> bool {
        if self.streams.is_empty() || self.peer_is_trusted() {
            return true;
        }
        let bytes = self.streams.head_bytes() + cx.pool.http2.fields.list_bytes();
        bytes <= self.config.limits.heads_bytes_max(cx.pool.is_short())
    }

    /// A stream was reset, and a worker has its step.
    pub(super) fn count_abandoned(&mut self, id: StreamId) {
        let most = self.abandoned_max();
        let stream = self.streams.get_mut(id);
        let Some(stream) = stream.filter(|it| !it.client.is_nobody()) else {
            return;
        };
        let count = self.abandoned.by_client.entry(stream.client).or_default();
        *count += 1;
        stream.is_uncounted = *count > most;
        self.abandoned.uncounted += usize::from(stream.is_uncounted);
    }

    /// The worker is done with it.
    pub(super) fn forget_abandoned(&mut self, stream: &Stream) {
        self.abandoned.uncounted -= usize::from(stream.is_uncounted);
        let by_client = &mut self.abandoned.by_client;
        if let Some(count) = by_client.get_mut(&stream.client) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&stream.client);
            }
        }
    }

    /// So many streams of a proxy's client were reset while workers have their steps.
    fn abandoned_by(&self, client: ClientKey) -> usize {
        let count = self.abandoned.by_client.get(&client);
        count.copied().unwrap_or_default()
    }

    fn abandoned_max(&self) -> usize {
        (self.config.limits.streams_max as usize / CLIENT_SHARES).max(1)
    }
}
