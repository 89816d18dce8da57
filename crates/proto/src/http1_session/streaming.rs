//! A request that an app's task has: its content and its answer, piece by piece.
//!
//! Content that fits into a window is gathered before the task is started (`Collecting`).
//!
//! ```text
//!            Start          answered (whole)
//!  StartDue ──────► Streaming ───────────────────────────► (answer)
//!                   │  │ ▲ answered (stream) · produced
//!                   │  └─┘ consumed · received · Offer · Pull
//!                   │ time up, client gone, content broken      Cancel
//!                   └──────────────────────► CancelDue ─────────────────► Ending | Closed
//! ```

use super::{Http1Session, answer, encode};
use crate::progress::BodyReader;
use crate::session_state::{Pending, State};
use crate::stream::{AnswerEnd, Awaited};
use crate::{
    Action, Body, CloseReason, Context, Exchange, Fault, Method, Piece, RequestBody, Status,
    StreamId, TaskOptions, Version,
};

/// The one stream of an HTTP/1 connection.
const STREAM: StreamId = StreamId(0);

impl Http1Session {
    /// The app's task answers: with the whole, or with a head whose content follows by `produced`.
    pub fn answered(&mut self, mut exchange: Box<Exchange>, cx: &mut Context<'_>) {
        let sending = self.sending;
        let discard_max = self.config.limits.discard_bytes_max;
        let promised_s = self.promised_s(exchange.request.version);
        let progress = match &mut self.progress {
            Some(progress) if self.state == State::Streaming && !progress.stream.has_head() => {
                progress
            }
            // Too late, or a second time.
            _ => return cx.pool.give_exchange(exchange),
        };
        let stream = &mut progress.stream;
        if let Some(request_copy) = stream.request_copy.take() {
            cx.pool.give_exchange(request_copy);
        }
        let asked = stream.asked;
        stream.app_moved(cx.now);
        let can_skip_body = match progress.body {
            BodyReader::Done => true,
            _ if progress.expects_continue => false,
            BodyReader::Length { left } => asked || left <= discard_max,
            BodyReader::Chunked(_) => true,
        };
        exchange.persist = progress.persist && can_skip_body;
        exchange.promised_s = promised_s;
        let Body::Stream { len } = exchange.response.body else {
            self.leave_stream(cx);
            return self.answer_with(exchange, sending, cx);
        };
        self.begin_answer(exchange, len, cx);
    }

    /// The task has read this much of what was offered: the window reopens. The first call, with
    /// 0 perhaps, says that it wants content at all.
    pub fn consumed(&mut self, _stream: StreamId, bytes: usize, cx: &mut Context<'_>) {
        if self.state != State::Streaming {
            return;
        }
        let progress = self.progress(cx);
        let stream = &mut progress.stream;
        stream.asked = true;
        stream.offered_bytes = stream.offered_bytes.saturating_sub(bytes);
        if bytes > 0 {
            stream.app_moved(cx.now);
        }
        let has_come = stream.offered_bytes > 0 || bytes > 0;
        let wants_continue = progress.expects_continue && !progress.stream.has_head();
        if wants_continue && !has_come && !progress.has_unread() {
            progress.push_continue(cx);
        }
        progress.expects_continue &= !wants_continue;
        self.read_stream(None, cx);
    }

    /// The task has produced a piece of its answer.
    pub fn produced(&mut self, _stream: StreamId, piece: Piece, cx: &mut Context<'_>) {
        if self.state != State::Streaming {
            return;
        }
        let progress = self.progress(cx);
        progress.stream.app_moved(cx.now);
        let has_head = progress.stream.has_head();
        match piece {
            Piece::Abort => self.broken_off(cx),
            _ if !has_head => {} // nowhere to put it
            Piece::Data(bytes) => {
                if !progress.push_content(bytes, cx) {
                    self.broken_off(cx); // more than the head said
                }
            }
            Piece::Trailers(fields) => progress.stream.trailers = fields,
            Piece::End => self.end_answer(cx),
        }
    }

    /// An app's task is to have the request, unless it has more content than that takes. Content that
    /// fits into its window comes first, unless the client waits for the app to ask for it: so a slow
    /// client holds its connection, and nothing of the app.
    #[inline(never)]
    pub(super) fn start_due(
        &mut self,
        exchange: Box<Exchange>,
        options: TaskOptions,
        cx: &mut Context<'_>,
    ) {
        if self.has_content_beyond(options.body_bytes_max) {
            return self.refuse_content(exchange, cx);
        }
        let window = self.config.limits.stream_window_bytes as u64;
        self.state = State::StartDue;
        let progress = self.progress(cx);
        progress.task = options;
        progress.exchange = Some(exchange);
        let fits = matches!(progress.body, BodyReader::Length { left } if left <= window);
        if fits && (!progress.expects_continue || progress.has_unread()) {
            progress.expects_continue = false;
            self.gather(true, cx);
        }
    }

    /// Orders `Start`, or nothing more if the client has left meanwhile.
    #[inline(never)]
    pub(super) fn start(&mut self, cx: &mut Context<'_>) -> Action {
        let window = self.config.limits.stream_window_bytes;
        let mut progress = self.take_progress(cx);
        if self.eof && progress.task.cancel_on_half_close {
            self.progress = Some(progress);
            self.close(CloseReason::Vanished);
            return Action::Close;
        }
        let Some(mut exchange) = progress.exchange.take() else {
            return Action::Close;
        };
        exchange.hang_up.reset();
        exchange.stream_window_bytes = window;
        let mut request_copy = cx.pool.take_exchange();
        request_copy.copy_request(&exchange);
        progress.stream.begin(request_copy, window, cx.now);
        progress.stream.end_offered = matches!(exchange.request.body, RequestBody::Empty);
        progress.expects_continue &= !progress.has_unread();
        progress.exchange_bytes = exchange.memory_bytes();
        self.progress = Some(progress);
        self.state = State::Streaming;
        self.pending = Pending::Unknown;
        self.begin_period(cx);
        self.read_stream(None, cx);
        let State::CancelDue { close } = self.state else {
            return Action::Start(exchange);
        };
        // Its content cannot be had: no task was started, so none is cancelled.
        cx.pool.give_exchange(exchange);
        self.state = after_task(close);
        self.next_action(cx)
    }

    /// The client will send no more, which says nothing of whether it still reads.
    #[inline(never)]
    pub(super) fn received_eof_streaming(&mut self, cx: &mut Context<'_>) {
        if self.progress(cx).task.cancel_on_half_close {
            return self.close(CloseReason::Vanished);
        }
        self.read_stream(None, cx);
    }

    /// What is to be done for an app's task, while output may be on its way.
    #[inline(never)]
    pub(super) fn stream_action(&mut self, cx: &mut Context<'_>) -> Action {
        let window = self.config.limits.stream_window_bytes;
        if !self.sending && self.has_output() {
            return self.send(cx);
        }
        let progress = self.progress(cx);
        let content_left = !matches!(progress.body, BodyReader::Done);
        if let Some(piece) = progress.stream.next_offer(content_left) {
            return Action::Offer(STREAM, piece);
        }
        if let Some(room) = progress.stream.take_room(window) {
            return Action::Pull(STREAM, room);
        }
        // Behind the content only the end is awaited, and a bounded part of a next request.
        let read = match content_left {
            true => progress.stream.offered_bytes < window && !progress.has_unread(),
            false => progress.unread_len() < window as u64,
        };
        Action::Wait {
            read: read && !self.eof,
            hang_up: self.eof,
        }
    }

    /// Orders `Cancel`; then whatever the reason for it demands.
    #[cold]
    pub(super) fn cancel(&mut self) -> Action {
        let State::CancelDue { close } = self.state else {
            return Action::Close;
        };
        self.state = after_task(close);
        Action::Cancel(STREAM)
    }

    /// Bytes came while a task has the request.
    #[inline(never)]
    pub(super) fn received_streaming(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        if progress.has_unread() {
            progress.keep(bytes, cx);
            self.read_stream(None, cx);
        } else {
            self.read_stream(Some(bytes), cx);
        }
    }

    /// Time is up for the client or for the app.
    #[inline(never)]
    pub(super) fn expired_streaming(&mut self, cx: &mut Context<'_>) {
        let limits = &self.config.limits;
        let Some(progress) = &self.progress else {
            return;
        };
        let has_head = progress.stream.has_head();
        let (status, text) = match progress.stream.awaited(progress.line_since, limits) {
            Awaited::Client(_) => (Status::REQUEST_TIMEOUT, "the request took too long"),
            Awaited::App(_) => (Status::SERVICE_UNAVAILABLE, "the app took too long"),
        };
        let status = Some(status).filter(|_| !has_head);
        let fault = Fault::timeout(status, text);
        self.fail_stream(fault, CloseReason::Slow, cx);
    }

    /// Until when the client or the app is awaited.
    #[inline(never)]
    pub(super) fn streaming_deadline(&self) -> Option<loadline_base::Millis> {
        let progress = self.progress.as_ref()?;
        let awaited = (progress.stream).awaited(progress.line_since, &self.config.limits);
        match awaited {
            Awaited::Client(at) | Awaited::App(at) => Some(at),
        }
    }

    /// Moves content on towards the app, as far as the window allows.
    fn read_stream(&mut self, fresh: Option<&[u8]>, cx: &mut Context<'_>) {
        let config = &self.config;
        let Some(progress) = &mut self.progress else {
            return;
        };
        match progress.read_stream(fresh, &config.limits, cx) {
            Ok(bytes) => progress.stream.client_moved(bytes, &config.limits, cx.now),
            Err(fault) => return self.fail_stream(fault, CloseReason::BadRequest, cx),
        }
        let content_left = !matches!(progress.body, BodyReader::Done);
        if content_left && self.eof && !progress.has_unread() {
            let fault = Fault::bad_request("the content ended before its length");
            return self.fail_stream(fault, CloseReason::BadRequest, cx);
        }
        progress.stream.note_hunger(content_left, cx.now);
    }

    /// The head of an answer whose content follows.
    fn begin_answer(
        &mut self,
        mut exchange: Box<Exchange>,
        len: Option<u64>,
        cx: &mut Context<'_>,
    ) {
        let mut progress = self.take_progress(cx);
        let is_old = exchange.request.version == Version::Http10;
        let is_empty =
            exchange.request.method == Method::Head || exchange.response.status.has_no_content();
        let end = match len {
            _ if is_empty => AnswerEnd::Nothing,
            Some(left) => AnswerEnd::Length { left },
            None if is_old => AnswerEnd::Close,
            None => AnswerEnd::Chunked,
        };
        exchange.persist &= end != AnswerEnd::Close;
        self.count_request();
        let persist = answer::take_over(
            &mut exchange,
            &mut progress,
            self.draining,
            &self.config,
            cx,
        );
        let stream = &mut progress.stream;
        stream.end = end;
        stream.persist = persist;
        stream.takes_trailers = encode::takes_trailers(&exchange.request);
        stream.answered = Some(exchange);
        self.progress = Some(progress);
    }

    /// The answer is complete, as far as the app is concerned.
    fn end_answer(&mut self, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        match progress.stream.end {
            AnswerEnd::Length { left: 1.. } => return self.broken_off(cx),
            AnswerEnd::Chunked => progress.push_last_chunk(cx),
            _ => {}
        }
        let persist = progress.stream.persist;
        progress.content_len = progress.stream.content_len;
        self.leave_stream(cx);
        self.go_on(persist, cx);
        if self.draining {
            self.draining(cx);
        }
    }

    /// The task ended without its answer, or broke what its head promised.
    fn broken_off(&mut self, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        let fault = Fault {
            blame: crate::Blame::Local,
            status: None,
            text: "an app did not finish its response",
        };
        if let Some(mut exchange) = progress.stream.request_copy.take() {
            cx.counters.fault(&fault);
            exchange.response.error(Status::INTERNAL_SERVER_ERROR);
            return self.answered(exchange, cx);
        }
        self.fail_stream(fault, CloseReason::Failed, cx);
    }

    /// Ends the task and the connection: with an answer if there is none yet.
    fn fail_stream(&mut self, fault: Fault, reason: CloseReason, cx: &mut Context<'_>) {
        let progress = self.progress(cx);
        match progress.stream.request_copy.take() {
            Some(exchange) if fault.status.is_some() && !progress.stream.has_head() => {
                progress.exchange = Some(exchange);
                self.leave_stream(cx);
                self.fault(fault, cx);
                self.state = State::CancelDue { close: false };
            }
            request_copy => {
                if let Some(exchange) = request_copy {
                    cx.pool.give_exchange(exchange);
                }
                cx.counters.fault(&fault);
                self.close(reason);
            }
        }
    }

    /// Closed in the middle of a response.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let progress = self.progress.as_ref();
        self.state == State::Closed && progress.is_some_and(|it| it.stream.has_head())
    }

    /// The stream is over: what was kept for it goes back, and its answer is logged.
    fn leave_stream(&mut self, cx: &mut Context<'_>) {
        if let Some(progress) = &mut self.progress {
            progress.end_stream(None, cx);
        }
    }
}

/// Where a connection stands whose task was given up.
fn after_task(close: bool) -> State {
    match close {
        true => State::Closed,
        false => State::Ending { linger: true },
    }
}
