//! How streams and the connection end: when they are done, and by errors (RFC 9113 section 5.4).

use std::collections::{BTreeSet, VecDeque};

use loadline_base::Segment;

use super::{Http2Session, RESET_KEPT_MIN, Reading, Stage, abandon};
use crate::http2::frame::ErrorCode;
use crate::http2::stream::{Phase, Stream};
use crate::{CloseReason, Context, Fault, Http2Count, StreamId};

/// A connection error.
pub(super) struct Failure(pub(super) ErrorCode, pub(super) &'static str);

pub(super) type Parsed<T = ()> = Result<T, Failure>;

/// Streams that were reset a moment ago: frames for them are on their way, and no fault.
#[derive(Debug, Default)]
pub(super) struct RecentlyReset {
    /// In the order in which they were reset.
    order: VecDeque<u32>,
    /// The same: each frame for a stream that is not there is looked up.
    all: BTreeSet<u32>,
}

impl RecentlyReset {
    /// One more, in place of the first one if there are so many.
    fn add(&mut self, id: StreamId, most: usize) {
        if !self.all.insert(id.0) {
            return;
        }
        if self.order.len() >= most
            && let Some(first) = self.order.pop_front()
        {
            self.all.remove(&first);
        }
        self.order.push_back(id.0);
    }

    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.all.contains(&id.0)
    }

    pub(super) fn held_bytes(&self) -> usize {
        // Half of a set's nodes may be empty, and they have pointers.
        (self.order.capacity() + 3 * self.all.len()) * size_of::<u32>()
    }
}

impl Http2Session {
    /// All memory goes back to the pool.
    pub(super) fn release_all(&mut self, cx: &mut Context<'_>) {
        while let Some(stream) = self.streams.pop() {
            self.discard(stream, cx);
        }
        self.output.recycle(cx);
        cx.pool.buffers.give(std::mem::take(&mut self.unread));
    }

    /// A connection error (section 5.4.1): GOAWAY says so, and the connection ends.
    #[cold]
    pub(super) fn fail(&mut self, code: ErrorCode, text: &'static str, cx: &mut Context<'_>) {
        if self.reading == Reading::Nothing {
            return;
        }
        self.reading = Reading::Nothing;
        self.block = None;
        self.partial = None;
        cx.pool.buffers.give(std::mem::take(&mut self.unread));
        cx.counters.fault(&Fault::bad_request(text));
        if code != ErrorCode::EnhanceYourCalm {
            cx.counters.http2(Http2Count::Errors); // the others were counted where they were found
        }
        if self.stage <= Stage::Ending {
            self.reason.get_or_insert(CloseReason::BadRequest);
            self.go_away(code, cx);
        }
        // Nothing of what was begun is finished: what comes cannot be understood any more.
        let streams: Vec<_> = self.streams.iter().map(|stream| stream.id).collect();
        for id in streams {
            self.leave(id, cx);
        }
    }

    /// No more streams are begun.
    pub(super) fn go_away(&mut self, code: ErrorCode, cx: &mut Context<'_>) {
        self.output.go_away(self.last_begun, code, cx);
        self.stage = Stage::Ending;
    }

    /// A stream error (section 5.4.2), or a request that is not answered.
    pub(super) fn reset(&mut self, id: StreamId, code: ErrorCode, cx: &mut Context<'_>) {
        self.output.reset(id, code, cx);
        cx.counters.http2(match code {
            ErrorCode::RefusedStream => Http2Count::RefusedStreams,
            _ => Http2Count::ServerResets,
        });
        self.note_reset(id);
        self.end_stream(id, cx);
    }

    /// Frames for the stream are on their way, and no fault.
    pub(super) fn note_reset(&mut self, id: StreamId) {
        // A client has so many streams that it does not know to be reset, and its requests follow each other.
        let kept_max = RESET_KEPT_MIN.max(self.config.limits.streams_max as usize);
        self.recently_reset.add(id, kept_max);
    }

    /// The client does not await the response to a stream any more.
    pub(super) fn leave(&mut self, id: StreamId, cx: &mut Context<'_>) {
        self.streams.get_mut(id).into_iter().for_each(abandon);
        self.end_stream(id, cx);
    }

    /// The stream is closed, whatever of it is still under way.
    pub(super) fn end_stream(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        match stream.phase {
            // It counts until a worker has given its exchange back: that is what it costs.
            Phase::Blocking => {
                abandon(stream);
                self.credit += stream.drop_request_content(&mut cx.pool.buffers);
                stream.phase = Phase::Reset;
                self.count_abandoned(id);
            }
            Phase::Reset => {}
            phase => {
                if phase == Phase::Task {
                    self.cancelled.push_back(id);
                }
                if let Some(stream) = self.streams.remove(id) {
                    self.discard(stream, cx);
                }
                self.rest_if_idle(cx);
            }
        }
    }

    /// Gives back what a stream holds. What it has kept of the client's window is open again.
    pub(super) fn discard(&mut self, mut stream: Box<Stream>, cx: &mut Context<'_>) {
        self.let_go(&mut stream, cx);
        stream.clear();
        cx.pool.http2.streams.give(stream);
    }

    pub(super) fn let_go(&mut self, stream: &mut Stream, cx: &mut Context<'_>) {
        self.credit += stream.drop_request_content(&mut cx.pool.buffers);
        let exchanges = [stream.exchange.take(), stream.app.request_copy.take()];
        for exchange in exchanges.into_iter().flatten() {
            cx.pool.give_exchange(exchange);
        }
        if let Some(exchange) = stream.answered.take() {
            cx.answered(exchange, stream.content_sent);
        }
        for segment in stream.content.drain(..) {
            if let Segment::Buffer(bytes) = segment {
                cx.pool.buffers.give(bytes);
            }
        }
    }

    /// The last stream has ended: the idle time begins.
    pub(super) fn rest_if_idle(&mut self, cx: &Context<'_>) {
        if self.streams.is_empty() && !self.sending {
            self.begin_period(cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_were_reset_are_known() {
        let mut reset = RecentlyReset::default();
        for number in [9, 1, 5, 5, 3, 7] {
            reset.add(StreamId(number), 3);
        }
        let known = (0..10).filter(|number| reset.contains(StreamId(*number)));
        assert_eq!(known.collect::<Vec<_>>(), [3, 5, 7]);
        assert_eq!(reset.order, [5, 3, 7]);
    }
}
