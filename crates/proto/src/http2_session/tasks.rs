//! Content of requests, for handlers and for apps, and what apps answer piece by piece.

use super::Http2Session;
use loadline_base::Segment;

use crate::hpack::Indexing;
use crate::http2::frame::ErrorCode;
use crate::http2::stream::{Phase, Stream};
use crate::progress::{SMALL_CONTENT_BYTES, no_memory_for_content, too_much_content};
use crate::stream::AnswerEnd;
use crate::{
    Action, Blame, Body, Context, Exchange, Fault, Piece, RequestBody, Status, StreamId,
    TaskOptions,
};

impl Http2Session {
    /// The handler wants the content first.
    pub(super) fn collect(
        &mut self,
        mut exchange: Box<Exchange>,
        bytes_max: u64,
        cx: &mut Context<'_>,
    ) {
        let id = exchange.stream;
        if matches!(exchange.request.body, RequestBody::Whole(_)) {
            // It has the content already: asking again would never end.
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            return self.begin_answer(exchange, cx);
        }
        let bytes_max = bytes_max.min(self.config.limits.body_bytes_max);
        if self.content_bytes_min(id) > bytes_max {
            return self.answer_fault(exchange, too_much_content(), cx);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        stream.exchange = Some(exchange);
        let for_task = false;
        stream.phase = Phase::Collect {
            bytes_max,
            for_task,
        };
        stream.begin_period(cx.now);
        let come = std::mem::take(&mut stream.app.offered_bytes);
        self.give_credit(id, come as u32, cx);
        self.invite(id, cx);
        self.gather(id, cx);
    }

    /// An app's task is to have the request. Content that fits into its window comes first, unless the
    /// client waits for the app to ask for it: so a slow client holds its stream, and nothing of the app.
    pub(super) fn start_due(
        &mut self,
        exchange: Box<Exchange>,
        options: TaskOptions,
        cx: &mut Context<'_>,
    ) {
        let id = exchange.stream;
        let content_bytes = self.content_bytes_min(id);
        if content_bytes > options.body_bytes_max {
            return self.answer_fault(exchange, too_much_content(), cx);
        }
        let window = self.config.limits.stream_window_bytes as u64;
        let can_come = !self.is_window_short();
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        stream.task = options;
        stream.exchange = Some(exchange);
        let is_invited = !stream.expects_continue || stream.app.received_bytes > 0;
        let fits = stream.announced_left.is_some() && content_bytes <= window;
        if fits && is_invited && can_come {
            let (bytes_max, for_task) = (window, true);
            stream.phase = Phase::Collect {
                bytes_max,
                for_task,
            };
            stream.begin_period(cx.now);
            return self.gather(id, cx);
        }
        stream.await_turn(Phase::Start, cx.now);
        self.mark_due(id);
    }

    /// Content came, or its end.
    pub(super) fn content(&mut self, id: StreamId, bytes: &[u8], cx: &mut Context<'_>) {
        if self.is_window_short() {
            self.start_early(cx);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let len = bytes.len();
        if matches!(stream.phase, Phase::Answering | Phase::Discarding) {
            self.credit += len as u32; // nobody wants it: no more than the stream's window
            if stream.phase == Phase::Discarding {
                stream.moved += len as u64;
            }
            return self.discard_content(id, cx);
        }
        cx.pool.buffers.reserve(&mut stream.app.offer, len);
        stream.app.offer.extend_from_slice(bytes);
        stream.app.received_bytes += len as u64;
        let received = stream.app.received_bytes;
        match stream.phase {
            Phase::Collect { for_task, .. } => {
                stream.advance(len as u64, &self.config.limits.body_pace, cx.now);
                match for_task {
                    true => stream.app.offered_bytes += len,
                    false => self.give_credit(id, len as u32, cx),
                }
                self.gather(id, cx);
            }
            Phase::Task => {
                stream.app.offered_bytes += len;
                (stream.app).client_moved(len as u64, &self.config.limits, cx.now);
                stream.app.note_hunger(!stream.has_all, cx.now);
                if received > stream.task.body_bytes_max {
                    return self.fail_task(id, too_much_content(), cx);
                }
                self.mark_due(id);
            }
            _ => stream.app.offered_bytes += len,
        }
    }

    /// The connection's window is used up: tasks are given what was gathered for them, since its rest cannot
    /// come before they have read it.
    fn start_early(&mut self, cx: &Context<'_>) {
        let gathers =
            |stream: &&Stream| matches!(stream.phase, Phase::Collect { for_task: true, .. });
        let gathering = self.streams.iter().filter(gathers);
        let gathering: Vec<_> = gathering.map(|stream| stream.id).collect();
        for id in gathering {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.gathered(Phase::Start, cx.came, cx.now);
            }
            self.mark_due(id);
        }
    }

    /// Goes on once all of the content is there.
    fn gather(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let content_bytes = self.content_bytes_min(id);
        let is_short = cx.pool.is_short() && content_bytes > SMALL_CONTENT_BYTES;
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let Phase::Collect {
            bytes_max,
            for_task,
        } = stream.phase
        else {
            return;
        };
        let fault = match () {
            () if is_short => Some(no_memory_for_content()),
            () if content_bytes > bytes_max => Some(too_much_content()),
            () => None,
        };
        match (fault, stream.has_all) {
            (Some(fault), _) => {
                if let Some(exchange) = stream.exchange.take() {
                    cx.counters.content_refused_memory.add(u64::from(is_short));
                    self.answer_fault(exchange, fault, cx);
                }
            }
            (None, false) => {}
            (None, true) if for_task => {
                stream.gathered(Phase::Start, cx.came, cx.now);
                self.mark_due(id);
            }
            (None, true) => {
                let content = std::mem::take(&mut stream.app.offer);
                if let Some(exchange) = &mut stream.exchange {
                    exchange.request.body = RequestBody::Whole(content.to_vec());
                    exchange.request.trailers = stream.app.take_trailers();
                }
                cx.pool.buffers.give(content);
                stream.gathered(Phase::Run, cx.came, cx.now);
                self.mark_due(id);
            }
        }
    }

    /// The least that the content of a request comes to.
    fn content_bytes_min(&mut self, id: StreamId) -> u64 {
        let stream = self.streams.get_mut(id);
        stream.map_or(0, |stream| {
            stream.announced_left.unwrap_or(0) + stream.app.received_bytes
        })
    }

    /// 100 Continue, if the client waits for it and nothing has come.
    fn invite(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let is_awaited = std::mem::take(&mut stream.expects_continue);
        if !is_awaited || stream.app.received_bytes > 0 || stream.has_head {
            return;
        }
        cx.counters.answer(Status::CONTINUE);
        let mut block = std::mem::take(&mut cx.pool.http2.block);
        block.clear();
        self.encoder.begin(&mut block);
        self.encoder
            .field(b":status", b"100", Indexing::Not, &mut block);
        self.send_fields(false, id, &block, cx);
        cx.pool.http2.block = block;
    }

    /// Orders `Start`.
    pub(super) fn start(&mut self, id: StreamId, cx: &mut Context<'_>) -> Option<Action> {
        let window = self.config.limits.stream_window_bytes;
        let stream = self.streams.get_mut(id)?;
        let mut exchange = stream.exchange.take()?;
        exchange.hang_up.reset();
        if self.eof {
            exchange.hang_up.half_close();
        }
        stream.hang_up = Some(exchange.hang_up.clone());
        exchange.stream_window_bytes = window;
        let mut request_copy = cx.pool.take_exchange();
        request_copy.copy_request(&exchange);
        stream.app.begin(request_copy, window, cx.now);
        stream.app.end_offered = matches!(exchange.request.body, RequestBody::Empty);
        stream.exchange_bytes = exchange.memory_bytes();
        stream.phase = Phase::Task;
        stream.app.note_hunger(!stream.has_all, cx.now);
        self.mark_due(id);
        Some(Action::Start(exchange))
    }

    /// What is to be done for an app's task.
    pub(super) fn order_of_task(&mut self, id: StreamId) -> Option<Action> {
        let window = self.config.limits.stream_window_bytes;
        let stream = self.streams.get_mut(id)?;
        let action = match stream.app.next_offer(!stream.has_all) {
            Some(piece) => Action::Offer(id, piece),
            None => Action::Pull(id, stream.app.take_room(window)?),
        };
        self.mark_due(id);
        Some(action)
    }

    pub(super) fn task_answered(&mut self, exchange: Box<Exchange>, cx: &mut Context<'_>) {
        let stream = match self.streams.get_mut(exchange.stream) {
            Some(stream) if stream.phase == Phase::Task && !stream.has_head => stream,
            // Too late, or a second time.
            _ => return cx.pool.give_exchange(exchange),
        };
        stream.hang_up = None;
        if let Some(request_copy) = stream.app.request_copy.take() {
            cx.pool.give_exchange(request_copy);
        }
        stream.app.app_moved(cx.now);
        if matches!(exchange.response.body, Body::Stream { .. }) {
            stream.app.end = AnswerEnd::Chunked; // it has its head
        }
        self.begin_answer(exchange, cx);
    }

    pub(super) fn task_consumed(&mut self, id: StreamId, bytes: usize, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.phase != Phase::Task {
            return;
        }
        stream.app.asked = true;
        stream.app.offered_bytes = stream.app.offered_bytes.saturating_sub(bytes);
        if bytes > 0 {
            stream.app.app_moved(cx.now);
        }
        stream.app.note_hunger(!stream.has_all, cx.now);
        self.give_credit(id, bytes as u32, cx);
        self.invite(id, cx);
        self.mark_due(id);
    }

    pub(super) fn task_produced(&mut self, id: StreamId, piece: Piece, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if stream.phase != Phase::Task {
            return;
        }
        stream.app.app_moved(cx.now);
        let has_head = stream.has_head;
        match piece {
            Piece::Abort => self.broken_off(id, cx),
            _ if !has_head => {} // nowhere to put it
            Piece::Data(bytes) => {
                let len = bytes.len();
                match stream
                    .promised_left
                    .map(|left| left.checked_sub(len as u64))
                {
                    Some(None) => return self.broken_off(id, cx), // more than the head said
                    left => stream.promised_left = left.flatten(),
                }
                stream.app.produced(len, len);
                if stream.content.is_empty() {
                    stream.begin_period(cx.now); // of waiting for a window
                }
                self.waiting_bytes_most += bytes.capacity();
                stream.content.push_back(Segment::Buffer(bytes));
            }
            Piece::Trailers(fields) => {
                // Without a field they are no block that could end the stream.
                let is_kept = stream.takes_trailers && !fields.is_empty();
                stream.trailers = Some(fields).filter(|_| is_kept);
            }
            Piece::End if stream.promised_left.is_some_and(|left| left > 0) => {
                self.broken_off(id, cx);
            }
            Piece::End => stream.is_produced = false,
        }
    }

    /// The task ended without its answer, or broke what its head promised.
    fn broken_off(&mut self, id: StreamId, cx: &mut Context<'_>) {
        let fault = Fault {
            blame: Blame::Local,
            status: Some(Status::INTERNAL_SERVER_ERROR),
            text: "an app did not finish its response",
        };
        self.fail_task(id, fault, cx);
    }

    /// Ends the task: with an answer if there is none yet.
    pub(super) fn fail_task(&mut self, id: StreamId, fault: Fault, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        stream.hang_up = None; // its client has not left
        let request_copy = stream.app.request_copy.take();
        match request_copy.filter(|_| !stream.has_head) {
            Some(mut exchange) => {
                exchange
                    .response
                    .error(fault.status.unwrap_or(Status::INTERNAL_SERVER_ERROR));
                cx.counters.fault(&fault);
                self.cancelled.push_back(id);
                self.begin_answer(exchange, cx);
            }
            None => {
                cx.counters.fault(&fault);
                let code = match fault.blame {
                    Blame::Local => ErrorCode::Internal,
                    _ => ErrorCode::Cancel,
                };
                self.reset(id, code, cx);
            }
        }
    }
}
