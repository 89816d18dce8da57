//! Times: of the connection, and of each stream.

use loadline_base::Millis;

use super::{Http2Session, Reading, Stage};
use crate::http2::frame::ErrorCode;
use crate::http2::stream::{Phase, Stream};
use crate::stream::Awaited;
use crate::{CloseReason, Context, Fault, Http2Count, Limits, Pace, Status, StreamId};

/// What time was up for.
enum Late {
    /// The client's content.
    Content,
    /// The client's content, which nobody wants.
    Rest,
    /// The client's window.
    Window,
    /// The app.
    App,
    /// Its turn, behind responses that the client does not take.
    Turn,
}

/// What a stream waits for.
struct Waiting {
    late: Late,
    since: Millis,
    until: Millis,
}

impl Http2Session {
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let limits = &self.config.limits;
        match self.stage {
            Stage::Closed => return None,
            Stage::Lingering => return Some(limits.linger_pace.deadline(self.since, self.moved)),
            _ => {}
        }
        let streams = self.streams.iter();
        let streams = streams.filter_map(|stream| Some(self.waiting(stream, limits)?.until));
        streams.chain(self.own_deadline(limits)).min()
    }

    /// Of the connection itself.
    fn own_deadline(&self, limits: &Limits) -> Option<Millis> {
        if self.sending {
            return Some(limits.write_pace.deadline(self.since, self.moved));
        }
        if matches!(self.reading, Reading::Preface | Reading::Settings) {
            return Some(Millis(
                self.since.0.saturating_add(limits.handshake_timeout_ms),
            ));
        }
        if let Some(block) = &self.block {
            return Some(
                limits
                    .head_pace
                    .deadline(block.since, block.memory_bytes() as u64),
            );
        }
        if !self.streams.is_empty() {
            return None;
        }
        if !self.unread.is_empty() {
            let since = self.frame_awaited_since();
            let bytes = self.unread.len() as u64;
            return Some(limits.head_pace.deadline(since, bytes));
        }
        let timeout_ms = limits.idle_ms(self.peer_is_trusted());
        (timeout_ms < u64::MAX).then(|| Millis(self.since.0.saturating_add(timeout_ms)))
    }

    /// Since when the rest of a frame is awaited, if there is no stream: not from before the last response
    /// has left.
    fn frame_awaited_since(&self) -> Millis {
        self.since.max(self.frame_since)
    }

    /// What a stream waits for, if its time for that is limited.
    fn waiting(&self, stream: &Stream, limits: &Limits) -> Option<Waiting> {
        let (since, moved) = (stream.since, stream.moved);
        let at_pace = |late, pace: &Pace| Waiting {
            late,
            since,
            until: pace.deadline(since, moved),
        };
        if stream.is_blocked(self.send_window) {
            return Some(at_pace(Late::Window, &limits.write_pace));
        }
        let waiting = match stream.phase {
            Phase::Discarding => at_pace(Late::Rest, &limits.linger_pace),
            Phase::Collect { .. } => at_pace(Late::Content, &limits.body_pace),
            Phase::Run | Phase::Block | Phase::Start => Waiting {
                late: Late::Turn,
                since,
                until: Millis(since.0.saturating_add(limits.app_answer_timeout_ms)),
            },
            Phase::Task if !stream.content.is_empty() => return None, // it waits for its turn
            Phase::Task => {
                let (late, until) = match stream.app.awaited(None, limits) {
                    Awaited::Client(until) => (Late::Content, until),
                    Awaited::App(until) => (Late::App, until),
                };
                let since = stream.app.awaited_since();
                Waiting { late, since, until }
            }
            _ => return None,
        };
        match (&waiting.late, self.shut_since) {
            // It may send nothing, for as long as an app may leave what has come unread.
            (Late::Content, Some(since)) => {
                let since = since.max(stream.since);
                let until = Millis(since.0.saturating_add(limits.app_silence_timeout_ms));
                Some(Waiting {
                    since,
                    until,
                    ..waiting
                })
            }
            _ => Some(waiting),
        }
    }

    /// Time has passed.
    pub(super) fn look_at_time(&mut self, cx: &mut Context<'_>) {
        if self
            .next_deadline()
            .is_none_or(|deadline| deadline > cx.now)
        {
            return;
        }
        if self.stage == Stage::Lingering {
            return self.close(CloseReason::Finished);
        }
        let limits = &self.config.limits;
        let is_up = |at: Millis| at <= cx.now;
        if self.own_deadline(limits).is_some_and(is_up) {
            return self.expire(cx);
        }
        let late = self.streams.iter().filter_map(|stream| {
            let waiting = self.waiting(stream, limits)?;
            is_up(waiting.until).then_some((stream.id, waiting.late))
        });
        let late: Vec<_> = late.collect();
        for (id, late) in late {
            self.expire_stream(id, late, cx);
        }
    }

    /// The connection's window is no longer shut: since then the client could send no content.
    pub(super) fn excuse_silence(&mut self, since: Millis, now: Millis) {
        for stream in self.streams.iter_mut() {
            match stream.phase {
                Phase::Collect { .. } => stream.since.0 += now.since(since.max(stream.since)),
                Phase::Task => stream.app.excuse_client(since, now),
                _ => {}
            }
        }
    }

    /// For the connection.
    fn expire(&mut self, cx: &mut Context<'_>) {
        let is_idle = self.reading == Reading::Frames
            && self.streams.is_empty()
            && self.block.is_none()
            && self.unread.is_empty();
        if self.sending {
            cx.counters.fault(&Fault::timeout(None, "time was up"));
            return self.close(CloseReason::Slow);
        }
        if is_idle {
            self.reason.get_or_insert(CloseReason::Idle);
        } else {
            cx.counters.fault(&Fault::timeout(None, "time was up"));
            self.reason.get_or_insert(CloseReason::Slow);
        }
        match self.stage {
            Stage::Open | Stage::Draining => self.go_away(ErrorCode::NoError, cx),
            _ => self.close(CloseReason::Slow),
        }
    }

    fn expire_stream(&mut self, id: StreamId, late: Late, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let (status, text) = match late {
            Late::Rest => return self.reset(id, ErrorCode::NoError, cx),
            // Nothing was done for it, which tells the client that it may ask again.
            Late::Turn => return self.reset(id, ErrorCode::RefusedStream, cx),
            Late::Content => (Status::REQUEST_TIMEOUT, "the request took too long"),
            Late::App => (Status::SERVICE_UNAVAILABLE, "the app took too long"),
            Late::Window => (
                Status::REQUEST_TIMEOUT,
                "the client does not take its response",
            ),
        };
        if !matches!(late, Late::App) {
            cx.counters.http2(Http2Count::SlowStreams);
        }
        let fault = Fault::timeout(Some(status), text);
        match (stream.phase, stream.exchange.take()) {
            (Phase::Collect { .. }, Some(exchange)) => self.answer_fault(exchange, fault, cx),
            (Phase::Task, _) => self.fail_task(id, fault, cx),
            _ => {
                cx.counters.fault(&fault);
                self.reset(id, ErrorCode::Cancel, cx);
            }
        }
    }

    /// Since when the client is awaited in the middle of something, if nothing is being done for it: while
    /// others of its requests are served, a stream that waits for it makes no slow connection.
    pub(super) fn client_awaited_since(&self) -> Option<Millis> {
        let limits = &self.config.limits;
        let is_held = self.sending || self.stage == Stage::Lingering;
        if !is_held && self.is_serving() {
            return None;
        }
        let streams = self.streams.iter().filter_map(|stream| {
            let waiting = self.waiting(stream, limits)?;
            let is_client = match waiting.late {
                Late::App | Late::Turn => false,
                Late::Content => self.shut_since.is_none(),
                Late::Window | Late::Rest => true,
            };
            is_client.then_some(waiting.since)
        });
        let block = self.block.as_ref().map(|block| block.since);
        let is_reading = !self.unread.is_empty() && self.streams.is_empty();
        let own = match is_held {
            true => Some(self.since),
            false => is_reading.then(|| self.frame_awaited_since()),
        };
        streams.chain(block).chain(own).min()
    }

    /// Whether a handler or an app works for a request, or is about to. A request that cannot be begun,
    /// because the client does not take other responses, waits for the client.
    fn is_serving(&self) -> bool {
        let is_served = |stream: &Stream| match stream.phase {
            Phase::Running | Phase::Blocking => true,
            Phase::Task => {
                let waiting = self.waiting(stream, &self.config.limits);
                waiting.is_some_and(|waiting| matches!(waiting.late, Late::App))
            }
            _ => false,
        };
        self.next_due().is_some() || self.streams.iter().any(is_served)
    }
}
